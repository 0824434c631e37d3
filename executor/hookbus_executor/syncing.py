"""Bringing the outbox's file to the disk, beside the loop: many who wait share one `fsync`.

Above it is `outbox`, below it `journal`. What each choice survives stands with the setting ``outbox_fsync``.
"""

import asyncio

import structlog

from hookbus_broker.log import say
from hookbus_executor.journal import Journal, JournalUnwritable
from hookbus_schemas.threads import Threads

INTERVAL = 1.0
"""Seconds between two times that the disk is brought up to date, where nobody waits for it."""

TIMEOUT = 5.0
"""Seconds that a call waits for the disk before it is refused: as long as it would for a hook."""

_log = structlog.get_logger()


class Syncer:
    """Brings a journal to the disk, one `fsync` at a time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._threads = Threads(limit=1)
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def synced(self) -> None:
        """Wait until all that is in the journal by now is on the disk.

        Raises:
            JournalUnwritable: it is not, within `TIMEOUT` seconds.
        """
        if self._next is None:  # the one that runs may have begun before what is meant here was written
            self._next = asyncio.get_running_loop().create_task(self._sync_after(self._running))
            self._next.add_done_callback(_seen)
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.shield(self._next)
        except TimeoutError:
            raise JournalUnwritable(f"outbox {self._journal.folder} is not on the disk after {TIMEOUT:g} s") from None

    async def keep_synced(self) -> None:
        """Bring the journal to the disk again and again, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.synced()
            except JournalUnwritable as error:
                say(_log.error, "outbox.not_synced", problem=str(error))

    async def close(self) -> None:
        """Wait for what is in progress, for a while."""
        left = [task for task in (self._running, self._next) if task is not None]
        if left:
            await asyncio.wait(left, timeout=TIMEOUT)

    async def _sync_after(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._threads.run(self._journal.sync)


def _seen(task: "asyncio.Task[None]") -> None:
    """Take the error of an `fsync` that everybody has stopped waiting for, so that it is not reported as lost."""
    if not task.cancelled():
        task.exception()
