"""What a plugin prints, as lines of the log: cut, and never so many that they drown the rest."""

import time

import structlog

from hookbus_broker.log import say

log = structlog.get_logger()

MAX_LINE_BYTES = 2000
"""Bytes of one line that are logged."""

MAX_LINES, INTERVAL = 200, 10.0
"""Lines that are logged in so many seconds; the others are counted."""


class Output:
    """Logs what one plugin prints."""

    def __init__(self, hook: str) -> None:
        self._hook = hook
        self._rest = b""
        self._since = time.monotonic()
        self._lines = 0
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Take some more of it."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE_BYTES]
        for line in lines:
            self._log(line)

    def end(self) -> None:
        """Log the last line, and how many were left out."""
        if self._rest:
            self._log(self._rest)
        self._report()

    def _log(self, line: bytes) -> None:
        if time.monotonic() - self._since > INTERVAL:
            self._report()
            self._since, self._lines = time.monotonic(), 0
        if not line.strip():
            return
        if self._lines >= MAX_LINES:
            self._dropped += 1
            return
        self._lines += 1
        say(log.info, "plugin.printed", hook=self._hook, text=line[:MAX_LINE_BYTES].decode(errors="replace"))

    def _report(self) -> None:
        if self._dropped:
            say(log.warning, "plugin.output_dropped", hook=self._hook, lines=self._dropped)
            self._dropped = 0
