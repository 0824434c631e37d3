"""A link that is opened again whenever it is lost, until it is closed. Below: `link`; above: `receiving`."""

import asyncio
from contextlib import suppress
from typing import Any

import structlog
from nats import errors
from nats.aio.client import Client

from hookbus_broker.callbacks import Callbacks
from hookbus_broker.faults import unavailable
from hookbus_broker.link import END_TIMEOUT, Link
from hookbus_broker.log import say
from hookbus_broker.settings import BusSettings
from hookbus_broker.tasks import backoff, end_tasks
from hookbus_schemas.errors import BusUnavailable

log = structlog.get_logger()


class SupervisedLink(Link):
    """Opens links, one after the other, and tells of it."""

    def __init__(self, settings: BusSettings, name: str) -> None:
        super().__init__(settings, name)
        self._went_up = asyncio.Event()
        self._went_down = asyncio.Event()
        self._disconnected = Callbacks[[]]()
        self._reconnected = Callbacks[[]]()
        self._supervisor: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._workers: set[asyncio.Task[Any]] = set()
        self._spared: set[asyncio.Task[Any]] = set()

    # Opening, the first time and again.

    async def _select_next_server(self) -> None:
        """Do nothing: `_open` chooses."""

    async def _process_connect_init(self) -> None:
        await self._open()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"bus-supervisor-{self._name}")
        self._supervisor.add_done_callback(self._supervisor_ended)

    async def _open(self) -> None:
        """Try each server once; all together have the connect timeout."""
        share = self._settings.connect_timeout / len(self._server_pool)
        failure: Exception = BusUnavailable("no server is known")
        for server in list(self._server_pool):
            try:
                async with asyncio.timeout(share):
                    await self._open_to(server)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try is the remedy
                failure = self._failed_to_open(error)
            else:
                return self._announce_up()
            self._server_pool.sort(key=lambda one: one is server)  # to the end
            await self._end_link()
        raise failure

    def _failed_to_open(self, error: Exception) -> Exception:
        """Return why, in our words; when the link was lost meanwhile, that is why."""
        if self._lost.is_set():
            error = errors.Error(self._reason)
        self._lose(error)
        return unavailable(error, self.server)

    def _announce_up(self) -> None:
        again = self._went_down.is_set()
        self._up = True
        self._went_up.set()
        self._went_down.clear()
        say(log.info, "bus.reconnected" if again else "bus.connected", name=self._name, server=self.server)
        if again:
            self.stats["reconnects"] += 1
            self._reconnected.call()

    def _announce_down(self) -> None:
        self._went_up.clear()
        self._went_down.set()
        self._disconnected.call()

    async def _supervise(self) -> None:
        while True:
            await self._lost.wait()
            for delay in backoff(self._settings.reconnect_wait, self._settings.reconnect_wait_max):
                await asyncio.sleep(delay)
                if await self._reopen():
                    break

    async def _reopen(self) -> bool:
        try:
            await self._end_link()
            await self._open()
        except Exception as error:  # noqa: BLE001 - an outage may have any form and any length
            self._reason = str(error)
            if count := self._throttle.passes(self._reason):
                say(log.warning, "bus.reconnect_failed", name=self._name, reason=self._reason, count=count)
            return False
        return True

    def _supervisor_ended(self, _: "asyncio.Task[None]") -> None:
        """Close when somebody cancelled the supervisor, as the end of the loop does: nobody would reconnect."""
        if not self._closing:
            self._closing = True
            self._lose(errors.Error("its supervisor was cancelled"))
            self._status = Client.CLOSED
            self._went_up.set()

    # Closing.

    async def close(self) -> None:
        """Close for good, in bounded time; what was published before has reached a server that still answers."""
        if self._closer is None:
            self._closing = True
            self._closer = asyncio.create_task(self._shut(), name=f"bus-closer-{self._name}")
        self._spare_caller()
        await asyncio.shield(self._closer)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: ARG002
        await self.close()

    def _spare_caller(self) -> None:
        """Let a subscription's callback that closes the connection return from it; its worker ends after that."""
        caller = asyncio.current_task()
        for sub in self._subs.values():
            if caller is not None and sub._wait_for_msgs_task is caller:
                self._spared.add(caller)
                sub._max_msgs = 1

    async def _shut(self) -> None:
        was_up, self._up = self._up, False
        if self._supervisor is not None:
            await end_tasks([self._supervisor], END_TIMEOUT)
        if was_up and not self._lost.is_set():
            await self._say_goodbye()
        self._status = Client.CLOSED
        self._reason = "it was closed by this process"
        await self._end_link()
        await self._end_subscriptions()
        self._drop_pending()
        self._tell_of_close(was_up)

    async def _say_goodbye(self) -> None:
        with suppress(TimeoutError, BusUnavailable):
            async with asyncio.timeout(END_TIMEOUT):
                await self._ping()
            if self._transport is not None:
                await self._transport.end(END_TIMEOUT)

    async def _end_subscriptions(self) -> None:
        waiting: list[asyncio.Future[Any]] = [*(self._workers - self._spared)]
        for sub in self._subs.values():
            if sub._message_iterator:
                sub._message_iterator._cancel()
            waiting.extend((sub._pending_next_msgs_calls or {}).values())
        self._subs.clear()
        await end_tasks(waiting, END_TIMEOUT)

    def _tell_of_close(self, was_up: bool) -> None:
        if was_up or self._went_down.is_set():
            say(log.info, "bus.closed", name=self._name, server=self.server)
        if was_up:
            self._announce_down()
        self._went_down.set()
        self._went_up.set()  # whoever waits for it is told that it will not come
