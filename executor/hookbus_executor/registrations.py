"""Which hooks to ask: the bucket ``HOOKS``, followed.

A change arrives by republish on ``hooks.changed.<hook>``; the whole is read again at every (re)connect and every 30 s,
since a change can be missed. What was read last stays in force while the bus is away.
"""

import asyncio
import contextlib
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg

from hookbus_broker import HOOKS, Connection, parse_change, read_bucket
from hookbus_broker.log import say
from hookbus_executor.hooks import HookTable, RegisteredHook, from_bucket
from hookbus_schemas import HookbusError, InvalidMessage
from hookbus_schemas.subjects import HOOKS_CHANGED

REREAD_EVERY = 30.0
"""Seconds between two readings of the whole bucket."""

RETRY_AFTER = 1.0
"""Seconds after which a failed reading is tried again."""

READ_TIMEOUT = 2.0
"""Seconds that one reading may take."""

_log = structlog.get_logger()


class Registrations:
    """The table of hooks, kept as the bucket is.

    Attributes:
        table: the hooks of this moment; swapped whole.
        problem: why the bucket has never been read; empty once it was.
    """

    def __init__(self, connection: Connection) -> None:
        self.table = HookTable()
        self.problem = "not read yet"
        self._connection = connection
        self._on_bus: dict[str, RegisteredHook] = {}
        self._revisions: dict[str, int] = {}
        self._revision = 0
        self._outdated = False
        self._in_process: dict[str, RegisteredHook] = {}
        self._reread = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._undo: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Read the bucket and follow it; a bucket that cannot be read is a `problem`, not an error.

        Raises:
            BusUnavailable, PermissionRefused: changes cannot be followed.
        """
        await self._connection.subscribe_direct(f"{HOOKS_CHANGED}.>", self._on_change)
        self._undo = self._connection.on_reconnect(self._reread.set)
        await self._connection.barrier()
        await self._read()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Stop following."""
        self._undo()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def add_in_process(self, hook: RegisteredHook) -> None:
        """Add a hook that lives in this process."""
        self._in_process[hook.name] = hook
        self._swap()

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_AFTER if self.problem or self._outdated else REREAD_EVERY):
                    await self._reread.wait()
            self._reread.clear()
            await self._read()

    async def _read(self) -> None:
        try:
            snapshot = await read_bucket(self._connection, HOOKS, READ_TIMEOUT)
        except HookbusError as error:
            if self.problem:
                self.problem = str(error)
            say(_log.warning, "registrations.unread", error=str(error))
            return
        if snapshot.revision < self._revision and not self._outdated:
            # Either a replica that lags behind what we were told, or a bucket made anew: a second reading tells.
            self._outdated = True
            say(_log.warning, "registrations.outdated", revision=snapshot.revision, known=self._revision)
            return
        self._outdated = False
        self._revision = snapshot.revision
        self._on_bus = {key: from_bucket(key, entry.value, entry.revision) for key, entry in snapshot.entries.items()}
        self._revisions = {key: entry.revision for key, entry in snapshot.entries.items()}
        self.problem = ""
        self._swap()

    def _on_change(self, message: Msg) -> None:
        try:
            change = parse_change(message)
        except InvalidMessage as error:
            say(_log.warning, "registration.refused", error=str(error))
            self._reread.set()
            return
        if change.revision <= self._revisions.get(change.key, 0):
            self._reread.set()  # known already, or of a bucket made anew
            return
        self._revisions[change.key] = change.revision
        self._revision = max(self._revision, change.revision)
        if change.value is None:
            self._on_bus.pop(change.key, None)
        else:
            self._on_bus[change.key] = from_bucket(change.key, change.value, change.revision)
        self._swap()
        say(_log.info, "registration.changed", key=change.key, revision=change.revision)

    def _swap(self) -> None:
        self.table = HookTable(self._on_bus.values(), self._in_process.values())
        for hook in self.table.hooks:
            if hook.problem:
                say(_log.error, "registration.unreadable", hook=hook.name, problem=hook.problem, revision=hook.revision)
