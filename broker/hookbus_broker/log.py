"""Writing log lines that can harm nobody. Above it is whatever logs while it works on a call, an event or a message."""

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress


def say(write: Callable[..., object], event: str, **fields: object) -> None:
    """Log, whatever becomes of it: a closed terminal or a full disk must not end what is at work.

    A traceback is written as Python prints it, and named ``exception``: what a logger makes of one by itself may take
    seconds, on the loop, and show what the variables held.

    Args:
        write: a method of a logger, such as ``log.warning``.
        event: its name.
        fields: what else the line holds; ``exc_info`` is an exception, or True for the one that is being handled.
    """
    with suppress(Exception):
        error = fields.pop("exc_info", None)
        error = sys.exception() if error is True else error
        if isinstance(error, BaseException):
            fields["exception"] = "".join(traceback.format_exception(error))
        write(event, **fields)
