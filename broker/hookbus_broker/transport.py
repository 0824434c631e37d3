"""The socket under a connection: it notices a peer that is gone, and can always be closed."""

import asyncio
import socket
import ssl
from contextlib import suppress
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

READ_BYTES = 64 * 1024
_TCP_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)  # not on every platform


class BusTransport(TcpTransport):
    """TCP or TLS, for one link: the next one gets a new transport."""

    def __init__(self, dead_after: float) -> None:
        """Take the seconds after which bytes that the peer does not acknowledge mean that it is gone."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._dead_after = dead_after

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        """Open the socket within `connect_timeout` seconds."""
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(uri.hostname, uri.port, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer
        self._tune(writer)

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: float
    ) -> None:
        """Go on encrypted, within `connect_timeout` seconds."""
        if self._io_writer is None:
            raise ConnectionError("TLS needs an open connection")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = asyncio.StreamReaderProtocol(reader)
        host = uri if isinstance(uri, str) else uri.hostname
        async with asyncio.timeout(connect_timeout):
            tls = await loop.start_tls(self._io_writer.transport, protocol, ssl_context, server_hostname=host)
        if tls is None:
            raise ConnectionResetError("the connection ended during the TLS handshake")
        protocol.connection_made(tls)  # nats-py leaves it out, and with it all limits on what is read ahead
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(tls, protocol, reader, loop)
        tls.set_write_buffer_limits(high=0)

    def _tune(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # so `wait_sent` waits for all of it
        peer: socket.socket = writer.get_extra_info("socket")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _TCP_USER_TIMEOUT is not None:
            peer.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, max(1, int(self._dead_after * 1000)))

    def send(self, data: bytes) -> int:
        """Send without waiting; return the bytes that the kernel has not yet taken."""
        if self._io_writer is None:
            return 0
        self._io_writer.write(data)
        return self._io_writer.transport.get_write_buffer_size()

    async def wait_sent(self) -> None:
        """Wait until the kernel has taken all of it."""
        if self._io_writer is not None:
            await self._io_writer.drain()

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return bool(self._io_writer and self._io_writer.get_extra_info("ssl_object"))

    def abort(self) -> None:
        """Close at once; what was not sent is lost. A close that sends it first could wait for a dead peer for ever."""
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()

    async def end(self, timeout: float) -> None:
        """Send what is left and close, within `timeout` seconds."""
        if self._io_writer is None:
            return
        self._io_writer.close()
        with suppress(OSError):
            async with asyncio.timeout(timeout):
                await self._io_writer.wait_closed()
        self.abort()
