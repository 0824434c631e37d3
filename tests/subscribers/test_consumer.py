"""Following events: at least once, whatever dies."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from children import Child
from hookbus_schemas import ConfigError, Outcome, encode, subjects
from hookbus_subscribers import Consumed, Consumer
from hookbus_subscribers.durable import durable_name
from hooking import Bus, Event, make_event
from support import NatsServer, until

CHILD = """
import asyncio, sys
from hookbus_broker import BusSettings, connect
from hookbus_subscribers import Consumer

async def main():
    async def handle(event):
        if event.event_id == "event-3":
            print("hanging", flush=True)
            await asyncio.Event().wait()
        print(event.event_id, flush=True)

    connection = await connect(BusSettings(url=sys.argv[1]), name="child")
    async with Consumer(connection, "audit", handle, ack_wait=1.0):
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Seen:
    """A handler that keeps what it was given, and fails where a test says so."""

    def __init__(self, fails: dict[str, int] | None = None) -> None:
        self.ids: list[str] = []
        self.fails = fails or {}

    async def __call__(self, event: Event) -> None:
        """Take one event."""
        self.ids.append(event.event_id)
        if self.fails.get(event.event_id, 0):
            self.fails[event.event_id] -= 1
            raise RuntimeError("not yet")


async def test_events_are_handled_in_their_order_and_once(bus: Bus) -> None:
    """More than fit in flight, of both kinds."""
    operator, seen = await bus.streams(), Seen()
    outcomes = [Outcome.COMPLETED, Outcome.DENIED, Outcome.FAILED]
    events = [make_event(number, outcomes[number % 3]) for number in range(100)]
    async with Consumer(await bus.connection(), "audit", seen, max_in_flight=8) as consumer:
        await bus.record(operator, *events)
        await until(lambda: consumer.consumed == Consumed(handled=100))
    assert seen.ids == [event.event_id for event in events]


async def test_the_next_process_goes_on_where_the_last_stopped(bus: Bus) -> None:
    """A durable consumer remembers what was acknowledged."""
    operator, first, second = await bus.streams(), Seen(), Seen()
    async with Consumer(await bus.connection(), "audit", first):
        await bus.record(operator, *(make_event(number) for number in range(3)))
        await until(lambda: len(first.ids) == 3)
    await bus.record(operator, make_event(3))
    async with Consumer(await bus.connection(), "audit", second):
        await until(lambda: second.ids)
    assert second.ids == ["event-3"]


async def test_processes_that_share_the_name_share_the_events(bus: Bus) -> None:
    """Each event goes to one of them."""
    operator, one, two = await bus.streams(), Seen(), Seen()
    async with (
        Consumer(await bus.connection(), "audit", one, max_in_flight=2),
        Consumer(await bus.connection(), "audit", two, max_in_flight=2),
    ):
        await bus.record(operator, *(make_event(number) for number in range(60)))
        await until(lambda: len(one.ids) + len(two.ids) == 60)
    assert sorted(one.ids + two.ids) == sorted(f"event-{number}" for number in range(60))


async def test_no_more_are_taken_than_may_be_in_flight(bus: Bus) -> None:
    """The rest stays on the server: a slow handler does not fill the memory."""
    operator, gate = await bus.streams(), asyncio.Event()
    most = handled = 0

    async def handle(event: Event) -> None:
        nonlocal handled, most
        most = max(most, len(consumer._held))
        await gate.wait()
        handled += 1

    await bus.record(operator, *(make_event(number) for number in range(50)))
    async with Consumer(await bus.connection(), "audit", handle, max_in_flight=5, concurrency=2) as consumer:
        await until(lambda: len(consumer._held) == 5)
        await bus.record(operator, make_event(50))
        assert len(consumer._held) == 5
        gate.set()
        await until(lambda: handled == 51)
    assert most <= 5


async def test_an_event_whose_handler_failed_comes_again(bus: Bus) -> None:
    """With the same id, later, while others go on."""
    operator, seen = await bus.streams(), Seen({"event-0": 2})
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", seen, retry_delay=0.01) as consumer:
            await bus.record(operator, make_event(0), make_event(1))
            await until(lambda: consumer.consumed == Consumed(handled=2, failed=2, redelivered=2))
    assert seen.ids.count("event-0") == 3
    assert [entry["attempts"] for entry in logs if entry["event"] == "event.failed"] == [1, 2]


