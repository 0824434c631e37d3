"""Events that a consumer cannot handle: set aside, seen, handed back, never lost."""

import asyncio
import signal
from functools import partial

import pytest
from structlog.testing import capture_logs

from children import Child
from hookbus_broker import SET_ASIDE, Connection, put
from hookbus_schemas import BusUnavailable, Outcome
from hookbus_subscribers import Consumed, Consumer, EventFilter
from hookbus_subscribers.retrying import Retried, retry
from hookbus_subscribers.set_aside import SetAside, all_set_aside, set_aside
from hooking import Bus, Event, make_event
from support import until

BROKEN = {"event-0", "event-2"}


async def fail(event: Event) -> None:
    """Fail on some events, always."""
    if event.event_id in BROKEN:
        raise ValueError(f"cannot take\n{event.event_id} \ud800")


async def listed(connection: Connection, durable: str | None = None) -> list[SetAside]:
    """Return what is set aside, its times left out."""
    return [entry.model_copy(update={"at_ms": 0}) async for entry in all_set_aside(connection, durable)]


def failed(number: int, sequence: int, attempts: int = 2, durable: str = "audit") -> SetAside:
    """Return what is kept of an event on which `fail` failed."""
    error = rf"ValueError: cannot take event-{number} \ud800"
    return SetAside(durable=durable, sequence=sequence, event_id=f"event-{number}", attempts=attempts, error=error)


async def test_events_that_always_fail_are_set_aside_and_the_others_handled(bus: Bus) -> None:
    """An operator sees which, how often it was tried and why; the consumer goes on."""
    operator = await bus.streams()
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", fail, retry_delay=0.01, max_deliver=2) as consumer:
            await bus.record(operator, *(make_event(number) for number in range(4)))
            await until(lambda: consumer.consumed == Consumed(handled=2, failed=2, set_aside=2, redelivered=2))
            assert (await operator.jetstream().consumer_info("TOOL_EVENTS", "audit")).num_pending == 0
    assert sorted(await listed(operator), key=lambda entry: entry.sequence) == [failed(0, 1), failed(2, 3)]
    assert {entry["event_id"] for entry in logs if entry["event"] == "event.set_aside"} == BROKEN


async def test_a_body_that_is_no_event_is_set_aside_at_once(bus: Bus) -> None:
    """It would be none the next time either."""
    operator = await bus.streams()
    async with Consumer(await bus.connection(), "audit", fail) as consumer:
        await operator.jetstream().publish("tool.after.e1.t", b"\xc1garbage")
        await until(lambda: consumer.consumed == Consumed(set_aside=1, unreadable=1))
        (entry,) = await listed(operator)
        assert (entry.sequence, entry.event_id, entry.attempts) == (1, "", 1)
        assert entry.error.startswith("event of 8 bytes is not msgpack")
        came, problem = await retry(operator, entry)
    assert (came, problem, await listed(operator)) == (Retried.FAILED, entry.error, [entry])


async def test_each_consumer_has_its_own(bus: Bus) -> None:
    """Whatever its name is made of."""
    operator = await bus.streams()
    await bus.record(operator, make_event(0))
    for durable in ("audit", "hook-=20"):
        consumer = Consumer(await bus.connection(), durable, fail, max_deliver=1)
        async with consumer:
            await until(partial(getattr, consumer.consumed, "set_aside"))
    both = [failed(0, 1, 1), failed(0, 1, 1, "hook-=20")]
    assert (await listed(operator), await listed(operator, "hook-=20")) == (both, both[1:])


async def test_more_are_listed_than_one_answer_of_the_server_holds(bus: Bus) -> None:
    """An outage of what a handler needs can set very many aside."""
    operator = await bus.streams()
    bodies = [f"$KV.{SET_ASIDE}.audit.{number}" for number in range(1, 1101)]
    for subject in bodies:
        operator.publish_nowait(subject, b"{")
    await operator.barrier()
    found = await listed(operator)
    assert [entry.sequence for entry in found] == list(range(1, 1101))
    assert found[0] == SetAside(durable="audit", sequence=1, error="why it was set aside cannot be read")


