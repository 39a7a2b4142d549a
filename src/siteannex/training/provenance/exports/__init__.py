"""Provenance in the formats that others read: OpenLineage events, Workflow Run RO-Crates."""
