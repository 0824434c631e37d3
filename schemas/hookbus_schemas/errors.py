"""Every error that hookbus raises. A denial is not among them: it is an answer, not a failure."""


class HookbusError(Exception):
    """The base of all errors raised by hookbus."""


class ConfigError(HookbusError, ValueError):
    """A setting, registration or name that cannot mean anything; the message names the field."""


class InvalidMessage(HookbusError, ValueError):
    """A body that is broken, too deep, too large, of another type or of a newer version."""


class BusUnavailable(HookbusError, ConnectionError):
    """The bus cannot be reached, or would not take a message now."""


class PermissionRefused(HookbusError, PermissionError):
    """The server refused a subscription or a publish: the credential does not allow it."""


class PayloadTooLarge(HookbusError, ValueError):
    """A message, its headers included, is larger than the server takes.

    Attributes:
        size_bytes: what was to be sent.
        limit_bytes: what the server takes.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"message of {size_bytes} bytes is over the server's limit of {limit_bytes} bytes")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
