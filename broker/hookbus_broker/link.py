"""The life of a connection: opened, watched, lost, opened again, closed.

nats-py has several ways to be connected and dead, or closed for ever. Here whatever ends the reader or the pinger, and
whatever the server says, goes one way: `_lose`, then the supervisor opens a new link. Above: `Connection`.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import structlog
from nats import errors
from nats.aio.client import PING_PROTO, Client, Srv
from nats.protocol import command

from hookbus_broker.callbacks import Callbacks, Throttle
from hookbus_broker.faults import reason, unavailable
from hookbus_broker.settings import BusSettings
from hookbus_broker.transport import READ_BYTES, WRITE_HIGH_WATER, BusTransport
from hookbus_broker.wire import refused_publish, refuses_subscription
from hookbus_schemas.errors import BusUnavailable, ConfigError

log = structlog.get_logger()

CLOSE_TIMEOUT = 1.0
"""Seconds that each step of closing may take: a last round trip, the socket, the tasks."""

COMPLAINT_INTERVAL = 10.0
"""Seconds between two log lines about the same slow subscription or refused subject."""

REFUSALS_KEPT = 100


def backoff(wait: float, wait_max: float) -> Iterator[float]:
    """Yield seconds to wait before each try: doubling up to `wait_max`, each cut at random by up to a half."""
    while True:
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, protects nothing
        wait = min(wait_max, wait * 2)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for them, in bounded time; twice, since `wait_for` may swallow a cancellation."""
    left = {task for task in tasks if task is not asyncio.current_task()}
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=CLOSE_TIMEOUT)


