"""Reading recorded events in their order, each once. Below it is `reading`; `consumer` is for work that goes on."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog
from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_broker.log import say
from hookbus_schemas import InvalidMessage, ToolAfterEvent, ToolDeniedEvent
from hookbus_subscribers.asked import read_event
from hookbus_subscribers.copies import Copies
from hookbus_subscribers.delivery import Delivery
from hookbus_subscribers.event_filter import ALL, EventFilter
from hookbus_subscribers.reading import last_sequence, read
from hookbus_subscribers.whole import whole_if_stored

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event, its place in the stream, and its body as it was published."""

    sequence: int
    event: ToolAfterEvent | ToolDeniedEvent
    body: bytes = field(default=b"", repr=False, compare=False)


async def replay(
    connection: Connection,
    *,
    since: float | None = None,
    until: float | None = None,
    start_sequence: int | None = None,
    follow: bool = False,
    wanted: EventFilter = ALL,
    whole: bool = False,
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
        whole: whether to fetch the texts that are too large for an event, and put them in their places.

    Raises:
        ConfigError: both starts are given, or one cannot mean anything; `until` and `follow` are.
        BusUnavailable, JetStreamRefusal, PermissionRefused: the stream cannot be read.
    """
    texts, copies = wanted.texts, Copies()
    reading = read(
        connection,
        since=since,
        until=until,
        start_sequence=start_sequence,
        follow=follow,
        subjects=wanted.subjects,
    )
    async with aclosing(reading) as batches:
        async for batch in batches:
            for message, place in batch:
                if texts and not all(text in message.data for text in texts):
                    continue
                event = _event(message, place)
                if event is not None and wanted.wants(event) and not copies.meets_event(event, message.data):
                    if whole:
                        event = await whole_if_stored(connection, event)
                    yield StoredEvent(place.sequence, event, message.data)


async def newest(
    connection: Connection, count: int, wanted: EventFilter = ALL, *, whole: bool = False
) -> tuple[list[StoredEvent], int]:
    """Return the newest events that are wanted, oldest first, and the place up to which there are no more.

    Raises:
        BusUnavailable, JetStreamRefusal, PermissionRefused: the stream cannot be read.
    """
    last = await last_sequence(connection)
    found: deque[StoredEvent] = deque(maxlen=count)
    start = last - count + 1 if wanted == ALL else None
    async with aclosing(replay(connection, start_sequence=start, wanted=wanted, whole=whole)) as stored:
        async for one in stored:
            if one.sequence > last:
                break
            found.append(one)
    return list(found), last


def _event(message: Msg, place: Delivery) -> ToolAfterEvent | ToolDeniedEvent | None:
    try:
        return read_event(message.data, message.subject)
    except InvalidMessage as error:
        say(log.error, "event.unreadable", sequence=place.sequence, problem=str(error))
        return None