async def test_an_event_that_cannot_be_set_aside_comes_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up only when an operator can see it: here the bucket is made late."""
    monkeypatch.setattr("hookbus_subscribers.consumer.RETRY_WAIT_MAX", 0.01)
    operator = await bus.streams()
    js = operator.jetstream()
    config = (await js.stream_info(f"KV_{SET_ASIDE}")).config
    await js.delete_stream(f"KV_{SET_ASIDE}")
    with capture_logs() as logs:
        async with Consumer(await bus.connection(), "audit", fail, max_deliver=1) as consumer:
            await bus.record(operator, make_event(0), make_event(1))
            await until(lambda: consumer.consumed.failed >= 3)
            assert (consumer.consumed.handled, consumer.consumed.set_aside) == (1, 0)
            await js.add_stream(config)
            await until(lambda: consumer.consumed.set_aside == 1)
            (entry,) = await listed(operator)
            assert entry == failed(0, 1, entry.attempts)
            assert entry.attempts > 3
    assert [entry["sequence"] for entry in logs if entry["event"] == "event.not_set_aside"][:3] == [1, 1, 1]


KILLED = """
import asyncio, os, signal, sys
from hookbus_broker import BusSettings, connect
from hookbus_subscribers import Consumer, consumer

async def handle(event):
    raise ValueError("never")

