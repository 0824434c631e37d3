"""The embedded server: a real nats-server with JetStream, one for each ``state_dir``, shared by all who name it.

The first to come owns it and starts it; who comes later uses it, and starts it again on the same port and store when
the owner has gone. Below: `process` (one nats-server process) and `state` (the folder).
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from hookbus_broker.log import say
from hookbus_broker.process import START_TIMEOUT, PortTaken, ServerProcess, find_server, last_line
from hookbus_broker.settings import BusSettings
from hookbus_broker.state import Record, StateFolder, answers
from hookbus_schemas.errors import BusUnavailable, HookbusError

STANDBY_INTERVAL = 0.2
"""Seconds between looks whether the folder has lost its owner: less than a client waits between tries to reconnect."""
MAX_RESTARTS = 5
"""Restarts of a server that keeps ending, before it counts as failed."""
STEADY = 30.0
"""Seconds that a server must run for its earlier ends to be forgotten."""
RESTART_WAIT = 0.05
"""Seconds before the first restart, doubled for each that follows: the port and the store may need a moment."""

log = structlog.get_logger()


class EmbeddedServer:
    """The server of a folder as one of its users sees it.

    Attributes:
        url: where to connect, the password included.
        pid: the nats-server's process id.
        owned: whether this user started it, and stops it at its end.
        failed: done when the server could not be kept running; its result is the error.
    """

    def __init__(self) -> None:
        self.url = ""
        self.pid = 0
        self.owned = False
        self.failed: asyncio.Future[HookbusError] = asyncio.get_running_loop().create_future()


@asynccontextmanager
async def embedded(settings: BusSettings) -> AsyncIterator[EmbeddedServer]:
    """Find or start the embedded server, and keep it running until the end of the block.

    Raises:
        ConfigError: no nats-server is installed, or the folder cannot be used.
        BusUnavailable: it did not start, or its owner's server does not answer.
    """
    keeper = _Keeper(settings, StateFolder.prepare(settings.state_dir))
    task = asyncio.create_task(keeper.run(), name="hookbus-embedded-server")
    try:
        await keeper.ready(task)
        yield keeper.server
    finally:
        keeper.stopping.set()
        await _finished(task)


async def find_embedded(settings: BusSettings) -> str | None:
    """Return the URL of the folder's server if one answers; starts and creates nothing."""
    record = StateFolder(settings.state_dir.absolute()).read()
    return record.url if record and await answers(record) else None


async def _finished(task: asyncio.Task[None]) -> None:
    """Wait for the task through cancellations: a server that is being stopped is not left alone. Bounded by `stop`."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled


class _Keeper:
    """Keeps the folder's server running for one user: starts it, starts it again, or stands by while others do."""

    def __init__(self, settings: BusSettings, folder: StateFolder) -> None:
        self.server = EmbeddedServer()
        self.stopping = asyncio.Event()
        self._settings = settings
        self._folder = folder
        self._binary = find_server(settings)
        self._ready = asyncio.Event()

    async def ready(self, task: asyncio.Task[None]) -> None:
        """Wait until there is a server, or raise why there is none."""
        waiting = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({waiting, task}, timeout=START_TIMEOUT + 1, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._ready.is_set():
            return
        if task.done():
            await task
            raise self.server.failed.result()
        raise BusUnavailable(
            f"another process owns {self._folder.path}, but its nats-server does not answer: end that process"
        )

    async def run(self) -> None:
        """Keep a server until `stopping` is set or it cannot be kept."""
        try:
            while not self.stopping.is_set():
                lock = self._folder.try_lock()
                await (self._stand_by() if lock is None else self._own(lock))
        except HookbusError as error:
            self._give_up(error)
        except OSError as error:
            self._give_up(BusUnavailable(f"embedded nats-server in {self._folder.path}: {error}"))

    def _give_up(self, error: HookbusError) -> None:
        if self._ready.is_set():
            say(log.error, "embedded.failed", error=str(error), state_dir=str(self._folder.path))
        self.server.owned = False
        self.server.failed.set_result(error)

    async def _stand_by(self) -> None:
        if not self._ready.is_set():
            record = self._folder.read()
            if record and await answers(record):
                self._announce(record, owned=False)
        await self._stopped_within(STANDBY_INTERVAL if self._ready.is_set() else STANDBY_INTERVAL / 4)

    async def _own(self, lock: int) -> None:
        """Run the server, again when it ends; return when stopping."""
        try:
            await self._run_repeatedly(lock)
        finally:
            os.close(lock)

    async def _run_repeatedly(self, lock: int) -> None:
        clock = asyncio.get_running_loop().time
        ends = 0
        while not self.stopping.is_set():
            began = clock()
            try:
                await self._run_once(lock, restarted=ends > 0)
            except BusUnavailable as error:
                ends = 1 if clock() - began > STEADY else ends + 1
                if not self._ready.is_set():
                    raise
                if ends > MAX_RESTARTS:
                    raise BusUnavailable(f"embedded nats-server ended {ends} times, last: {error}") from error
                say(log.warning, "embedded.ended", error=str(error), ends=ends)
                await self._stopped_within(RESTART_WAIT * 2 ** (ends - 1))

    async def _run_once(self, lock: int, *, restarted: bool) -> None:
        process = await self._start(lock, restarted=restarted)
        try:
            self._folder.write(process.record)
            self._announce(process.record, owned=True)
            event = "embedded.restarted" if restarted else "embedded.started"
            say(log.info, event, pid=process.record.pid, port=process.record.port, state_dir=str(self._folder.path))
            await self._stopped_or_ended(process)
        finally:
            await process.stop()
        if not self.stopping.is_set():
            raise BusUnavailable(f"nats-server {process.record.pid} ended: {last_line(self._folder.log)}")

    async def _start(self, lock: int, *, restarted: bool) -> ServerProcess:
        """Start on the port that clients know; on another only if that is taken and nobody asked for it."""
        record = self._folder.read() or Record.new()
        if self._settings.port:
            record = record.started(self._settings.port, 0)
        try:
            return await self._launch(record, lock)
        except PortTaken as error:
            if self._settings.port or restarted:
                raise
            say(log.warning, "embedded.moved", error=str(error))
            return await self._launch(record.started(-1, 0), lock)

    async def _launch(self, record: Record, lock: int) -> ServerProcess:
        return await ServerProcess.start(self._binary, self._folder, record, lock, self.stopping)

    def _announce(self, record: Record, *, owned: bool) -> None:
        self.server.url = record.url
        self.server.pid = record.pid
        self.server.owned = owned
        self._ready.set()

    async def _stopped_or_ended(self, process: ServerProcess) -> None:
        stopping: asyncio.Future[object] = asyncio.ensure_future(self.stopping.wait())
        exited: asyncio.Future[object] = asyncio.ensure_future(process.ended())
        try:
            await asyncio.wait({stopping, exited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            exited.cancel()

    async def _stopped_within(self, seconds: float) -> None:
        stopping = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({stopping}, timeout=seconds)
        stopping.cancel()
