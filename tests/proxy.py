"""A proxy that understands NATS well enough to lose, hold, double and forge what the stream says of an event."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from peers import Peer

WITH_PAYLOAD = {b"PUB", b"HPUB", b"MSG", b"HMSG"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the protocol: its words, and its payload with headers if it has one."""

    words: tuple[bytes, ...]
    payload: bytes | None = None

    @property
    def subject(self) -> bytes:
        """Where it was published."""
        return self.words[1]

    @property
    def reply(self) -> bytes:
        """Where a publish wants its answer; empty for nowhere."""
        sizes = 2 if self.words[0] == b"HPUB" else 1
        return self.words[2] if len(self.words) == 3 + sizes else b""

    def to_bytes(self) -> bytes:
        """Return it as it is sent."""
        line = b" ".join(self.words) + b"\r\n"
        return line if self.payload is None else line + self.payload + b"\r\n"

    def said(self, payload: bytes, subject: bytes = b"") -> "Frame":
        """Return this acknowledgement with other words in it, and maybe for another event."""
        _, own, sid, *_ = self.words
        return Frame((b"MSG", subject or own, sid, b"%d" % len(payload)), payload)


Treatment = Callable[[Frame], Iterable[Frame]]


def pass_on(frame: Frame) -> Iterable[Frame]:
    """Treat a frame as any proxy would."""
    return (frame,)


async def _next_frame(reader: asyncio.StreamReader) -> Frame:
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError
    words = tuple(line.split())
    if not words or words[0] not in WITH_PAYLOAD:
        return Frame((line[:-2],))
    payload = await reader.readexactly(int(words[-1]) + 2)
    return Frame(words, payload[:-2])


class NatsProxy(Peer):
    """Passes frames on, and shows a test those about events, to pass on what it returns instead.

    Attributes:
        on_event: treats each publish of an event.
        on_ack: treats each acknowledgement of one.
        flowing: cleared, nothing passes either way, and no socket is closed.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.on_event: Treatment = pass_on
        self.on_ack: Treatment = pass_on
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._target = target
        self._replies: set[bytes] = set()

    def send(self, frame: Frame) -> None:
        """Send the client an acknowledgement that was held."""
        self.writers[0].write(frame.to_bytes())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on both ways until either side ends."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, to_server, self._from_client))
                group.create_task(self._pass_on(from_server, writer, self._from_server))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            to_server.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, treat: Treatment) -> None:
        while True:
            frame = await _next_frame(reader)
            await self.flowing.wait()
            for treated in treat(frame):
                writer.write(treated.to_bytes())
            await writer.drain()

    def _from_client(self, frame: Frame) -> Iterable[Frame]:
        if frame.words[0] == b"HPUB" and frame.subject.startswith((b"tool.after.", b"tool.denied.")):
            self._replies.add(frame.reply)
            return self.on_event(frame)
        return (frame,)

    def _from_server(self, frame: Frame) -> Iterable[Frame]:
        is_ack = frame.words[0] in (b"MSG", b"HMSG") and frame.subject in self._replies
        return self.on_ack(frame) if is_ack else (frame,)
