"""DAGMan's own files: read, compared, explained."""
