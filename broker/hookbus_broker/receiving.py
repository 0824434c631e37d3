"""Subscriptions on a link, and what their callbacks may do wrong. Below: `supervised`; above: `publishing`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol import command

from hookbus_broker.direct import DirectSubscription
from hookbus_broker.log import say
from hookbus_broker.supervised import SupervisedLink
from hookbus_broker.wire import is_interest, is_subject
from hookbus_schemas.errors import BusUnavailable, ConfigError

STATUS = b"NATS/1.0 "
"""How headers begin in which the server tells a status."""

log = structlog.get_logger()

PENDING_MESSAGES = 4096
"""Messages that may wait for a subscription's callback: seconds of work, not the minutes of nats-py's default."""

PENDING_BYTES = 64 * 1024 * 1024


class ReceivingLink(SupervisedLink):
    """Hands each message to its subscription; whatever happens there, the next message is handed on too."""

    dropped_messages = 0
    """Messages that were dropped since the connection began because a subscription was too slow."""

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        future: "asyncio.Future[Any] | None" = None,
        max_msgs: int = 0,
        pending_msgs_limit: int = PENDING_MESSAGES,
        pending_bytes_limit: int = PENDING_BYTES,
    ) -> Subscription:
        """Subscribe as nats-py does, with smaller limits; it is in force when the next `barrier` returns.

        Raises:
            ConfigError: the subject or queue group is none.
            BusUnavailable: the connection is closed.
        """
        self._check_subscription(subject, queue)
        sub = await super().subscribe(subject, queue, cb, future, max_msgs, pending_msgs_limit, pending_bytes_limit)
        if sub._wait_for_msgs_task is not None:
            self._workers.add(sub._wait_for_msgs_task)
            sub._wait_for_msgs_task.add_done_callback(self._workers.discard)
        return sub

    async def subscribe_direct(
        self, subject: str, callback: Callable[[Msg], object], queue: str = "", *, with_headers: bool = True
    ) -> DirectSubscription:
        """Subscribe with a quick plain function that the reader calls; in force when the next `barrier` returns.

        Args:
            subject: what is received.
            callback: given each message.
            queue: the queue group.
            with_headers: read the headers of messages; otherwise only those with which the server tells a status.

        Raises:
            ConfigError: the subject or queue group is none.
            BusUnavailable: the connection is closed.
        """
        return self._listen(subject, callback, queue, with_headers=with_headers)

    def _listen(
        self, subject: str, callback: Callable[[Msg], object], queue: str, *, with_headers: bool = True
    ) -> DirectSubscription:
        self._check_subscription(subject, queue)
        self._sid += 1
        subscription = DirectSubscription(self, self._sid, subject, queue, callback, with_headers=with_headers)
        self._subs[self._sid] = subscription
        self._enqueue(command.sub_cmd(subject, queue, self._sid))
        return subscription

    def _check_subscription(self, subject: str, queue: str) -> None:
        if self._closing:
            raise self._unavailable()
        if not is_interest(subject) or (queue and not is_subject(queue)):
            raise ConfigError(f"subject {subject!r} or queue group {queue!r} is not one that NATS takes")

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        sub = self._subs.get(sid)
        try:
            if type(sub) is not DirectSubscription:
                await super()._process_msg(sid, subject, reply, data, headers)
                return
            self._count(sub, len(data))
            wanted = headers and (sub.with_headers or headers.startswith(STATUS))
            parsed = await self._process_headers(headers) if wanted else None
            sub.callback(Msg(self, subject.decode(), reply.decode(), data, parsed, _sid=sid))
        except Exception as error:  # noqa: BLE001 - one message must not end the reading of all others
            await self._note_error(error)
        except asyncio.CancelledError as error:
            if self._reading_task is None or self._reading_task.cancelling():
                raise
            await self._note_error(error)  # the callback looked at a future that was cancelled

    def _count(self, sub: DirectSubscription, size: int) -> None:
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += size
        sub._received += 1
        if 0 < sub._max_msgs <= sub._received:
            self._subs.pop(sub._id, None)

    async def _note_error(self, error: BaseException) -> None:
        """Count and log what went wrong with a message; never raise, never wait: the reader calls this."""
        if isinstance(error, BusUnavailable) and not self._up:
            return  # the loss itself has been logged
        if isinstance(error, errors.SlowConsumerError):
            self.dropped_messages += 1
            if count := self._throttle.passes(error.sid):
                subject = error.sub.subject
                say(log.warning, "bus.messages_dropped", name=self._name, subject=subject, count=count)
        elif count := self._throttle.passes((type(error), str(error))):
            say(log.error, "bus.callback_failed", name=self._name, count=count, exc_info=error)