async def test_an_event_that_always_fails_is_given_up_and_said_so(bus: Bus) -> None:
    """One poisoned event does not hold up the others for ever."""
    operator, seen = await bus.streams(), Seen({"event-0": 99})
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", seen, retry_delay=0.01, max_deliver=3) as consumer:
            await bus.record(operator, make_event(0), make_event(1))
            await until(lambda: consumer.consumed == Consumed(handled=1, failed=2, set_aside=1, redelivered=2))
            info = await operator.jetstream().consumer_info("TOOL_EVENTS", "audit")
            assert info.num_pending == 0
    assert [entry["event_id"] for entry in logs if entry["event"] == "event.set_aside"] == ["event-0"]


async def test_a_body_that_is_no_event_is_given_up_at_once(bus: Bus) -> None:
    """It would be none the next time either."""
    operator, seen = await bus.streams(), Seen()
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", seen) as consumer:
            await operator.jetstream().publish("tool.after.e1.t", b"\xc1garbage")
            await bus.record(operator, make_event(1))
            await until(lambda: consumer.consumed == Consumed(handled=1, set_aside=1, unreadable=1))
    assert [entry["sequence"] for entry in logs if entry["event"] == "event.set_aside"] == [1]


async def test_an_event_about_another_executors_call_is_given_up_at_once(bus: Bus) -> None:
    """Permissions vouch for the subject alone; what its body says of others nobody vouches for."""
    operator, seen = await bus.streams(), Seen()
    forged = make_event(0, Outcome.DENIED)
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", seen) as consumer:
            await operator.jetstream().publish(subjects.denied("e2", "t"), encode(forged))
            await bus.record(operator, make_event(1, Outcome.DENIED))
            await until(lambda: consumer.consumed == Consumed(handled=1, set_aside=1, unreadable=1))
    assert seen.ids == ["event-1"]
    problems = [entry["problem"] for entry in logs if entry["event"] == "event.set_aside"]
    assert problems == ["executor_id is 'e1', but it was published on tool.denied.e2.t"]


async def test_a_handler_that_hangs_is_ended_and_its_event_comes_again(bus: Bus) -> None:
    """Otherwise one event would hold its place for ever."""
    operator, ids = await bus.streams(), []

    async def handle(event: Event) -> None:
        ids.append(event.event_id)
        if len(ids) == 1:
            await asyncio.Event().wait()

    async with Consumer(await bus.connection(), "audit", handle, handler_timeout=0.05, retry_delay=0.01) as consumer:
        await bus.record(operator, make_event(0))
        await until(lambda: consumer.consumed.handled)
    assert consumer.consumed == Consumed(handled=1, failed=1, redelivered=1)
    assert ids == ["event-0", "event-0"]


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), StopAsyncIteration()])
async def test_whatever_a_handler_raises_the_consumer_lives_on(bus: Bus, error: BaseException) -> None:
    """It counts as a failure like any other."""
    operator, errors = await bus.streams(), [error]

    async def handle(event: Event) -> None:
        if errors:
            raise errors.pop()

    async with Consumer(await bus.connection(), "audit", handle, retry_delay=0.01) as consumer:
        await bus.record(operator, make_event(0))
        await until(lambda: consumer.consumed == Consumed(handled=1, failed=1, redelivered=1))


async def test_what_is_no_delivery_takes_no_place(bus: Bus) -> None:
    """Somebody who may publish to an inbox cannot stop the consumer."""
    operator, seen = await bus.streams(), Seen()
    connection = await bus.connection()
    async with Consumer(connection, "audit", seen, max_in_flight=2):
        await bus.record(operator, make_event(0))
        await until(lambda: seen.ids)
        (inbox,) = {sub.subject for sub in connection._subs.values() if sub.subject.endswith(".*")}
        for _ in range(5):
            await operator.publish(inbox.replace("*", "0"), b"forged")
        await bus.record(operator, *(make_event(number) for number in range(1, 6)))
        await until(lambda: len(seen.ids) == 6)
    assert seen.ids == [f"event-{number}" for number in range(6)]


