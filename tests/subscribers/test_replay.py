"""Reading what was recorded."""

import asyncio
import itertools
import time
import tracemalloc
from contextlib import AsyncExitStack, aclosing

import pytest
from structlog.testing import capture_logs

from hookbus_broker import Connection
from hookbus_schemas import BusUnavailable, ConfigError, Outcome, encode
from hookbus_subscribers import EventFilter, JetStreamRefusal, StoredEvent, replay
from hookbus_subscribers import reading as reading_module
from hooking import Bus, make_event
from support import NatsServer, until


async def read(connection: Connection, *, since: float | None = None, start_sequence: int | None = None) -> list[int]:
    """Return the sequences of what is read to the end."""
    async with asyncio.timeout(5):
        reading = replay(connection, since=since, start_sequence=start_sequence)
        return [stored.sequence async for stored in reading]


async def test_all_events_are_read_in_their_order_and_once(bus: Bus) -> None:
    """Denied calls among them, then the reading ends by itself."""
    connection = await bus.streams()
    events = [make_event(number, Outcome.DENIED if number % 5 else Outcome.COMPLETED) for number in range(50)]
    await bus.record(connection, *events)
    async with asyncio.timeout(5):
        stored = [each async for each in replay(connection)]
    assert stored == [StoredEvent(number, event) for number, event in enumerate(events, start=1)]