async def then_die(*args, **kwargs):
    await kept(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

kept, consumer.set_aside = consumer.set_aside, then_die

async def main():
    connection = await connect(BusSettings(url=sys.argv[1]), name="child")
    async with Consumer(connection, "audit", handle, ack_wait=0.5, max_deliver=1):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_killed_between_setting_aside_and_giving_up_it_is_listed_once(bus: Bus) -> None:
    """The event comes again to the next process, which sees that it is set aside and does not handle it."""
    assert bus.settings.url
    operator = await bus.streams()
    await bus.record(operator, make_event(0))
    async with Child(KILLED, bus.settings.url) as child:
        async with asyncio.timeout(15):
            assert await child.process.wait() == -signal.SIGKILL
    handled: list[str] = []

    async def handle(event: Event) -> None:
        handled.append(event.event_id)

    async with Consumer(await bus.connection(), "audit", handle, ack_wait=0.5, max_deliver=1) as consumer:
        await bus.record(operator, make_event(1))
        await until(lambda: consumer.consumed.redelivered and not consumer._held)
        info = await operator.jetstream().consumer_info("TOOL_EVENTS", "audit")
    assert (info.num_pending, info.num_ack_pending, handled) == (0, 0, ["event-1"])
    assert [(entry.sequence, entry.error) for entry in await listed(operator)] == [(1, "ValueError: never")]


async def test_an_operator_hands_events_back_when_the_handler_is_mended(bus: Bus) -> None:
    """What is handled is set aside no longer, what fails again stays; the record is as it was."""
    operator, mended = await bus.streams(), asyncio.Event()

    async def handle(event: Event) -> None:
        if not (mended.is_set() and event.event_id == "event-0"):
            await fail(event)

    async with Consumer(await bus.connection(), "audit", handle, retry_delay=0.01, max_deliver=2) as consumer:
        await bus.record(operator, *(make_event(number) for number in range(3)))
        await until(lambda: consumer.consumed.set_aside == 2)
        mended.set()
        first, second = sorted(await listed(operator), key=lambda entry: entry.sequence)
        assert await retry(operator, first) == (Retried.HANDLED, "")
        assert await retry(operator, second) == (Retried.FAILED, second.error)
        assert consumer.consumed.handled == 2
        assert await listed(operator) == [second]
    assert (await operator.jetstream().stream_info("TOOL_EVENTS")).state.messages == 3


async def test_an_event_whose_consumer_does_not_answer_stays_set_aside(bus: Bus) -> None:
    """None runs, it is too slow, or it stops meanwhile."""
    operator, begun = await bus.streams(), asyncio.Event()

    async def hang(event: Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    await bus.record(operator, make_event(0))
    await set_aside(operator, "audit", 1, event_id="event-0")
    (entry,) = await listed(operator)
    with pytest.raises(BusUnavailable, match="no process of consumer audit is running"):
        await retry(operator, entry)
    consumer = Consumer(await bus.connection(), "audit", hang, wanted=EventFilter(session="other"))
    async with consumer:
        await until(lambda: consumer.consumed.passed_over)
        with pytest.raises(BusUnavailable, match=r"consumer audit did not answer about event 1 within 0\.3 s"):
            await retry(operator, entry, 0.3)
        assert begun.is_set()
    assert await listed(operator) == [entry]


async def test_an_event_that_has_expired_is_set_aside_no_longer(bus: Bus) -> None:
    """There is nothing to hand back."""
    operator = await bus.streams()
    await set_aside(operator, "audit", 7)
    (entry,) = await listed(operator)
    assert await retry(operator, entry) == (Retried.GONE, "")
    assert await listed(operator) == []


async def test_a_consumer_answers_to_inboxes_alone(bus: Bus) -> None:
    """Whoever may hand an event back cannot make the consumer speak anywhere else."""
    operator, seen = await bus.streams(), []
    heard = await operator.subscribe("tool.before.x.y")

    async def handle(event: Event) -> None:
        seen.append(event.event_id)

    async with Consumer(await bus.connection(), "audit", handle) as consumer:
        await bus.record(operator, make_event(0, Outcome.DENIED))
        await until(lambda: consumer.consumed.handled == 1)
        stored = await operator.jetstream().get_msg("TOOL_EVENTS", 1)
        assert stored.data
        subject = f"consumers.retry.audit.{stored.subject}"
        await operator.publish(subject, stored.data, "tool.before.x.y")
        answer = await operator.request(subject, stored.data, 5)
    assert (answer.data, seen, heard.pending_msgs) == (b'{"problem": ""}', ["event-0", "event-0"], 0)


async def test_only_wanted_events_are_handled(bus: Bus) -> None:
    """By tool, outcome, session, sender or executor; the others are acknowledged and do not come again."""
    operator, seen = await bus.streams(), []

    async def handle(event: Event) -> None:
        seen.append(event.event_id)

    wanted = EventFilter(tool="db_*", outcome=Outcome.COMPLETED, executor="e1")
    async with Consumer(await bus.connection(), "audit", handle, wanted=wanted) as consumer:
        await bus.record(
            operator,
            make_event(0, tool_name="db_query"),
            make_event(1, tool_name="shell"),
            make_event(2, Outcome.DENIED, tool_name="db_query"),
            make_event(3, tool_name="db_query", executor_id="e2"),
            make_event(4, tool_name="db_drop"),
        )
        await until(lambda: consumer.consumed == Consumed(handled=2, passed_over=3))
    info = await operator.jetstream().consumer_info("TOOL_EVENTS", "audit")
    assert (seen, info.num_ack_pending, info.num_pending) == (["event-0", "event-4"], 0, 0)


async def test_what_others_write_into_the_bucket_is_listed_as_well_as_can_be(bus: Bus) -> None:
    """Nothing that is there is hidden."""
    operator = await bus.streams()
    for key in ("audit.x", "=ZZ.1", "a.b.3"):
        await put(operator, SET_ASIDE, key, b'{"v": 1, "durable": "other", "sequence": 9, "error": "e"}')
    found = [(entry.durable, entry.sequence, entry.error) for entry in await listed(operator)]
    odd = "not a key that a consumer writes"
    assert found == [("audit.x", 0, odd), ("=ZZ.1", 0, odd), ("a.b.3", 0, odd)]