async def test_what_waits_here_does_not_come_twice(bus: Bus) -> None:
    """The server is told that a slow handler is still at it."""
    operator, gate, seen = await bus.streams(), asyncio.Event(), Seen()

    async def handle(event: Event) -> None:
        await seen(event)
        await gate.wait()

    connection = await bus.connection()
    async with Consumer(connection, "audit", handle, ack_wait=0.9) as consumer:
        await bus.record(operator, make_event(0), make_event(1))
        await until(lambda: seen.ids)
        sent = connection.stats["out_msgs"]
        await until(lambda: connection.stats["out_msgs"] >= sent + 8)  # four rounds: longer than ack_wait
        gate.set()
        await until(lambda: consumer.consumed.handled == 2)
    assert (seen.ids, consumer.consumed.redelivered) == (["event-0", "event-1"], 0)


async def test_events_of_a_killed_process_come_to_the_next(bus: Bus) -> None:
    """Killed in the middle of a batch: what it had not acknowledged is not lost."""
    assert bus.settings.url
    operator, seen = await bus.streams(), Seen()
    await bus.record(operator, *(make_event(number) for number in range(6)))
    async with Child(CHILD, bus.settings.url) as child:
        lines: list[str] = []
        while "hanging" not in lines:
            lines.append(await child.line())
        await child.end(signal.SIGKILL)
    done = [line for line in lines if line.startswith("event-")]
    assert done == ["event-0", "event-1", "event-2"]
    async with Consumer(await bus.connection(), "audit", seen, ack_wait=1.0) as consumer:
        await until(lambda: set(done + seen.ids) == {f"event-{number}" for number in range(6)})
        await until(lambda: consumer.consumed.handled == len(seen.ids))
    assert {"event-3", "event-4", "event-5"} <= set(seen.ids)


async def test_consuming_goes_on_after_the_server_was_killed(own_server: NatsServer) -> None:
    """Pulls are lost with the connection, and asked for again at once."""
    async with AsyncExitStack() as stack:
        bus, seen = Bus(own_server.url, stack), Seen()
        operator = await bus.streams()
        async with Consumer(await bus.connection(), "audit", seen) as consumer:
            await bus.record(operator, make_event(0))
            await until(lambda: consumer.consumed.handled == 1)
            own_server.kill()
            await operator.wait_disconnected()
            own_server.start()
            await operator.wait_connected()
            await bus.record_when_ready(operator, make_event(1))
            await until(lambda: "event-1" in seen.ids)
    assert set(seen.ids) == {"event-0", "event-1"}


async def test_a_consumer_that_was_deleted_is_made_again(bus: Bus) -> None:
    """An operator's slip does not end the record; what it had acknowledged comes again."""
    operator, seen = await bus.streams(), Seen()
    async with Consumer(await bus.connection(), "audit", seen):
        await bus.record(operator, make_event(0))
        await until(lambda: seen.ids)
        await operator.jetstream().delete_consumer("TOOL_EVENTS", "audit")
        await bus.record(operator, make_event(1))
        await until(lambda: "event-1" in seen.ids)
    assert seen.ids == ["event-0", "event-0", "event-1"]


async def test_stopping_finishes_what_was_taken(bus: Bus) -> None:
    """And acknowledges it."""
    operator, gate, seen = await bus.streams(), asyncio.Event(), Seen()

    async def handle(event: Event) -> None:
        await gate.wait()
        await seen(event)

    consumer = Consumer(await bus.connection(), "audit", handle)
    await consumer.start()
    await bus.record(operator, make_event(0), make_event(1))
    await until(lambda: len(consumer._held) == 2)
    stopping = asyncio.create_task(consumer.stop())
    await until(lambda: consumer._puller.done())
    await bus.record(operator, make_event(2))
    gate.set()
    async with asyncio.timeout(5):
        await stopping
    assert seen.ids == ["event-0", "event-1"]
    info = await operator.jetstream().consumer_info("TOOL_EVENTS", "audit")
    assert (info.num_ack_pending, info.num_pending) == (0, 1)


