"""How many calls are in progress, for whoever has to wait until there is none."""

import asyncio
import contextlib
from types import TracebackType

import structlog

from hookbus_broker.log import say

END_TIMEOUT = 2.0
"""Seconds that calls are given to end after their hooks and tools were told to."""

_log = structlog.get_logger()


class Progress:
    """Counts calls: `with progress:` around each."""

    def __init__(self) -> None:
        self._calls = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._calls += 1
        self._none.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls -= 1
        if not self._calls:
            self._none.set()

    async def wait(self) -> None:
        """Wait until no call is in progress, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await self._none.wait()
        if self._calls:
            say(_log.error, "calls.abandoned", count=self._calls)
