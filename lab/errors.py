"""The errors the lab raises on purpose."""


class LabError(Exception):
    """Something a person can act on; the text says what was seen and, where known, what to do."""


class HostFailedError(LabError):
    """A host of the lab did not come up; its logs say why."""

    def __init__(self, host: str, text: str) -> None:
        super().__init__(f"{host}: {text}")
        self.host = host
