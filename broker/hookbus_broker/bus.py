"""The bus to use: the one that is configured, or else the embedded server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hookbus_broker.embedded import embedded, find_embedded
from hookbus_broker.settings import BusSettings


@asynccontextmanager
async def open_bus(settings: BusSettings) -> AsyncIterator[str]:
    """Return where to connect; without a configured URL, start or share the embedded server until the block ends.

    Raises:
        ConfigError: the embedded server cannot be set up.
        BusUnavailable: the embedded server did not start.
    """
    if settings.url:
        yield settings.url
        return
    async with embedded(settings) as server:
        yield server.url


async def find_running(settings: BusSettings) -> str | None:
    """Return where a bus runs, for commands that start none: the configured URL, or that of an answering server."""
    return settings.url or await find_embedded(settings)
