"""Writing log lines that can harm nobody. Above it is whatever logs while it works on a call, an event or a message."""

from collections.abc import Callable
from contextlib import suppress


def say(write: Callable[..., object], event: str, **fields: object) -> None:
    """Log, whatever becomes of it: a closed terminal or a full disk must not end what is at work.

    Args:
        write: a method of a logger, such as ``log.warning``.
        event: its name.
        fields: what else the line holds.
    """
    with suppress(Exception):
        write(event, **fields)
