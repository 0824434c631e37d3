"""The connection that every part of hookbus uses. Below: `link`, which keeps it alive."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hookbus_broker.direct import DirectSubscription
from hookbus_broker.faults import unavailable
from hookbus_broker.link import Link
from hookbus_broker.settings import BusSettings
from hookbus_broker.wire import MAX_CONTROL_LINE, encode_headers, is_subject
from hookbus_schemas.errors import BusUnavailable, ConfigError, PayloadTooLarge, PermissionRefused

PENDING_MESSAGES = 4096
"""Messages that may wait for a subscription's callback: seconds of work, not the minutes of nats-py's default."""

FLUSH_TIMEOUT = 5.0
"""Seconds that `publish` waits for room, and `flush` for an answer."""

WRITE_NOW_BYTES = 64 * 1024
"""Bytes waiting that are written at once rather than at the end of the loop's turn."""


class Connection(Link):
    """A connection to the bus that is never silently dead: it is up, or it says so, and comes back by itself.

    While it is not up, publishing is refused, never kept for later. Subscriptions survive reconnections.
    """

    # Publishing.

    def publish_nowait(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message without waiting: it leaves with the others of this turn of the loop.

        Raises:
            BusUnavailable: not connected, or as many bytes wait as `pending_bytes` allows. It is not sent later.
            PayloadTooLarge: payload and headers are over the server's limit.
            ConfigError: the subject, the reply subject or a header name is none.
        """
        if not self._up:
            raise self._unavailable()
        if not is_subject(subject) or (reply and not is_subject(reply)):
            raise ConfigError(f"subject {subject!r} or reply subject {reply!r} should be tokens without white space")
        size = len(payload)
        if headers:
            block = encode_headers(headers)
            size += len(block)
            line = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode()
            payload = block + payload
        else:
            line = f"PUB {subject} {reply} {size}\r\n".encode()
        if size > self._max_payload or len(line) > MAX_CONTROL_LINE:
            self._refuse_size(size, len(line))
        size += len(line)
        if self._pending_data_size + self._unsent + size > self._max_pending_size:
            self._refuse_without_room(size)
        self._pending += (line, payload, b"\r\n")
        self._pending_data_size += size
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        if not self._write_scheduled:
            self._schedule_write()

    def _refuse_size(self, size: int, line_size: int) -> None:
        if size > self._max_payload:
            raise PayloadTooLarge(size, self._max_payload)
        raise ConfigError(f"subjects of {line_size} bytes are longer than the {MAX_CONTROL_LINE} that a server takes")

    def _refuse_without_room(self, size: int) -> None:
        """Write what waits; raise if there is still no room. A message always fits when nothing waits."""
        self._write_pending()
        if not self._up:
            raise self._unavailable()
        if self._unsent and self._unsent + size > self._max_pending_size:
            raise BusUnavailable(
                f"bus {self.server} takes no more now: {self._unsent} bytes wait, bus.pending_bytes allows"
                f" {self._max_pending_size}"
            )

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message, waiting up to `FLUSH_TIMEOUT` seconds for room; raises as `publish_nowait` does."""
        if self._up and self._pending_data_size + self._unsent + len(payload) > self._max_pending_size:
            await self._wait_for_room()
        self.publish_nowait(subject, payload, reply, headers)

    async def _wait_for_room(self) -> None:
        self._write_pending()
        transport = self._transport
        if transport is None:
            raise self._unavailable()
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await transport.drain()
        except TimeoutError:
            raise BusUnavailable(f"bus {self.server} took nothing for {FLUSH_TIMEOUT:g} s") from None
        except OSError:
            raise self._unavailable() from None
        if self._transport is transport:
            self._unsent = transport.unsent_bytes

    async def _request_new_style(
        self, subject: str, payload: bytes, timeout: float = 1, headers: dict[str, Any] | None = None
    ) -> Msg:
        if not self._up:
            raise self._unavailable()
        if not self._resp_sub_prefix:
            await self._init_request_sub()
        token = self._nuid.next().decode()
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._resp_map[token] = answer
        try:
            self.publish_nowait(subject, payload, f"{self._inbox}{token}", headers)
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise errors.TimeoutError from None
        finally:
            self._resp_map.pop(token, None)

    async def _init_request_sub(self) -> None:
        self._inbox = f"{self.new_inbox()}."
        self._resp_sub_prefix = bytearray(self._inbox.encode())
        await self.subscribe_direct(f"{self._inbox}*", self._take_response)

    def _take_response(self, msg: Msg) -> None:
        answer = self._resp_map.get(msg.subject[len(self._inbox) :])
        if answer is not None and not answer.done():
            answer.set_result(msg)

    # Subscribing.

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        future: "asyncio.Future[Any] | None" = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MESSAGES,
        pending_bytes_limit: int = 64 * 1024 * 1024,
    ) -> Subscription:
        """Subscribe as nats-py does, with smaller limits; it is in force when the next `barrier` returns.

        Raises:
            ConfigError: the subject or queue group is none.
            BusUnavailable: the connection is closed.
        """
        try:
            return await super().subscribe(
                subject, queue, cb, future, max_msgs, pending_msgs_limit, pending_bytes_limit
            )
        except errors.BadSubjectError:
            raise self._bad_subject(subject, queue) from None
        except (errors.ConnectionClosedError, errors.ConnectionDrainingError):
            raise self._unavailable() from None

    async def subscribe_direct(
        self, subject: str, callback: Callable[[Msg], object], queue: str = ""
    ) -> DirectSubscription:
        """Subscribe with a quick plain function that the reader calls; in force when the next `barrier` returns.

        Raises:
            ConfigError: the subject or queue group is none.
            BusUnavailable: the connection is closed.
        """
        if self._closing:
            raise self._unavailable()
        tokens = subject.split(".")
        bad = not is_subject(subject) or "" in tokens or ">" in tokens[:-1] or (queue and not is_subject(queue))
        if bad or any(len(token) > 1 and set(token) & {"*", ">"} for token in tokens):
            raise self._bad_subject(subject, queue)
        self._sid += 1
        subscription = DirectSubscription(self, self._sid, subject, queue, callback)
        self._subs[self._sid] = subscription
        await self._send_subscribe(subscription)
        return subscription

    @staticmethod
    def _bad_subject(subject: str, queue: str) -> ConfigError:
        return ConfigError(f"subject {subject!r} or queue group {queue!r} is not one that NATS takes")

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Hand a message on; whatever goes wrong with it, the reader goes on with the next."""
        sub = self._subs.get(sid)
        try:
            if type(sub) is not DirectSubscription:
                await super()._process_msg(sid, subject, reply, data, headers)
                return
            self._count_in(sub, len(data))
            parsed = await self._process_headers(headers) if headers else None
            sub.callback(Msg(self, subject.decode(), reply.decode(), data, parsed))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - nothing here waits: it is the callback's
            await self._note_error(error)

    def _count_in(self, sub: DirectSubscription, size: int) -> None:
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += size
        sub._received += 1
        if 0 < sub._max_msgs <= sub._received:
            self._subs.pop(sub._id, None)

    # Waiting.

    async def barrier(self, timeout: float = 5.0) -> None:
        """Wait until the server has processed all that was sent before, `timeout` seconds at most.

        Raises:
            BusUnavailable: not connected, disconnected meanwhile, or no answer in time.
            PermissionRefused: the server refused a subscription since the last barrier.
        """
        await self.flush(timeout)
        refused, self._refused = self._refused, []
        if refused:
            raise PermissionRefused(f"bus {self.server} refused: {'; '.join(refused)}")

    async def flush(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Wait as `barrier` does, without looking for refused subscriptions."""
        if not self._up:
            raise self._unavailable()
        try:
            async with asyncio.timeout(timeout):
                await self._round_trip()
        except TimeoutError:
            raise BusUnavailable(f"bus {self.server} did not answer within {timeout:g} s") from None

    async def wait_connected(self, timeout: float = 5.0) -> None:
        """Wait until the connection is up.

        Raises:
            BusUnavailable: it is closed, or not up within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._went_up.wait()
        except TimeoutError:
            raise self._unavailable() from None
        if self._closing:
            raise self._unavailable()

    async def wait_disconnected(self, timeout: float = 5.0) -> None:
        """Wait until the connection is lost or closed; raises `TimeoutError` after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            await self._went_down.wait()

    async def drain(self, timeout: float = 30.0) -> None:
        """End all subscriptions once their messages are processed, within `timeout` seconds; then close."""
        draining = [asyncio.create_task(sub._drain()) for sub in self._subs.values() if not sub._closed]
        try:
            if draining:
                await asyncio.wait(draining, timeout=timeout)
        finally:
            for task in draining:
                task.cancel()
            await asyncio.gather(*draining, return_exceptions=True)
            await self.close()

    # Being told.

    def on_disconnect(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a plain function at once when the connection is noticed lost, or closed; returns what removes it."""
        return self._disconnected.add(callback)

    def on_reconnect(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a plain function when the connection is up again, its subscriptions in force; returns what removes it."""
        return self._reconnected.add(callback)

    def on_publish_refused(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call a plain function with the subject, in lower case, of a publish that permissions do not allow."""
        return self._publish_refused.add(callback)

    async def __aenter__(self) -> Self:
        return self


async def connect(settings: BusSettings, *, name: str, url: str | None = None, no_echo: bool = False) -> Connection:
    """Connect within `settings.connect_timeout` seconds; from then on the connection keeps itself up.

    Args:
        settings: how to connect.
        name: what the server's monitoring and the log call this connection.
        url: the servers, when not those of the settings: an embedded server's.
        no_echo: the connection gets no message that it published itself.

    Raises:
        BusUnavailable: no server could be reached, or none would have us; the message says why.
        ConfigError: no URL, or a file of credentials that holds none.
    """
    addresses = [urlsplit(one.strip()) for one in (url or settings.url or "").split(",")]
    if not addresses[0].hostname:
        raise ConfigError("bus.url: no server is configured")
    user = next((address for address in addresses if address.username), None)
    connection = Connection(settings, name)
    try:
        await connection.connect(
            servers=[f"{address.scheme}://{address.netloc.rpartition('@')[2]}" for address in addresses],
            name=name,
            no_echo=no_echo,
            allow_reconnect=False,
            tls=await _tls(settings, addresses[0].scheme == "tls"),
            inbox_prefix=settings.inbox_prefix,
            pending_size=settings.pending_bytes,
            error_cb=connection._note_error,
            **_identity(unquote(user.username or "") if user else "", user and user.password),
        )
    except BaseException:
        await connection.close()
        raise
    return connection


def _identity(user: str, password: str | None) -> dict[str, Any]:
    """Return nats-py's options: a user without a password is a token."""
    if not user:
        return {}
    return {"token": user} if password is None else {"user": user, "password": unquote(password)}


async def _tls(settings: BusSettings, wanted: bool) -> ssl.SSLContext | None:
    if not wanted and settings.tls_ca is None:
        return None
    try:
        return await asyncio.to_thread(ssl.create_default_context, cafile=settings.tls_ca)
    except (ssl.SSLError, OSError):
        raise ConfigError(f"bus.tls_ca: {settings.tls_ca} does not hold PEM certificates") from None
