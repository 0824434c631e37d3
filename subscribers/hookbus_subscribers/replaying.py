"""Reading recorded events in their order, each once. Below it is `pull`; `consumer` is for work that goes on."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog
from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_broker.log import say
from hookbus_broker.tasks import backoff, end_tasks
from hookbus_schemas import (
    BusUnavailable,
    ConfigError,
    HookbusError,
    InvalidMessage,
    Outcome,
    ToolAfterEvent,
    ToolDeniedEvent,
    decode_event,
)
from hookbus_schemas.globs import matches
from hookbus_subscribers.copies import Copies
from hookbus_subscribers.delivery import Delivery, delivery
from hookbus_subscribers.pull import JetStreamRefusal, Pull, from_time, nanoseconds, request

log = structlog.get_logger()

BUFFER = 1000
"""Events that are read ahead."""

INACTIVE_THRESHOLD = 300.0
"""Seconds without a pull after which the server forgets a reader that died."""

RESUME_TIMEOUT = 60.0
"""Seconds that a reading which does not follow waits for a bus that was lost meanwhile."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event, its place in the stream, and its body as it was published."""

    sequence: int
    event: ToolAfterEvent | ToolDeniedEvent
    body: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; None for all.

    Attributes:
        session, sender, executor: exactly.
        tool: a glob, in which only ``*`` is special.
        outcome: how the call ended.
    """

    session: str | None = None
    tool: str | None = None
    sender: str | None = None
    outcome: Outcome | None = None
    executor: str | None = None

    def wants(self, event: ToolAfterEvent | ToolDeniedEvent) -> bool:
        """Tell whether an event is wanted."""
        context = event.context
        return (
            self.session in (None, context.session_id)
            and self.sender in (None, context.sender_id)
            and self.executor in (None, context.executor_id)
            and self.outcome in (None, event.outcome)
            and (self.tool is None or matches(self.tool, context.tool_name))
        )


ALL = EventFilter()
"""Every event is wanted."""


async def replay(
    connection: Connection,
    *,
    since: float | None = None,
    until: float | None = None,
    start_sequence: int | None = None,
    follow: bool = False,
    wanted: EventFilter = ALL,
) -> AsyncGenerator[StoredEvent, None]:
    """Yield the stored events in the order of the stream, without a gap, also across a loss of the bus.

    An event that the stream holds twice comes once, where it is first. Times are compared in microseconds. What the
    stream holds but is no event is skipped and logged. Use `contextlib.aclosing` when you stop early.

    Args:
        connection: the bus.
        since: seconds since 1970 by the server's clock: begin with what was stored then or later.
        start_sequence: begin with this place in the stream; without either, begin with the first event.
        until: seconds since 1970 by the same clock: end before what was stored then or later.
        follow: go on with what comes; otherwise end with what was the last when the reading began.
        wanted: which events; the others are passed over.

    Raises:
        ConfigError: both starts are given, or one cannot mean anything; `until` and `follow` are.
        BusUnavailable, JetStreamRefusal, PermissionRefused: the stream cannot be read.
    """
    if follow and until is not None:
        raise ConfigError("follow goes on for ever, until ends it: give one")
    start = _start(since, start_sequence)
    first = 0 if since is None else _microseconds(since)
    end = None if until is None else _microseconds(until)
    copies = Copies()
    last = None if follow else await last_sequence(connection)
    while True:
        reading = await _open(connection, start, patient=follow)
        try:
            if last is not None and not reading.pending:
                return
            while (taken := await reading.next()) is not None:
                message, place = taken
                start = _from_sequence(place.sequence + 1)
                stored_at = _microseconds(place.stored_at)
                if end is not None and stored_at >= end:
                    return
                event = _event(message, place) if stored_at >= first else None
                if event is not None and wanted.wants(event) and not _is_copy(copies, event, message.data):
                    yield StoredEvent(place.sequence, event, message.data)
                if last is not None and (place.sequence >= last or not place.pending):
                    return
        finally:
            await reading.close()


def _is_copy(copies: Copies, event: ToolAfterEvent | ToolDeniedEvent, body: bytes) -> bool:
    return event.link is not None and copies.meets(event.link.chain, body)


async def last_sequence(connection: Connection) -> int:
    """Return the place of the event that was stored last, 0 if there is none; raises what `replay` raises."""
    return int((await request(connection, f"STREAM.INFO.{TOOL_EVENTS}"))["state"]["last_seq"])


async def newest(connection: Connection, count: int, wanted: EventFilter = ALL) -> tuple[list[StoredEvent], int]:
    """Return the newest events that are wanted, oldest first, and the place up to which there are no more.

    Raises:
        BusUnavailable, JetStreamRefusal, PermissionRefused: the stream cannot be read.
    """
    last = await last_sequence(connection)
    found: deque[StoredEvent] = deque(maxlen=count)
    start = last - count + 1 if wanted == ALL else None
    async with aclosing(replay(connection, start_sequence=start, wanted=wanted)) as stored:
        async for one in stored:
            if one.sequence > last:
                break
            found.append(one)
    return list(found), last


def _start(since: float | None, sequence: int | None) -> dict[str, object]:
    """Return the part of a consumer's configuration that says where to begin."""
    if since is not None and sequence is not None:
        raise ConfigError("since and start_sequence exclude each other: give one")
    if sequence is not None:
        return _from_sequence(sequence)
    return from_time(since and since - 1e-6)  # the server compares nanoseconds, which a float does not hold