class Link(Client):
    """A client that is up, or is being brought up, until it is closed."""

    _transport: BusTransport | None  # type: ignore[assignment]

    def __init__(self, settings: BusSettings, name: str) -> None:
        super().__init__()
        self._settings = settings
        self._name = name
        self._up = False
        self._closing = False
        self._reason = "not connected yet"
        self._server_error = ""
        self._unsent = 0
        self._write_scheduled = False
        self._refused: list[str] = []
        self._lost = asyncio.Event()
        self._went_up = asyncio.Event()
        self._went_down = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._spared: set[asyncio.Task[Any] | None] = set()
        self._throttle = Throttle(COMPLAINT_INTERVAL)
        self._disconnected = Callbacks[[]]("disconnected")
        self._reconnected = Callbacks[[]]("reconnected")
        self._publish_refused = Callbacks[[str]]("publish_refused")

    @property
    def server(self) -> str:
        """Host and port of the server last tried, without credentials."""
        return self._current_server.uri.netloc.rpartition("@")[2] if self._current_server else "not chosen"

    @property
    def is_connected(self) -> bool:
        """Whether the server answered on this link and nothing has been noticed since."""
        return self._up

    # Opening.

    async def _select_next_server(self) -> None:
        """Do nothing: `_open` chooses."""

    async def _process_connect_init(self) -> None:
        await self._open()
        self._supervisor = asyncio.create_task(self._supervise(), name=f"bus-supervisor-{self._name}")

    async def _open(self) -> None:
        """Try each server once; together they have the connect timeout."""
        share = self._settings.connect_timeout / len(self._server_pool)
        failure: Exception = BusUnavailable("no server is known")
        for server in list(self._server_pool):
            try:
                async with asyncio.timeout(share):
                    return await self._open_to(server)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try is the remedy
                failure = unavailable(errors.Error(self._server_error) if self._server_error else error, self.server)
                await self._end_link()
            self._server_pool.append(self._server_pool.pop(0))
        raise failure

    async def _open_to(self, server: Srv) -> None:
        self._current_server = server
        self._server_error = ""
        self._lost.clear()
        await self._load_seed()
        await self._connect_to_server(server)
        await super()._process_connect_init()
        self._watch()
        self._replay()
        await self._round_trip()
        self._announce()

    async def _load_seed(self) -> None:
        path = self._settings.credentials
        if path is None:
            return
        try:  # each time: the seed may have been renewed
            self._nkeys_seed_str = await asyncio.to_thread(path.read_text)
            self._setup_nkeys_connect()
        except OSError as error:
            raise ConfigError(f"bus.credentials: {path} cannot be read: {error.strerror}") from None
        except Exception:  # noqa: BLE001 - a dozen kinds, whose words might hold the seed
            raise ConfigError(f"bus.credentials: {path} does not hold an nkey seed") from None
        self._auth_configured = True

    async def _connect_to_server(self, s: Srv) -> None:
        self._transport = BusTransport(self._settings.ping_interval * (self._settings.max_outstanding_pings + 1))
        await self._transport.connect(s.uri, READ_BYTES, self._settings.connect_timeout)

    def _connect_command(self) -> bytes:
        wanted = self._current_server is not None and self._current_server.uri.scheme == "tls"
        if wanted and not (self._transport and self._transport.is_tls):
            raise errors.Error("the URL says tls:// but the server offers no TLS; nothing secret was sent")
        return super()._connect_command()

    def _watch(self) -> None:
        if self._status != Client.CONNECTED:  # an INFO came before the PONG, which is still to come
            self._pongs.append(asyncio.get_running_loop().create_future())
        self._status = Client.CONNECTED
        for task in (self._reading_task, self._ping_interval_task):
            if task is not None:
                task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        if task in (self._reading_task, self._ping_interval_task):
            error = None if task.cancelled() else task.exception()
            self._lose(error or errors.Error("a task of the connection was cancelled"))

    def _replay(self) -> None:
        for sid, sub in list(self._subs.items()):
            left = sub._max_msgs - sub._received
            if sub._closed or (sub._max_msgs > 0 and left <= 0):
                del self._subs[sid]
                continue
            self._pending.append(command.sub_cmd(sub._subject, sub._queue, sid))
            if sub._max_msgs > 0:
                self._pending.append(command.unsub_cmd(sid, left))

    def _announce(self) -> None:
        again = self._went_down.is_set()
        self._up = True
        self._went_up.set()
        self._went_down.clear()
        if again:
            self.stats["reconnects"] += 1
        log.info("bus.reconnected" if again else "bus.connected", name=self._name, server=self.server)
        if again:
            self._reconnected()

    # Watching.

    async def _read_loop(self) -> None:
        transport = self._transport
        while transport is not None and (data := await transport.read(READ_BYTES)):
            await self._ps.parse(data)
        raise errors.UnexpectedEOF

    async def _ping_interval(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ping_interval)
            if self._pings_outstanding >= self._settings.max_outstanding_pings:
                raise errors.Error(f"the server did not answer {self._pings_outstanding} pings")
            self._pings_outstanding += 1
            self._ping()

    async def _flusher(self) -> None:
        """Do nothing: `_write_pending` writes, once a turn of the loop."""

    def _ping(self) -> "asyncio.Future[bool]":
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._enqueue(PING_PROTO)
        self._pongs.append(answer)
        return answer

    async def _send_ping(self, future: "asyncio.Future[Any] | None" = None) -> None:
        self._enqueue(PING_PROTO)
        self._pongs.append(future or asyncio.get_running_loop().create_future())

    async def _process_pong(self) -> None:
        self._pings_outstanding = 0
        if self._pongs:
            answer = self._pongs.pop(0)
            if not answer.done():  # whoever waited may have given up
                answer.set_result(True)

    async def _round_trip(self) -> None:
        """Wait until the server has processed all that was sent: the PING goes out behind it."""
        await self._ping()

    async def _process_err(self, err_msg: str) -> None:
        """Note what the server says. Where it means the end, the server closes the socket, and that is acted upon."""
        error = err_msg.strip("'")
        subject = refused_publish(error)
        if subject is not None:
            self._publish_refused(subject)
        elif refuses_subscription(error):
            self._refused = [*self._refused, error][-REFUSALS_KEPT:]
        else:
            self._server_error = error
        if count := self._throttle.passes(error):
            log.warning("bus.server_refused", name=self._name, server=self.server, error=error, count=count)

    async def _note_error(self, error: Exception) -> None:
        """Log what a subscription's callback raised, or that it is too slow."""
        if isinstance(error, errors.SlowConsumerError):
            if count := self._throttle.passes(error.sid):
                log.warning("bus.messages_dropped", name=self._name, subscription=error.sub.subject, count=count)
        elif not isinstance(error, BusUnavailable):
            log.error("bus.callback_failed", name=self._name, exc_info=error)

    # Losing.

    async def _process_op_err(self, e: Exception) -> None:
        self._lose(e)

    async def force_reconnect(self) -> None:
        """Drop the link and open another."""
        self._lose(errors.Error("a reconnection was asked for"))

    def _lose(self, error: BaseException) -> None:
        """Act once on the loss of the link, whoever notices it first."""
        if self._lost.is_set() or self.is_closed:
            return
        self._lost.set()
        self._status = Client.RECONNECTING
        self._reason = self._server_error or reason(error)
        if self._transport is not None:
            self._transport.abort()
        self._drop_pending()
        if self._up:
            self._up = False
            log.warning("bus.disconnected", name=self._name, server=self.server, reason=self._reason)
            self._announce_down()

    def _announce_down(self) -> None:
        self._went_up.clear()
        self._went_down.set()
        self._disconnected()

    def _drop_pending(self) -> None:
        """Forget what was not sent and fail what waits for an answer: nothing may be sent late, nobody wait in vain."""
        self._pending.clear()
        self._pending_data_size = self._unsent = 0
        waiting, self._pongs = [*self._pongs, *self._resp_map.values()], []
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._unavailable())
                answer.exception()  # the pinger's have nobody who would look

    def _unavailable(self) -> BusUnavailable:
        state = "is closed" if self._closing else "is lost and being restored"
        return BusUnavailable(f"the connection to bus {self.server} {state}: {self._reason}")

    async def _end_link(self) -> None:
        tasks = [task for task in (self._reading_task, self._ping_interval_task) if task is not None]
        self._reading_task = self._ping_interval_task = None
        transport, self._transport = self._transport, None
        await end_tasks(tasks)
        if transport is not None:
            transport.abort()
            await transport.end(CLOSE_TIMEOUT)

    async def _supervise(self) -> None:
        while True:
            await self._lost.wait()
            await self._end_link()
            await self._reconnect()

    async def _reconnect(self) -> None:
        for delay in backoff(self._settings.reconnect_wait, self._settings.reconnect_wait_max):
            await asyncio.sleep(delay)
            try:
                return await self._open()
            except Exception as error:  # noqa: BLE001 - an outage may have any form and any length
                self._reason = str(error)
                if self._throttle.passes(self._reason):
                    log.warning("bus.reconnect_failed", name=self._name, server=self.server, reason=self._reason)

    # Writing.

    def _enqueue(self, line: bytes) -> None:
        """Write the line soon; without a link drop it, since what matters of it is sent again when there is one."""
        if self._status != Client.CONNECTED:
            return
        self._pending.append(line)
        self._pending_data_size += len(line)
        self._schedule_write()

    def _schedule_write(self) -> None:
        if not self._write_scheduled:
            self._write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def _write_pending(self) -> None:
        self._write_scheduled = False
        if self._transport is None or self._status != Client.CONNECTED:
            return
        lines, self._pending = self._pending, []
        self._pending_data_size = 0
        try:
            if lines:
                self._transport.write(b"".join(lines))
            self._unsent = self._transport.unsent_bytes
        except Exception as error:  # noqa: BLE001 - however a write fails, the link is lost
            self._lose(error)

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:  # noqa: ARG002
        self._enqueue(cmd)

    async def _flush_pending(self, force_flush: bool = False) -> None:  # noqa: ARG002
        if self._pending:
            self._schedule_write()

    # Closing.

    async def close(self) -> None:
        """Close for good, in bounded time; what was published before has reached a server that still answers."""
        if self._closer is None:
            self._closing = True
            self._closer = asyncio.create_task(self._shut(), name=f"bus-closer-{self._name}")
        for sub in self._subs.values():
            if sub._wait_for_msgs_task is asyncio.current_task():
                self._spared.add(sub._wait_for_msgs_task)
                sub._max_msgs = 1  # so it ends by itself when the callback that closes has returned
        await asyncio.shield(self._closer)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: ARG002
        await self.close()

    async def _shut(self) -> None:
        was_up, self._up = self._up, False
        if self._supervisor is not None:
            await end_tasks([self._supervisor])
        if was_up and not self._lost.is_set():
            await self._say_goodbye()
        self._status = Client.CLOSED
        self._reason = "it was closed by this process"
        await self._end_link()
        await self._end_subscriptions()
        self._drop_pending()
        if was_up:
            self._announce_down()
        self._went_up.set()  # whoever waits for it is told that it will never be
        log.info("bus.closed", name=self._name, server=self.server)

    async def _say_goodbye(self) -> None:
        with suppress(TimeoutError, BusUnavailable):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._round_trip()
            if self._transport is not None:
                await self._transport.end(CLOSE_TIMEOUT)

    async def _end_subscriptions(self) -> None:
        tasks: list[asyncio.Task[Any]] = []
        for sub in self._subs.values():
            if sub._wait_for_msgs_task is not None and sub._wait_for_msgs_task not in self._spared:
                tasks.append(sub._wait_for_msgs_task)
            if sub._message_iterator:
                sub._message_iterator._cancel()
            tasks.extend((sub._pending_next_msgs_calls or {}).values())
        self._subs.clear()
        await end_tasks(tasks)
