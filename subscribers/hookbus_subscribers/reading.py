"""Reading the messages of the stream in their order, each once. Below it is `pull`; above it `replaying`."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

import structlog
from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_broker.log import say
from hookbus_broker.tasks import backoff, end_tasks
from hookbus_schemas import BusUnavailable, ConfigError, HookbusError
from hookbus_subscribers.delivery import Delivery, delivery
from hookbus_subscribers.pull import JetStreamRefusal, Pull, from_time, nanoseconds, request

log = structlog.get_logger()

BUFFER = 1000
"""Messages that are read ahead, and most that are handed on at once."""

INACTIVE_THRESHOLD = 300.0
"""Seconds without a pull after which the server forgets a reader that died."""

RESUME_TIMEOUT = 60.0
"""Seconds that a reading which does not follow waits for a bus that was lost meanwhile."""

Batch: TypeAlias = list[tuple[Msg, Delivery]]


async def read(
    connection: Connection,
    *,
    since: float | None = None,
    until: float | None = None,
    start_sequence: int | None = None,
    follow: bool = False,
    subjects: Sequence[str] = (),
) -> AsyncGenerator[Batch, None]:
    """Yield the stored messages in the order of the stream, without a gap, as many at a time as are there.

    Their headers are not read. Bounds and errors are as in `replay`; without `subjects` all messages are wanted.
    """
    if follow and until is not None:
        raise ConfigError("follow goes on for ever, until ends it: give one")
    start = _start(since, start_sequence)
    last = None if follow else await last_sequence(connection)
    bounds = _Bounds(_microseconds(since), _microseconds(until), last)
    while True:
        reading = await _open(connection, start | {"filter_subjects": list(subjects)}, patient=follow)
        try:
            if not follow and not reading.pending:
                return
            while batch := await reading.next():
                start = _from_sequence(batch[-1][1].sequence + 1)
                within, is_end = bounds.cut(batch)
                if within:
                    yield within
                if is_end:
                    return
        finally:
            await reading.close()


async def last_sequence(connection: Connection) -> int:
    """Return the place of the event that was stored last, 0 if there is none; raises what `replay` raises."""
    return int((await request(connection, f"STREAM.INFO.{TOOL_EVENTS}"))["state"]["last_seq"])


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Microseconds since 1970 where a reading begins and before which it ends, and its last place in the stream."""

    first: int | None
    end: int | None
    last: int | None

    def cut(self, batch: Batch) -> tuple[Batch, bool]:
        """Return what of a batch is within, and whether nothing behind it is."""
        newest = batch[-1][1]
        is_end = self.last is not None and (newest.sequence >= self.last or not newest.pending)
        if self.last is not None and newest.sequence > self.last:
            batch = [one for one in batch if one[1].sequence <= self.last]
        if self.first is None and self.end is None:
            return batch, is_end
        within: Batch = []
        for one in batch:
            stored_at = _microseconds(one[1].stored_at)
            if self.end is not None and stored_at >= self.end:
                return within, True
            if self.first is None or stored_at >= self.first:
                within.append(one)
        return within, is_end


def _start(since: float | None, sequence: int | None) -> dict[str, object]:
    """Return the part of a consumer's configuration that says where to begin."""
    if since is not None and sequence is not None:
        raise ConfigError("since and start_sequence exclude each other: give one")
    if sequence is not None:
        return _from_sequence(sequence)
    return from_time(since and since - 1e-6)  # the server compares nanoseconds, which a float does not hold


@overload
def _microseconds(seconds: float) -> int: ...
@overload
def _microseconds(seconds: None) -> None: ...


def _microseconds(seconds: float | None) -> int | None:
    """Return a time as exactly as datetimes and floats hold one."""
    return None if seconds is None else round(seconds * 1_000_000)


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


class _Reading:
    """A consumer of its own, that the server forgets with its reader, and what it delivered and nobody has taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._name = f"read-{secrets.token_hex(8)}"
        self._buffer: Batch = []
        self._pull = Pull(connection, self._name, self._take, limit=BUFFER)
        self._wake = asyncio.Event()
        self._delivered = 0
        self._is_torn = False
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
        place = delivery(message.reply)
        if self._is_torn or place.consumer_sequence != self._delivered + 1:
            self._is_torn = True  # something was lost on the way here: it is read again, by another consumer
        else:
            self._delivered += 1
            self._buffer.append((message, place))
        self._wake.set()

    async def next(self) -> Batch:
        """Return the next messages; none when this consumer can bring no more."""
        while not self._buffer and not self._is_torn and not self._watch.done():
            self._wake.clear()
            await self._wake.wait()
        batch, self._buffer = self._buffer, []
        self._pull.release(len(batch))
        return batch

    async def close(self) -> None:
        """Let the server forget the consumer."""
        await end_tasks([self._watch], 1.0)
        await self._pull.close()
        if self._connection.is_connected:
            try:
                await request(self._connection, f"CONSUMER.DELETE.{TOOL_EVENTS}.{self._name}")
            except HookbusError:
                return  # it forgets it by itself, later