def _microseconds(seconds: float) -> int:
    """Return a time as exactly as datetimes and floats hold one."""
    return round(seconds * 1_000_000)


def _from_sequence(sequence: int) -> dict[str, object]:
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, sequence)}


async def _open(connection: Connection, start: dict[str, object], *, patient: bool) -> "_Reading":
    """Open a reading, trying again while the bus is away."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + RESUME_TIMEOUT
    for wait in backoff(0.05, 2.0):
        reading = _Reading(connection)
        try:
            await connection.wait_connected()
            await reading.open(start)
        except HookbusError as error:
            if not _may_pass(error) or connection.is_closed or (not patient and loop.time() > give_up_at):
                raise
            say(log.warning, "events.interrupted", problem=str(error))
            await asyncio.sleep(wait)
        else:
            return reading
    raise AssertionError("backoff never ends")


def _may_pass(error: HookbusError) -> bool:
    """Tell whether waiting may help: a server that starts, not one that says no."""
    return isinstance(error, BusUnavailable) or (isinstance(error, JetStreamRefusal) and error.code >= 500)


def _event(message: Msg, place: Delivery) -> ToolAfterEvent | ToolDeniedEvent | None:
    try:
        return decode_event(message.data)
    except InvalidMessage as error:
        say(log.error, "event.unreadable", sequence=place.sequence, problem=str(error))
        return None


class _Reading:
    """A consumer of its own, that the server forgets with its reader, and what it delivered and nobody has taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = f"read-{secrets.token_hex(8)}"
        self._buffer: deque[tuple[Msg, Delivery]] = deque()
        self._pull = Pull(connection, self._name, self._take, limit=BUFFER)
        self._wake = asyncio.Event()
        self._delivered = 0
        self.pending = 0

    async def open(self, start: dict[str, object]) -> None:
        """Make the consumer and begin to pull."""
        config = start | {
            "name": self._name,
            "ack_policy": "none",
            "inactive_threshold": nanoseconds(INACTIVE_THRESHOLD),
            "mem_storage": True,
            "num_replicas": 1,
        }
        body: dict[str, object] = {"stream_name": TOOL_EVENTS, "config": config, "action": "create"}
        made = await request(self._connection, f"CONSUMER.CREATE.{TOOL_EVENTS}.{self._name}", body)
        self.pending = int(made.get("num_pending", 0))
        await self._pull.start()
        self._watch = asyncio.create_task(self._pull.wait_over())
        self._watch.add_done_callback(lambda _: self._wake.set())

    def _take(self, message: Msg) -> None:
        self._buffer.append((message, delivery(message.reply)))
        self._wake.set()

    async def next(self) -> tuple[Msg, Delivery] | None:
        """Return the next message; None when this consumer can bring it no more."""
        while not self._buffer and not self._watch.done():
            self._wake.clear()
            await self._wake.wait()
        if not self._buffer:
            return None
        message, place = self._buffer.popleft()
        self._pull.release()
        self._delivered += 1
        return (message, place) if place.consumer_sequence == self._delivered else None

    async def close(self) -> None:
        """Let the server forget the consumer."""
        await end_tasks([self._watch], 1.0)
        await self._pull.close()
        if self._connection.is_connected:
            try:
                await request(self._connection, f"CONSUMER.DELETE.{TOOL_EVENTS}.{self._name}")
            except HookbusError:
                return  # it forgets it by itself, later
