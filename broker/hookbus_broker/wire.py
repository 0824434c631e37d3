"""NATS protocol lines: the headers that hookbus writes, the error lines that it reads. Pure functions."""

import functools
import re
from collections.abc import Mapping

from hookbus_schemas.errors import ConfigError

MAX_CONTROL_LINE = 4096
"""Bytes of a line that a server takes by default; it closes the connection over a longer one."""

_INTEREST = re.compile(r"(?:(?:\*|[^.*>]+)\.)*(?:\*|>|[^.*>]+)")  # wildcards are whole tokens, > only the last
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NEWLINES = str.maketrans("\r\n", "  ")
_REFUSED_PUBLISH = re.compile(r'permissions violation for publish to "(.*)"')
_REFUSED_SUBSCRIPTION = re.compile(
    r"permissions violation for subscription to|maximum subscriptions exceeded|invalid subject"
)


def is_subject(text: str) -> bool:
    """Tell whether the text can be a subject on the wire: nothing in it could end the line or a field of it."""
    return bool(text) and " " not in text and text.isprintable()


def is_interest(text: str) -> bool:
    """Tell whether the text can be subscribed to: a subject, or one with wildcards."""
    return is_subject(text) and bool(_INTEREST.fullmatch(text))


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return the header block; a line break in a value becomes a space, so that no value can add a header.

    Raises:
        ConfigError: a name is not a token of RFC 7230.
    """
    lines = "".join([f"{_header_name(name)}: {_one_line(value)}\r\n" for name, value in headers.items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode("utf-8", "replace")


@functools.lru_cache
def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigError(f"header name {name!r} should be letters, digits and dashes")
    return name


def _one_line(value: str) -> str:
    return value if value.isprintable() else value.strip().translate(_NEWLINES)


def refused_publish(error: str) -> str | None:
    """Return the subject, in lower case, when a server's error line says that it refused a publish."""
    found = _REFUSED_PUBLISH.search(error)
    return found[1] if found else None


def refuses_subscription(error: str) -> bool:
    """Tell whether a server's error line says that it refused a subscription, the connection left open."""
    return bool(_REFUSED_SUBSCRIPTION.search(error))
