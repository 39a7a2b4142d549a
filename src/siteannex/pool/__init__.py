"""The access point: collector, schedd and tokens."""