async def test_more_events_than_are_read_ahead_come_all(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls overlap without a gap."""
    monkeypatch.setattr(reading_module, "BUFFER", 4)
    connection = await bus.streams()
    await bus.record(connection, *(make_event(number) for number in range(101)))
    assert await read(connection) == list(range(1, 102))


async def test_an_empty_stream_ends_at_once(bus: Bus) -> None:
    """There is nothing to wait for."""
    assert await read(await bus.streams()) == []


async def test_reading_begins_where_it_is_told(bus: Bus) -> None:
    """By place, or by the server's time."""
    connection = await bus.streams()
    await bus.record(connection, *(make_event(number) for number in range(3)))
    stored = await connection.jetstream().get_msg("TOOL_EVENTS", 3)
    assert stored.time
    assert await read(connection, start_sequence=2) == [2, 3]
    assert await read(connection, start_sequence=4) == []
    assert await read(connection, start_sequence=0) == [1, 2, 3]
    assert await read(connection, since=0.0) == [1, 2, 3]
    assert await read(connection, since=stored.time.timestamp()) == [3]
    assert await read(connection, since=time.time() + 60) == []


async def test_what_is_recorded_meanwhile_is_not_waited_for(bus: Bus) -> None:
    """A reading that does not follow ends with what was the last when it began."""
    connection = await bus.streams()
    await bus.record(connection, make_event(0), make_event(1))
    sequences = []
    async with asyncio.timeout(5):
        async for stored in replay(connection):
            sequences.append(stored.sequence)
            await bus.record(connection, make_event(len(sequences) + 1))
    assert sequences == [1, 2]


async def test_following_goes_on_with_what_comes(bus: Bus) -> None:
    """Until the reader has enough; then the server keeps no consumer."""
    connection = await bus.streams()
    await bus.record(connection, make_event(0))
    sequences = []
    async with asyncio.timeout(5), aclosing(replay(connection, follow=True)) as reading:
        async for stored in reading:
            sequences.append(stored.sequence)
            if len(sequences) == 5:
                break
            await bus.record(connection, make_event(len(sequences)))
    assert sequences == [1, 2, 3, 4, 5]
    assert await connection.jetstream().consumers_info("TOOL_EVENTS") == []


async def test_following_survives_the_death_of_the_server(own_server: NatsServer) -> None:
    """Without a gap and without a double."""
    async with AsyncExitStack() as stack:
        bus = Bus(own_server.url, stack)
        connection, sequences = await bus.streams(), list[int]()

        async def follow() -> None:
            async for stored in replay(connection, follow=True):
                sequences.append(stored.sequence)

        await bus.record(connection, make_event(0), make_event(1))
        following = asyncio.create_task(follow())
        await until(lambda: sequences == [1, 2])
        own_server.kill()
        await connection.wait_disconnected()
        own_server.start()
        await connection.wait_connected()
        await bus.record_when_ready(connection, make_event(2))
        await until(lambda: len(sequences) > 2)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
    assert sequences == [1, 2, 3]


async def test_a_reading_whose_consumer_is_removed_goes_on(bus: Bus) -> None:
    """As after a long pause of the reader, when the server has forgotten it."""
    connection, sequences = await bus.streams(), []
    await bus.record(connection, make_event(0))
    async with asyncio.timeout(5), aclosing(replay(connection, follow=True)) as reading:
        async for stored in reading:
            sequences.append(stored.sequence)
            if len(sequences) == 2:
                break
            for consumer in await connection.jetstream().consumers_info("TOOL_EVENTS"):
                await connection.jetstream().delete_consumer("TOOL_EVENTS", consumer.name)
            await bus.record(connection, make_event(1))
    assert sequences == [1, 2]


async def test_a_lost_delivery_is_noticed_and_read_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap in the consumer's own sequence means that something was dropped on the way."""
    connection = await bus.streams()
    await bus.record(connection, *(make_event(number) for number in range(6)))
    take, dropped = reading_module._Reading._take, list[object]()

    def lose_one(reading: object, message: object) -> None:
        if len(dropped) < 1 and ".3." in message.reply.partition("read-")[2]:  # type: ignore[attr-defined]
            dropped.append(message)
            return
        take(reading, message)  # type: ignore[arg-type]

    monkeypatch.setattr(reading_module._Reading, "_take", lose_one)
    assert await read(connection) == [1, 2, 3, 4, 5, 6]
    assert len(dropped) == 1


async def test_what_is_no_event_is_skipped_and_said_so(bus: Bus) -> None:
    """Also when it is the last."""
    connection = await bus.streams()
    await bus.record(connection, make_event(0))
    await connection.jetstream().publish("tool.after.e1.t", b"\xc1garbage")
    with capture_logs() as logs:
        assert await read(connection) == [1]
    assert [entry["sequence"] for entry in logs if entry["event"] == "event.unreadable"] == [2]


async def test_a_stream_that_is_not_there_is_said_so(bus: Bus) -> None:
    """At once."""
    with pytest.raises(JetStreamRefusal, match="stream not found") as raised:
        await read(await bus.connection())
    assert raised.value.code == 404


async def test_a_bus_that_is_gone_is_said_so(bus: Bus) -> None:
    """At once."""
    connection = await bus.connection()
    await connection.close()
    with pytest.raises(BusUnavailable):
        await read(connection)


@pytest.mark.parametrize(("since", "sequence"), [(1.0, 1), (float("nan"), None), (1e20, None), (3e10, None)])
async def test_a_start_that_cannot_mean_anything_is_refused(bus: Bus, since: float, sequence: int | None) -> None:
    """Before the bus is asked."""
    with pytest.raises(ConfigError, match="since"):
        await read(await bus.connection(), since=since, start_sequence=sequence)


async def test_reading_ends_before_what_was_stored_at_the_end_or_later(bus: Bus) -> None:
    """Exact on both sides, by the server's time; a reading that follows has no end."""
    connection = await bus.streams()
    await bus.record(connection, *(make_event(number) for number in range(4)))
    times = [(await connection.jetstream().get_msg("TOOL_EVENTS", number)).time for number in (2, 4)]
    since, until_then = (at.timestamp() for at in times if at)
    async with asyncio.timeout(5):
        found = [one.sequence async for one in replay(connection, since=since, until=until_then)]
        assert found == [2, 3]
        assert [one async for one in replay(connection, until=0.0)] == []
        last = (await connection.jetstream().get_msg("TOOL_EVENTS", 4)).time
        assert last is not None
        just_after = last.timestamp() + 2e-6
        assert [one async for one in replay(connection, since=just_after)] == []
        with pytest.raises(ConfigError, match="give one"):
            await anext(replay(connection, until=0.0, follow=True))


@pytest.mark.parametrize(
    ("wanted", "sequences"),
    [
        pytest.param(EventFilter(), [1, 2, 3, 4], id="all"),
        pytest.param(EventFilter(session="s1"), [1, 2], id="session"),
        pytest.param(EventFilter(session=""), [], id="no session"),
        pytest.param(EventFilter(sender="bob"), [2, 4], id="sender"),
        pytest.param(EventFilter(tool="db_*"), [1, 4], id="tool"),
        pytest.param(EventFilter(tool="shell"), [2, 3], id="tool by its name"),
        pytest.param(EventFilter(tool="shell", executor="e1"), [2, 3], id="tool and executor"),
        pytest.param(EventFilter(executor="e2"), [], id="executor"),
        pytest.param(EventFilter(outcome=Outcome.DENIED), [3], id="outcome"),
        pytest.param(EventFilter(outcome=Outcome.COMPLETED, tool="*ell"), [2], id="outcome of those that ran"),
        pytest.param(EventFilter(session="s2", tool="db_*", sender="bob"), [4], id="all of them"),
    ],
)
async def test_a_filter_passes_over_what_is_not_wanted(bus: Bus, wanted: EventFilter, sequences: list[int]) -> None:
    """By session, sender, tool and outcome."""
    connection = await bus.streams()
    rows = [("s1", "ann", "db_drop"), ("s1", "bob", "shell"), ("s2", "ann", "shell"), ("s2", "bob", "db_drop")]
    events = []
    for number, (session, sender, tool) in enumerate(rows):
        event = make_event(number, Outcome.DENIED if number == 2 else Outcome.COMPLETED)
        about = {"session_id": session, "sender_id": sender, "tool_name": tool}
        events.append(event.model_copy(update={"context": event.context.model_copy(update=about)}))
    await bus.record(connection, *events)
    async with asyncio.timeout(5):
        assert [one.sequence async for one in replay(connection, wanted=wanted)] == sequences


async def test_what_another_executor_published_is_no_event(bus: Bus) -> None:
    """Nobody can speak for another in the record."""
    connection = await bus.streams()
    await bus.record(connection, make_event(0))
    await connection.jetstream().publish("tool.after.e2.t", encode(make_event(1)))
    with capture_logs() as logs:
        assert await read(connection) == [1]
    assert [entry["sequence"] for entry in logs if entry["event"] == "event.unreadable"] == [2]


async def test_a_long_record_is_read_without_being_held(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is passed over and whatever is handed on is forgotten: a quarter of it never is in memory at once."""
    monkeypatch.setattr(reading_module, "BUFFER", 100)
    connection, size, count = await bus.streams(), 10_000, 3000
    events = (
        make_event(number, arguments_json=f'"{"x" * size}"', session_id=f"s{number % 2}") for number in range(count)
    )
    for batch in iter(lambda: list(itertools.islice(events, 200)), []):
        await asyncio.gather(*(bus.record(connection, event) for event in batch))
    wanted = 0
    tracemalloc.start()
    try:
        async with asyncio.timeout(60):
            async for _ in replay(connection, wanted=EventFilter(session="s1")):
                wanted += 1
                if wanted % 50 == 0:
                    await connection.barrier()  # a slow reader: what the server was asked for has come
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert wanted == count / 2
    assert peak < size * count / 4
