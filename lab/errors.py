"""The one error the lab raises on purpose."""


class LabError(Exception):
    """Something a person can act on; the text says what was seen and, where known, what to do."""
