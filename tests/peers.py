"""Peers that misbehave on purpose: a proxy that holds bytes back, a server that says what a test tells it to."""

import asyncio
import ssl
from types import TracebackType
from typing import Self

INFO = b'INFO {"server_id":"x","version":"2.15.1","headers":true,"max_payload":1048576,"proto":1}\r\n'


class Peer:
    """A listener on loopback that owns its tasks."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client."""
        raise NotImplementedError

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            await self.serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cut(self) -> None:
        """Close what is open, at once."""
        for writer in self.writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy(Peer):
    """Passes bytes on to a server, and holds back the server's while told to."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy both ways until either side ends."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        self.writers.append(to_server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, to_server, held=False))
                group.create_task(self._copy(from_server, writer, held=True))
        except* OSError:
            pass
        finally:
            to_server.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, held: bool) -> None:
        while data := await reader.read(65536):
            if held:
                await self.flowing.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class FakeServer(Peer):
    """Shakes hands and answers pings; keeps each line; sends what the test says."""

    def __init__(self, *, greeting: bytes = INFO, before_pong: bytes = b"", first_answer: bytes = b"PONG\r\n") -> None:
        super().__init__()
        self.lines: list[bytes] = []
        self.connections = 0
        self.greeting = greeting
        self.before_pong = before_pong
        self.first_answer = first_answer
        self.next_answer = b"PONG\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Greet, then answer PING by PING; the first answer is the one of the handshake."""
        self.connections += 1
        writer.write(self.greeting)
        answer = self.before_pong + self.first_answer
        while line := await reader.readline():
            self.lines.append(line)
            if line == b"PING\r\n":
                writer.write(answer)
                answer = self.next_answer

    def send(self, data: bytes) -> None:
        """Send bytes to the client that came last."""
        self.writers[-1].write(data)
