"""Following events with a durable consumer: at least once, where the last process stopped.

Below it are `pull`, which brings the events, and `set_aside` and `retrying`, for those that cannot be handled.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import structlog
from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_broker.callbacks import Throttle
from hookbus_broker.log import say
from hookbus_broker.tasks import backoff, end_tasks
from hookbus_schemas import (
    BusUnavailable,
    ConfigError,
    HookbusError,
    InvalidMessage,
    subjects,
)
from hookbus_schemas.isolation import FAILURES, is_cancellation
from hookbus_subscribers.asked import read_event
from hookbus_subscribers.delivery import delivery
from hookbus_subscribers.durable import ensure_durable
from hookbus_subscribers.event_filter import ALL, EventFilter
from hookbus_subscribers.pull import Pull, from_time, nanoseconds
from hookbus_subscribers.retrying import Retries
from hookbus_subscribers.set_aside import described, is_set_aside, set_aside
from hookbus_subscribers.taken import ACK, IN_PROGRESS, NAK, TERM, Consumed, Event, Handler, Taken, nak_after
from hookbus_subscribers.whole import whole_if_stored

log = structlog.get_logger()

RETRY_WAIT, RETRY_WAIT_MAX = 0.1, 5.0
"""Seconds before the first try to pull again, and most between tries."""

LOG_INTERVAL = 10.0
"""Seconds between two log lines about the same problem."""


class Consumer:
    """Hands each event, its large texts in their places, to a handler, and acknowledges it when that has returned.

    An event comes again, with the same ``event_id``, when the process died, the acknowledgement was lost or the handler
    raised. With a concurrency of 1 events are handled in the order of the stream, but for those that come again. One
    whose handler fails again and again, or that cannot be read, is set aside: an operator sees it with
    ``hookbus events set-aside`` and hands it back with ``hookbus events retry``.

    Attributes:
        consumed: counters.
    """

    def __init__(
        self,
        connection: Connection,
        durable: str,
        handler: Handler,
        *,
        subjects: Sequence[str] = subjects.EVENT_SUBJECTS,
        wanted: EventFilter = ALL,
        since: float | None = None,
        concurrency: int = 1,
        max_in_flight: int = 256,
        max_deliver: int = 5,
        retry_delay: float = 1.0,
        handler_timeout: float = 60.0,
        ack_wait: float = 30.0,
        drain_timeout: float = 10.0,
    ) -> None:
        """Prepare to consume.

        Args:
            connection: the bus; it stays open when the consumer has stopped.
            durable: the consumer's name on the server: processes that share it share the events.
            handler: an async function of one event.
            subjects: which events the server delivers.
            wanted: which of those are handled; the others are acknowledged.
            since: seconds since 1970 where to begin when the server does not know the durable yet; None for all events.
            concurrency: handlers that run at once.
            max_in_flight: events taken and not yet handled.
            max_deliver: deliveries after which an event whose handler fails is set aside.
            retry_delay: seconds before an event that was given back comes again.
            handler_timeout: seconds that the handler has for one event.
            ack_wait: seconds after which the server gives the events of a process that died to another.
            drain_timeout: seconds that `stop` gives the events taken before.

        Raises:
            ConfigError: a number cannot mean anything.
        """
        if min(concurrency, max_in_flight, max_deliver) < 1 or min(ack_wait, handler_timeout) <= 0:
            raise ConfigError(
                "concurrency, max_in_flight and max_deliver should be at least 1, handler_timeout and ack_wait above 0"
            )
        self.consumed = Consumed()
        self._connection = connection
        self._durable = durable
        self._handler = handler
        self._wanted = wanted
        self._start = from_time(since)
        self._config: dict[str, object] = {
            "durable_name": durable,
            "name": durable,
            "ack_policy": "explicit",
            "ack_wait": nanoseconds(ack_wait),
            "max_ack_pending": max(1000, 4 * max_in_flight),
            "max_deliver": -1,  # counted here: an event is given up only when it has been set aside
            "filter_subjects": list(subjects),
        }
        self._concurrency = concurrency
        self._max_in_flight = max_in_flight
        self._max_deliver = max_deliver
        self._retry_delay = retry_delay
        self._handler_timeout = handler_timeout
        self._ack_wait = ack_wait
        self._drain_timeout = drain_timeout
        self._waiting: deque[Taken] = deque()
        self._held: dict[Taken, None] = {}
        self._work = asyncio.Semaphore(0)
        self._places = asyncio.Semaphore(concurrency)
        self._retries = Retries(connection, durable, self._handle_again)
        self._throttle = Throttle(LOG_INTERVAL)

    async def start(self) -> None:
        """Begin to consume, at once or as soon as stream and bus are there."""
        await self._retries.start()
        self._puller = asyncio.create_task(self._keep_pulling(), name=f"consumer-{self._durable}")
        self._workers = [asyncio.create_task(self._handle_all()) for _ in range(self._concurrency)]
        self._pinger = asyncio.create_task(self._keep_alive())

    async def stop(self) -> None:
        """Take nothing new, finish what was taken, within `drain_timeout` seconds; give back what is left."""
        await self._retries.stop()
        try:
            async with asyncio.timeout(self._drain_timeout):
                self._puller.cancel()  # which takes what is on its way
                await asyncio.wait([self._puller])
                for _ in self._workers:
                    self._work.release()  # a worker that finds nothing to do ends
                await asyncio.gather(*self._workers)
        except TimeoutError:
            say(log.warning, "consumer.drain_timed_out", consumer=self._durable, unhandled=len(self._held))
        finally:
            await end_tasks([self._puller, *self._workers, self._pinger], 1.0)
            self._give_back()
        try:
            await self._connection.flush()
        except BusUnavailable as error:
            say(log.warning, "consumer.drain_unconfirmed", consumer=self._durable, problem=str(error))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Pulling.

    async def _keep_pulling(self) -> None:
        loop = asyncio.get_running_loop()
        waits = backoff(RETRY_WAIT, RETRY_WAIT_MAX)
        while True:
            began = loop.time()
            try:
                problem = await self._pull()
            except HookbusError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next try is the remedy
                problem = type(error).__name__
                say(log.exception, "consumer.failed", consumer=self._durable)
            if count := self._throttle.passes(problem):
                say(log.warning, "consumer.interrupted", consumer=self._durable, problem=problem, count=count)
            if loop.time() - began > RETRY_WAIT_MAX:
                waits = backoff(RETRY_WAIT, RETRY_WAIT_MAX)
            await asyncio.sleep(next(waits))

    async def _pull(self) -> str:
        """Pull until the pulls bring nothing more; return why."""
        await self._connection.wait_connected()
        await ensure_durable(self._connection, self._durable, self._config, self._start)
        pull = Pull(
            self._connection, self._durable, lambda message: self._take(message, pull), limit=self._max_in_flight
        )
        await pull.start()
        try:
            await pull.wait_over()
        finally:
            await pull.close()
        return pull.problem

    # Handling.

    def _take(self, message: Msg, pull: Pull) -> None:
        taken = Taken(self._connection, message, delivery(message.reply), pull)
        self.consumed.redelivered += taken.delivery.attempts > 1
        self._held[taken] = None
        self._waiting.append(taken)
        self._work.release()

    async def _handle_all(self) -> None:
        while True:
            await self._work.acquire()
            if not self._waiting:
                return
            await self._handle(self._waiting.popleft())

    async def _handle(self, taken: Taken) -> None:
        try:
            event = read_event(taken.message.data, taken.message.subject)
        except InvalidMessage as error:
            self.consumed.unreadable += await self._set_aside(taken, error)
            return
        if not self._wanted.wants(event):
            self.consumed.passed_over += 1
            self._settle(taken, ACK)
        elif taken.delivery.attempts <= self._max_deliver or not await self._is_set_aside(taken):
            await self._end(taken, event, await self._run(event))

    async def _run(self, event: Event) -> BaseException | None:
        """Return what went wrong."""
        try:
            async with self._places, asyncio.timeout(self._handler_timeout):
                await self._handler(await whole_if_stored(self._connection, event))
        except FAILURES as error:  # whatever a handler raises, the event comes again
            if is_cancellation(error):
                raise
            return error
        self.consumed.handled += 1
        return None

    async def _handle_again(self, body: bytes, subject: str) -> BaseException | None:
        """Handle what an operator handed back; return what went wrong."""
        try:
            return await self._run(read_event(body, subject))
        except InvalidMessage as error:
            return error

    async def _end(self, taken: Taken, event: Event, error: BaseException | None) -> None:
        if error is None:
            self._settle(taken, ACK)
        elif taken.delivery.attempts >= self._max_deliver:
            await self._set_aside(taken, error, event.event_id)
        else:
            self.consumed.failed += 1
            self._settle(taken, nak_after(self._retry_delay))
            about = {"consumer": self._durable, "event_id": event.event_id, "attempts": taken.delivery.attempts}
            say(log.warning, "event.failed", retry_after_s=self._retry_delay, exc_info=error, **about)

    async def _set_aside(self, taken: Taken, error: BaseException, event_id: str = "") -> bool:
        """Set an event aside, and only then give it up; tell whether that was possible."""
        place = taken.delivery
        about: dict[str, object] = {"event_id": event_id, "attempts": place.attempts}
        said = about | {"consumer": self._durable, "sequence": place.sequence}
        try:
            await set_aside(self._connection, self._durable, place.sequence, error=described(error), **about)
        except HookbusError as problem:
            self.consumed.failed += 1
            self._settle(taken, nak_after(RETRY_WAIT_MAX))
            say(log.error, "event.not_set_aside", problem=str(problem), retry_after_s=RETRY_WAIT_MAX, **said)
            return False
        self.consumed.set_aside += 1
        self._settle(taken, TERM)
        say(log.error, "event.set_aside", problem=described(error), exc_info=error if event_id else None, **said)
        return True

    async def _is_set_aside(self, taken: Taken) -> bool:
        """Tell whether an event was set aside before and comes all the same; then give it up at last."""
        try:
            found = await is_set_aside(self._connection, self._durable, taken.delivery.sequence)
        except HookbusError:
            return False  # it is handled once more
        if found:
            self._settle(taken, TERM)
        return found

    def _settle(self, taken: Taken, answer: bytes) -> None:
        del self._held[taken]
        taken.pull.release()
        taken.say(answer)

    async def _keep_alive(self) -> None:
        """Tell the server now and then that what waits here is not lost, so that it does not come twice."""
        while True:
            await asyncio.sleep(self._ack_wait / 3)
            for taken in self._held:
                taken.say(IN_PROGRESS)

    def _give_back(self) -> None:
        for taken in self._held:
            taken.say(NAK)
        self._held.clear()
        self._waiting.clear()
