"""Publishing and requesting on a link: at once or not at all. Below: `receiving`; above: `connection`."""

import asyncio
from collections.abc import Mapping

from nats import errors
from nats.aio.msg import Msg

from hookbus_broker.direct import DirectSubscription
from hookbus_broker.receiving import ReceivingLink
from hookbus_broker.settings import BusSettings
from hookbus_broker.wire import MAX_CONTROL_LINE, encode_headers, is_subject
from hookbus_schemas.errors import BusUnavailable, ConfigError, PayloadTooLarge

FLUSH_TIMEOUT = 5.0
"""Seconds that `publish` waits for room, and `flush` for an answer."""

WRITE_NOW_BYTES = 64 * 1024
"""Bytes waiting that are written at once, not at the end of the turn of the loop: the server starts on them earlier."""


class PublishingLink(ReceivingLink):
    """Sends messages while it is up; refuses them while it is not, and keeps none for later."""

    def __init__(self, settings: BusSettings, name: str) -> None:
        super().__init__(settings, name)
        self._inbox = ""
        self._responses: DirectSubscription | None = None

    def publish_nowait(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message without waiting: it leaves with the others of this turn of the loop.

        Raises:
            BusUnavailable: not connected, or as many bytes wait as `bus.pending_bytes` allows. It is not sent later.
            PayloadTooLarge: payload and headers are over the server's limit.
            ConfigError: the subject, the reply subject or a header name is none.
        """
        if not self._up:
            raise self._unavailable()
        if not is_subject(subject) or (reply and not is_subject(reply)):
            raise ConfigError(f"subject {subject!r} or reply subject {reply!r} should be tokens without white space")
        size = len(payload)
        block = b""
        if headers:
            block = encode_headers(headers)
            size += len(block)
            line = f"HPUB {subject} {reply} {len(block)} {size}\r\n".encode()
        else:
            line = f"PUB {subject} {reply} {size}\r\n".encode()
        if size > self._max_payload or len(line) > MAX_CONTROL_LINE:
            self._refuse_size(size, len(line))
        if self._pending_data_size + self._unsent + size > self._max_pending_size:
            self._make_room(size)
        self._pending += (line, block, payload, b"\r\n")
        self._pending_data_size += size + len(line)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        if self._pending_data_size > WRITE_NOW_BYTES:
            self._write_pending()
        elif not self._write_scheduled:
            self._schedule_write()

    def _refuse_size(self, size: int, line_size: int) -> None:
        if size > self._max_payload:
            raise PayloadTooLarge(size, self._max_payload)
        raise ConfigError(f"subjects of {line_size} bytes are longer than the {MAX_CONTROL_LINE} that a server takes")

    def _has_room(self, size: int) -> bool:
        """Tell whether a message fits; when nothing waits any does."""
        waiting = self._pending_data_size + self._unsent
        return not waiting or waiting + size <= self._max_pending_size

    def _make_room(self, size: int) -> None:
        self._write_pending()
        if not self._up:
            raise self._unavailable()
        if not self._has_room(size):
            raise BusUnavailable(
                f"bus {self.server} takes no more now: {self._unsent} bytes wait to be sent,"
                f" bus.pending_bytes allows {self._max_pending_size}"
            )

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message, waiting up to `FLUSH_TIMEOUT` seconds for room; raises as `publish_nowait` does."""
        size = len(payload) + MAX_CONTROL_LINE  # and headers, about
        if self._up and not self._has_room(size):
            await self._wait_for_room(size)
        self.publish_nowait(subject, payload, reply, headers)

    async def _wait_for_room(self, size: int) -> None:
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                self._write_pending()
                while self._transport is not None and not self._has_room(size):
                    await self._transport.wait_sent()
                    self._write_pending()
        except TimeoutError:
            raise BusUnavailable(f"bus {self.server} took nothing for {FLUSH_TIMEOUT:g} s") from None
        except OSError:
            raise self._unavailable() from None

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,  # noqa: ARG002 - nats-py's signature
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Send a request and return the first answer, within `timeout` seconds.

        Raises:
            nats.errors.TimeoutError: no answer in time.
            nats.errors.NoRespondersError: nobody listens. Both are nats-py's own: its JetStream calls expect them.
            BusUnavailable: not connected, or disconnected meanwhile.
        """
        if self._responses is None:
            await self._listen_for_responses()
        token = self._nuid.next().decode()
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._resp_map[token] = answer
        try:
            self.publish_nowait(subject, payload, self._inbox + token, headers)
            async with asyncio.timeout(timeout):
                response = await answer
        except TimeoutError:
            raise errors.TimeoutError from None
        finally:
            del self._resp_map[token]
        if response.headers and response.headers.get("Status") == "503":
            raise errors.NoRespondersError
        return response

    async def _listen_for_responses(self) -> None:
        if not self._up:
            raise self._unavailable()
        self._inbox = f"{self.new_inbox()}."
        self._responses = self._listen(f"{self._inbox}*", self._take_response, "")

    def _take_response(self, msg: Msg) -> None:
        answer = self._resp_map.get(msg.subject[len(self._inbox) :])
        if answer is not None and not answer.done():
            answer.set_result(msg)
