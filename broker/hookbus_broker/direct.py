"""A subscription whose callback the reader itself calls: no queue and no task between socket and callback."""

from collections.abc import Callable

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription


class DirectSubscription(Subscription):
    """Calls a plain function for each message, in order, in the turn of the loop that read it.

    The function must be quick: while it runs nothing is read. What it raises is logged and harms nobody.
    """

    def __init__(
        self,
        connection: Client,
        sid: int,
        subject: str,
        queue: str,
        callback: Callable[[Msg], object],
        *,
        with_headers: bool = True,
    ) -> None:
        super().__init__(connection, sid, subject, queue=queue)
        self.callback = callback
        self.with_headers = with_headers

    async def unsubscribe(self, limit: int = 0) -> None:
        """Stop at once, or after `limit` messages in all; messages on their way are dropped."""
        if not self._closed and not self._conn.is_closed:
            await super().unsubscribe(limit)

    async def drain(self) -> None:
        """Stop after the messages that are on their way.

        Raises:
            BusUnavailable: the connection was lost meanwhile; the subscription has ended all the same.
        """
        if not self._closed and not self._conn.is_closed:
            await self._drain()

    async def _drain(self) -> None:
        self._closed = True  # a link opened from here on does not subscribe again
        try:
            await self._conn._send_unsubscribe(self._id)
            await self._conn.flush()
        finally:
            self._conn._remove_sub(self._id)
