"""What nats-py, the socket and TLS raise, in hookbus's words. They are mapped here and nowhere else."""

import errno
import socket
import ssl

from hookbus_schemas.errors import BusUnavailable, HookbusError

_CREDENTIALS = ("authorization", "authentication", "nkey")


def reason(error: BaseException) -> str:
    """Return in one line why a connection failed or was lost; it never holds a password."""
    words = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(words.split()).removeprefix("nats: ").strip("'")
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'verify_message', '') or error.reason or text}; check bus.tls_ca"
    if isinstance(error, socket.gaierror):
        return "unknown host; check bus.url"
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in text:
        return "nothing listens there; start nats-server or check bus.url"
    if isinstance(error, TimeoutError) and not text:
        return "no answer in time"
    if any(word in text.lower() for word in _CREDENTIALS):
        return f"the server refused the credentials ({text.lower()}); check bus.credentials or the user in bus.url"
    return text or type(error).__name__


def unavailable(error: BaseException, server: str) -> HookbusError:
    """Return the error to raise when a server, named without credentials, cannot be reached or used."""
    if isinstance(error, HookbusError):
        return error
    return BusUnavailable(f"bus {server} is not available: {reason(error)}")
