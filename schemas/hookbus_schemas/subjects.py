"""Subjects of the contract. A name is always one token, whatever characters it has.

Bytes outside ``[A-Za-z0-9_-]`` are written ``=XX``, the upper-case hexadecimal of the UTF-8 byte; ``=`` is the one
escape that NATS subjects and bucket keys both allow. The empty name is written ``=``.
"""

import re
import secrets
from functools import lru_cache

from hookbus_schemas.errors import ConfigError, InvalidMessage

MAX_NAME_BYTES = 256
"""Longest name in UTF-8 bytes; escaped threefold, several still fit the server's 4,096-byte control line."""

EVENT_SUBJECTS = ("tool.after.>", "tool.denied.>")
"""What the stream ``TOOL_EVENTS`` captures. Never ``tool.before.>``: a stream's ack would look like an answer."""

OBJECT_SUBJECTS = ("objects.>",)
"""What the stream ``TOOL_OBJECTS`` captures: texts too large for an event."""

HOOKS_CHANGED = "hooks.changed"
"""Where the server republishes changes of the bucket ``HOOKS``, followed by the escaped hook name."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")


@lru_cache(maxsize=4096)
def token(name: str) -> str:
    """Return the name as one subject token.

    Raises:
        ConfigError: the name is longer than ``MAX_NAME_BYTES`` or cannot be written in UTF-8.
    """
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"name {name!r} cannot be written in UTF-8") from error
    if len(raw) > MAX_NAME_BYTES:
        raise ConfigError(f"name of {len(raw)} bytes is longer than {MAX_NAME_BYTES}: {name[:40]!r}...")
    return "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in raw) or "="


@lru_cache(maxsize=4096)
def name(escaped: str) -> str:
    """Return the name that a subject token stands for.

    Raises:
        InvalidMessage: the token is not one that `token` writes.
    """
    if escaped == "=":
        return ""
    if not _TOKEN.fullmatch(escaped):
        raise InvalidMessage(f"{escaped[:80]!r} is not an escaped name")
    raw = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), escaped.encode())
    try:
        text = raw.decode()
        canonical = token(text)
    except (UnicodeDecodeError, ConfigError) as error:
        raise InvalidMessage(f"{escaped[:80]!r} is not an escaped name") from error
    if canonical != escaped:
        raise InvalidMessage(f"{escaped[:80]!r} is not the escape of {text[:80]!r}")
    return text


def new_reply_token() -> str:
    """Return 128 random bits: a reply subject that no other hook can guess."""
    return secrets.token_hex(16)


def before(hook: str, executor: str) -> str:
    """Return the subject on which one executor asks one hook."""
    return f"tool.before.{token(hook)}.{token(executor)}"


def before_filter(hook: str) -> str:
    """Return what a hook's replicas subscribe to, in the queue group `queue_group`."""
    return f"tool.before.{token(hook)}.*"


def queue_group(hook: str) -> str:
    """Return the queue group in which a hook's replicas share the work."""
    return token(hook)


def reply_filter(executor: str) -> str:
    """Return what an executor subscribes to for all its answers."""
    return f"reply.{token(executor)}.>"


def reply_prefix(executor: str, hook: str) -> str:
    """Return how every reply subject begins on which this hook may answer this executor."""
    return f"reply.{token(executor)}.{token(hook)}."


def reply_prefix_for(before_subject: str) -> str:
    """Return how the reply subject of a request must begin, told from the request's own subject.

    A hook that answered anywhere else could be made to speak into another executor's calls.

    Raises:
        InvalidMessage: the subject is not one of `before`.
    """
    parts = before_subject.split(".")
    if len(parts) != 4 or parts[:2] != ["tool", "before"]:
        raise InvalidMessage(f"{before_subject[:80]!r} is not tool.before.<hook>.<executor>")
    return f"reply.{parts[3]}.{parts[2]}."


def after(executor: str, tool: str) -> str:
    """Return the subject of the event of a call that ran."""
    return f"tool.after.{token(executor)}.{token(tool)}"


def denied(executor: str, tool: str) -> str:
    """Return the subject of the event of a call that was stopped."""
    return f"tool.denied.{token(executor)}.{token(tool)}"


def object_part(executor: str, text_digest: str, number: int) -> str:
    """Return the subject of one part, counted from 0, of a text that is too large for an event of this executor."""
    return f"objects.{token(executor)}.{text_digest}.{number}"
