"""One link to one server: opened, read, pinged, written, noticed lost.

nats-py has several ways to be connected and dead, or closed for ever. Here whatever ends the reader or the pinger, and
whatever the server says, goes one way: `_lose`. Above: `supervised`, which opens the next link.
"""

import asyncio
from typing import Any

import structlog
from nats import errors
from nats.aio.client import PING_PROTO, Client, Srv
from nats.protocol import command

from hookbus_broker.callbacks import Callbacks, Throttle
from hookbus_broker.faults import reason
from hookbus_broker.log import say
from hookbus_broker.parsing import MessageParser
from hookbus_broker.settings import BusSettings
from hookbus_broker.tasks import end_tasks
from hookbus_broker.transport import READ_BYTES, BusTransport
from hookbus_broker.wire import refused_publish, refuses_subscription
from hookbus_schemas.errors import BusUnavailable, ConfigError

log = structlog.get_logger()

END_TIMEOUT = 1.0
"""Seconds that each step of ending a link may take: its tasks, its socket, a last round trip."""

LAST_WORDS = 2.0
"""Seconds for which an error line of the server explains that the connection then ended."""

REFUSALS_KEPT = 100


class Link(Client):
    """A client with a link that is up, or is lost and says so."""

    _transport: BusTransport | None

    def __init__(self, settings: BusSettings, name: str) -> None:
        super().__init__()
        self._settings = settings
        self._name = name
        self._up = False
        self._closing = False
        self._lost = asyncio.Event()
        self._reason = "not connected yet"
        self._server_error = (0.0, "")
        self._refused: list[str] = []
        self._unsent = 0
        self._write_scheduled = False
        self._throttle = Throttle()
        self._publish_refused = Callbacks[[str]]()

    @property
    def server(self) -> str:
        """Host and port of the server last tried, without credentials."""
        return self._current_server.uri.netloc.rpartition("@")[2] if self._current_server else "(not chosen)"

    @property
    def is_connected(self) -> bool:
        """Whether the server answered on this link and no fault has been noticed since."""
        return self._up

    # Opening.

    async def _open_to(self, server: Srv) -> None:
        """Open a link: its subscriptions are in force and the server answers when this returns."""
        self._current_server = server
        self._server_error = (0.0, "")
        self._lost.clear()
        self._ps = MessageParser(self)  # a reader of the last link that will not end keeps the old one
        await self._load_seed()
        await self._connect_to_server(server)
        await super()._process_connect_init()
        self._begin()  # with nothing awaited since nats-py set its status, so that nobody publishes before
        await self._ping()
        if self._lost.is_set() or self._closing:  # in the very turn of the answer
            raise self._unavailable()

    async def _load_seed(self) -> None:
        path = self._settings.credentials
        if path is None:
            return
        try:  # for each link: the seed may have been renewed
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
        """Return the line that holds the credentials, unless it would travel unencrypted against our wish."""
        scheme = self._current_server.uri.scheme if self._current_server else ""
        wanted = scheme == "tls" or self._settings.tls_ca is not None
        if wanted and not (self._transport and self._transport.is_tls):
            raise errors.Error("the server offers no TLS, which bus.url or bus.tls_ca asks for")
        return super()._connect_command()

    def _begin(self) -> None:
        if self._status != Client.CONNECTED:  # an INFO came before the PONG, which is still to come
            self._pongs.append(asyncio.get_running_loop().create_future())
        self._status = Client.CONNECTED
        for task in (self._reading_task, self._ping_interval_task):
            if task is not None:
                task.add_done_callback(self._task_ended)
        for sid, sub in list(self._subs.items()):
            self._subscribe_again(sid, sub._max_msgs and sub._max_msgs - sub._received)

    def _subscribe_again(self, sid: int, messages_left: int) -> None:
        sub = self._subs[sid]
        if messages_left < 0 or (sub._max_msgs and not messages_left):
            del self._subs[sid]
        elif not sub._closed:
            self._enqueue(command.sub_cmd(sub._subject, sub._queue, sid))
            if messages_left:
                self._enqueue(command.unsub_cmd(sid, messages_left))

    # Reading.

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        if task in (self._reading_task, self._ping_interval_task):
            error = None if task.cancelled() else task.exception()
            self._lose(error or errors.Error("a task of the connection was cancelled"))

    async def _read_loop(self) -> None:
        transport, parser = self._transport, self._ps
        while transport is not None and (data := await transport.read(READ_BYTES)):
            await parser.parse(data)
        raise errors.UnexpectedEOF

    async def _process_err(self, err_msg: str) -> None:
        """Note what the server says. When it means the end, the server closes the socket: that is what counts."""
        error = err_msg.strip("'")
        subject = refused_publish(error)
        if subject is not None:
            self._publish_refused.call(subject)
        elif refuses_subscription(error):
            self._refused = [*self._refused, error][-REFUSALS_KEPT:]
        else:
            self._server_error = (asyncio.get_running_loop().time(), error)
        kind = ".".join(error.split(".")[:3])  # the rest of a subject may be random, and each a new one
        if count := self._throttle.passes(kind):
            say(log.warning, "bus.server_refused", name=self._name, server=self.server, error=error, count=count)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Take what changed; forget servers of the cluster that it no longer names, else they are tried for ever."""
        self._max_payload = info.get("max_payload", self._max_payload)
        if named := info.get("connect_urls"):
            self._server_pool = [
                one
                for one in self._server_pool
                if not one.discovered or one is self._current_server or one.uri.netloc in named
            ]
        await super()._process_info(info, initial_connection)

    # Pinging.

    async def _ping_interval(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ping_interval)
            if self._pings_outstanding >= self._settings.max_outstanding_pings:
                raise errors.Error(f"the server left {self._pings_outstanding} pings unanswered")
            self._pings_outstanding += 1
            self._ping()

    def _ping(self) -> "asyncio.Future[bool]":
        """Return what is done when the server has processed all that was written before."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._status != Client.CONNECTED:
            raise self._unavailable()
        self._enqueue(PING_PROTO)  # behind what is pending: nats-py's own overtakes it
        self._pongs.append(answer)
        return answer

    async def _send_ping(self, future: "asyncio.Future[bool] | None" = None) -> None:
        self._ping()
        if future is not None:
            self._pongs[-1] = future

    async def _process_pong(self) -> None:
        self._pings_outstanding = 0
        if self._pongs:
            answer = self._pongs.pop(0)
            if not answer.done():  # whoever waited may have given up
                answer.set_result(True)

    # Writing.

    def _enqueue(self, line: bytes) -> None:
        """Write the line soon; without a link it is dropped, since a new link begins with all that matters of it."""
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
        """Write what this turn of the loop has gathered, in one go."""
        self._write_scheduled = False
        if self._transport is None or self._status != Client.CONNECTED:
            return
        lines, self._pending = self._pending, []
        self._pending_data_size = 0
        try:
            self._unsent = self._transport.send(b"".join(lines))
        except Exception as error:  # noqa: BLE001 - however a write fails, the link is lost
            self._lose(error)

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:  # noqa: ARG002
        self._enqueue(cmd)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        """Do nothing: what is enqueued is also scheduled."""

    async def _flusher(self) -> None:
        """Do nothing: `_write_pending` has no task that could die."""

    # Losing.

    async def _process_op_err(self, e: Exception) -> None:
        self._lose(e)

    async def force_reconnect(self) -> None:
        """Drop the link; the next one is opened at once."""
        self._lose(errors.Error("a reconnection was asked for"))

    def _lose(self, error: BaseException) -> None:
        """Act on the loss of the link, once, whoever notices it first."""
        if self._lost.is_set() or self.is_closed:
            return
        self._lost.set()
        self._status = Client.RECONNECTING
        self._reason = self._why(error)
        if self._transport is not None:
            self._transport.abort()
        self._drop_pending()
        if self._up:
            self._up = False
            say(log.warning, "bus.disconnected", name=self._name, server=self.server, reason=self._reason)
            self._announce_down()

    def _why(self, error: BaseException) -> str:
        said_at, words = self._server_error
        if words and asyncio.get_running_loop().time() - said_at < LAST_WORDS:
            return reason(errors.Error(words))
        return reason(error)

    def _announce_down(self) -> None:
        raise NotImplementedError

    def _drop_pending(self) -> None:
        """Forget what was not sent and fail what waits for an answer: nothing is sent late, nobody waits in vain."""
        self._pending = []
        self._pending_data_size = self._unsent = 0
        waiting, self._pongs = [*self._pongs, *self._resp_map.values()], []
        for answer in waiting:
            if not answer.done():
                answer.set_exception(self._unavailable())
                answer.exception()  # counts as looked at: for some of them nobody does

    def _unavailable(self) -> BusUnavailable:
        state = "is closed" if self._closing else "is down and being restored"
        return BusUnavailable(f"the connection to bus {self.server} {state}: {self._reason}")

    async def _end_link(self) -> None:
        tasks = [task for task in (self._reading_task, self._ping_interval_task) if task is not None]
        self._reading_task = self._ping_interval_task = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            await transport.end(END_TIMEOUT)
        await end_tasks(tasks, END_TIMEOUT)
