"""Log lines that harm nobody."""

import structlog
from structlog.testing import capture_logs

from hookbus_broker.log import say


def nested(depth: int, secret: str) -> None:
    """Raise from deep below, with a secret in a variable of every level."""
    held = secret * 2
    if depth:
        nested(depth - 1, secret)
    raise ValueError(len(held))


def test_a_traceback_is_text_that_shows_no_variables() -> None:
    """What a console makes of an exception by itself may take seconds, and print what the variables held."""
    with capture_logs() as logs:
        try:
            nested(900, "hunter2")
        except ValueError:
            say(structlog.get_logger().error, "hook.failed", exc_info=True, hook="h")
    (entry,) = logs
    text = entry.pop("exception")
    assert (text.startswith("Traceback"), text.endswith("ValueError: 14\n"), "hunter2" * 2 in text) == (
        True,
        True,
        False,
    )
    assert entry == {"event": "hook.failed", "log_level": "error", "hook": "h"}


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    """Whatever it raises."""

    def broken(event: str, **fields: object) -> None:
        raise OSError(event, fields)

    say(broken, "hook.failed", exc_info=True)
