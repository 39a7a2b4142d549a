"""What the witnesses add up to: where a pilot is, how sure that is, how it ended."""