async def test_stopping_gives_back_what_does_not_finish(bus: Bus) -> None:
    """At once, not after the time that a dead process would take."""
    operator, seen = await bus.streams(), Seen()

    async def handle(event: Event) -> None:
        await asyncio.Event().wait()

    hung = Consumer(await bus.connection(), "audit", handle, drain_timeout=0.05)
    await hung.start()
    await bus.record(operator, make_event(0), make_event(1))
    await until(lambda: len(hung._held) == 2)
    async with asyncio.timeout(5):
        await hung.stop()
    async with Consumer(await bus.connection(), "audit", seen):
        await until(lambda: len(seen.ids) == 2)
    assert sorted(seen.ids) == ["event-0", "event-1"]


async def test_a_log_that_cannot_be_written_ends_no_consuming(broken_log: None, bus: Bus) -> None:
    """An event whose handler failed comes again, and those behind it come."""
    operator, seen = await bus.streams(), Seen(fails={"event-0": 1})
    await bus.record(operator, make_event(0), make_event(1))
    async with Consumer(await bus.connection(), "audit", seen, retry_delay=0.01):
        await until(lambda: len(seen.ids) == 3)
    assert sorted(seen.ids) == ["event-0", "event-0", "event-1"]


async def test_only_the_subjects_that_were_asked_for_come(bus: Bus) -> None:
    """And a later process may ask for others."""
    operator, one, two = await bus.streams(), Seen(), Seen()
    await bus.record(operator, make_event(0), make_event(1, Outcome.DENIED))
    connection = await bus.connection()
    async with Consumer(connection, "audit", one, subjects=["tool.after.>"]):
        await until(lambda: one.ids == ["event-0"])
    async with Consumer(connection, "audit", two, subjects=["tool.denied.>"]):
        await bus.record(operator, make_event(2, Outcome.DENIED))
        await until(lambda: "event-2" in two.ids)
    assert one.ids == ["event-0"]


async def test_a_new_durable_may_begin_later_than_the_first_event(bus: Bus) -> None:
    """And one that the server knows goes on where it stood, whatever is asked for."""
    operator, one, two = await bus.streams(), Seen(), Seen()
    await bus.record(operator, make_event(0), make_event(1))
    stored = await operator.jetstream().get_msg("TOOL_EVENTS", 2)
    assert stored.time
    async with Consumer(await bus.connection(), "audit", one, since=stored.time.timestamp()):
        await until(lambda: one.ids == ["event-1"])
    await bus.record(operator, make_event(2))
    async with Consumer(await bus.connection(), "audit", two, since=0.0, ack_wait=20.0):
        await until(lambda: two.ids == ["event-2"])
    with pytest.raises(ConfigError, match="since"):
        Consumer(operator, "audit", one, since=float("nan"))


@pytest.mark.parametrize("name", ["plain", "plugin:a.b", "ü *>/\\", "=", "a b"])
async def test_every_hook_name_makes_a_durable_name(bus: Bus, name: str) -> None:
    """The server takes escaped names."""
    operator, seen = await bus.streams(), Seen()
    async with Consumer(await bus.connection(), durable_name(name), seen):
        await bus.record(operator, make_event(0))
        await until(lambda: seen.ids)
    assert (await operator.jetstream().consumer_info("TOOL_EVENTS", durable_name(name))).name == durable_name(name)


def test_a_name_too_long_for_a_durable_is_refused() -> None:
    """Better than a hook that is silently not told."""
    assert subjects.token("ü" * 100)
    with pytest.raises(ConfigError, match="too long a name"):
        durable_name("ü" * 100)


@pytest.mark.parametrize("option", ["concurrency", "max_in_flight", "max_deliver", "ack_wait", "handler_timeout"])
async def test_numbers_that_cannot_mean_anything_are_refused(bus: Bus, option: str) -> None:
    """At once."""
    with pytest.raises(ConfigError):
        Consumer(await bus.connection(), "audit", Seen(), **{option: 0})  # type: ignore[arg-type]
