"""The seam for hooks that keep what they know on the bus, not in the memory of one replica."""

from typing import Protocol, runtime_checkable

from hookbus_broker.connection import Connection


@runtime_checkable
class UsesBus(Protocol):
    """A hook that is given the connection on which it is served, or that of the executor in whose process it lives."""

    async def attach(self, connection: Connection) -> None:
        """Begin to use the bus, before the first call is judged."""

    async def detach(self) -> None:
        """Stop using it, when the last call is judged; the connection is closed after that."""
