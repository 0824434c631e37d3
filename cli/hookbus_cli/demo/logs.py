"""What is logged while the demo runs: kept to be counted, not printed over the table."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.typing import EventDict, WrappedLogger

LIMIT = 10_000
"""Most lines that are kept."""


class Logs:
    """Log entries in their order."""

    def __init__(self) -> None:
        self.entries: deque[EventDict] = deque(maxlen=LIMIT)

    def count(self, *events: str) -> int:
        """Return how many entries there are of these events."""
        return sum(entry.get("event") in events for entry in self.entries)

    def keep(self, _logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        """Take an entry, as a structlog processor; nothing is printed."""
        self.entries.append(entry)
        raise structlog.DropEvent


@contextmanager
def kept_logs() -> Iterator[Logs]:
    """Keep what is logged until the end of the block; afterwards logging is as before."""
    logs, before = Logs(), structlog.get_config()
    structlog.configure(
        processors=[logs.keep],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        cache_logger_on_first_use=False,
    )
    try:
        yield logs
    finally:
        structlog.configure(**before)
