"""The connection that all of hookbus uses. Its layers, from below: `link`, `supervised`, `receiving`, `publishing`."""

import asyncio
from collections.abc import Callable
from typing import Self

from hookbus_broker.address import options
from hookbus_broker.publishing import FLUSH_TIMEOUT, PublishingLink
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable, PermissionRefused

DRAIN_TIMEOUT = 30.0
"""Seconds that `drain` gives callbacks to work off what they have."""


class Connection(PublishingLink):
    """A connection to the bus that is never silently dead: it is up, or says that it is not, and comes back by itself.

    While it is not up, publishing is refused, never kept for later. Subscriptions survive reconnections.
    """

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
        """Wait as `barrier` does, without asking for refused subscriptions."""
        if not self._up:
            raise self._unavailable()
        try:
            async with asyncio.timeout(timeout):
                await self._ping()
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

    def on_disconnect(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a plain function at once when the connection is noticed lost, or closed; returns what removes it."""
        return self._disconnected.add(callback)

    def on_reconnect(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a plain function when the connection is up again, subscriptions in force; returns what removes it."""
        return self._reconnected.add(callback)

    def on_publish_refused(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call a plain function with the subject, in lower case, of a publish that the credential does not allow."""
        return self._publish_refused.add(callback)

    async def drain(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """End all subscriptions when what came for them is worked off, within `timeout` seconds; then close.

        The callbacks may make requests meanwhile.
        """
        ending = [sub for sub in self._subs.values() if sub is not self._responses and not sub._closed]
        draining = [asyncio.create_task(sub._drain()) for sub in ending]
        try:
            if draining:
                await asyncio.wait(draining, timeout=timeout)
        finally:
            for task in draining:
                task.cancel()
            await asyncio.gather(*draining, return_exceptions=True)
            await self.close()

    async def __aenter__(self) -> Self:
        return self


async def connect(settings: BusSettings, *, name: str, url: str | None = None, no_echo: bool = False) -> Connection:
    """Connect within `settings.connect_timeout` seconds; from then on the connection keeps itself up.

    Args:
        settings: how to connect.
        name: what the log and the server's monitoring call this connection.
        url: the servers when they are not those of the settings, as with an embedded one.
        no_echo: whether the connection is spared the messages that it published itself.

    Raises:
        BusUnavailable: no server could be reached, or none took us; the message says why.
        ConfigError: no URL, or a file that does not hold what it should.
    """
    connection = Connection(settings, name)
    try:
        await connection.connect(
            **await options(settings, url),
            name=name,
            no_echo=no_echo,
            allow_reconnect=False,  # nats-py's own way; ours begins when the first link is up
            connect_timeout=settings.connect_timeout,  # type: ignore[arg-type]  # any number will do
            inbox_prefix=settings.inbox_prefix,
            pending_size=settings.pending_bytes,
            error_cb=connection._note_error,
        )
    except BaseException:
        await connection.close()
        raise
    return connection
