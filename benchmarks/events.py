"""What the record costs: writing an event, reading events back, and what the caller pays of its own thread.

Each side gets the same. `publish_async` publishes what the outbox has published, subject, headers and body, under new
ids, with nats-py's own window, and waits for every future. The outbox does more for its figure: each call is admitted
and ends, as a call that runs does, so it is redacted, encoded and written to the journal twice, and joins the chain.

The `fetch(500)` loop reads the same stream as one would write it, each message acknowledged, with hookbus's own
decoder: both sides hand out the same checked events, and that is what the bar is about. Once more with bare msgpack,
whose maps nobody has checked, it says what checking costs.

What the caller pays is the time that its thread is on the processor in the very calls that `execute` makes for the
record. They never wait, so nothing else of the process runs in between; the sender works between calls, uncounted. The
clock, in the row below, counts waiting for the disk and for other processes too. The line in the log is off.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from benchmarks.admission import ARGUMENTS, EXECUTOR
from benchmarks.report import Bar, Row
from benchmarks.rounds import Measured, rates
from hookbus_broker import TOOL_EVENTS, BusSettings, Connection, connect, ensure_streams, open_bus
from hookbus_executor import Admission, Executor
from hookbus_executor.outbox import Outbox
from hookbus_executor.record import Recorder
from hookbus_executor.running import Ran
from hookbus_schemas import HookDecision, Outcome, ToolHookContext, decode_event
from hookbus_schemas.decision import Verdict
from hookbus_schemas.times import now_ms
from hookbus_subscribers import replay

EVENTS = 10_000
"""Events of one round: as many as an outbox may hold by default."""

CALLS = 1000
"""Calls of one round whose cost to the caller is taken."""

AT_ONCE = 16
"""Calls that end in one turn of the loop."""

FETCHED = 500
TIMEOUT = 60.0
"""Seconds that one side has for one round."""

DECISIONS = (HookDecision(hook="h0", decision=Verdict.ALLOW, revision=7, elapsed_ms=0.7),)
"""As in the table of asking: one hook, the same arguments, the same result."""

RESULT = "done"


@dataclass(slots=True)
class Stage:
    """A stream, an executor's outbox and recorder, a plain client, and what is in the stream."""

    connection: Connection
    outbox: Outbox
    recorder: Recorder
    client: Client
    published: list[Msg] = field(default_factory=list)

    def record(self, admission: Admission) -> None:
        """Record one call, from its admission to its end, as `execute` does."""
        with self.outbox.place():
            admitted = self.recorder.admitted(admission)
            self.recorder.ran(admitted, admission, None, Ran(Outcome.COMPLETED, RESULT, 0.0123))

    async def record_all(self) -> None:
        """Record calls, and wait until the stream has acknowledged all."""
        for number in range(EVENTS):
            self.record(_admission())
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)  # calls wait for their tools: the sender has its turn
        await self.outbox.flush(TIMEOUT)

    async def publish_all(self) -> None:
        """Publish the same with nats-py, and wait for all futures."""
        js, futures = self.client.jetstream(), []
        async with asyncio.timeout(TIMEOUT):
            for message in self.published:
                headers = {**(message.headers or {}), "Nats-Msg-Id": secrets.token_hex(16)}
                futures.append(await js.publish_async(message.subject, message.data, headers=headers))
            assert not any(ack.duplicate for ack in await asyncio.gather(*futures))

    async def replay(self) -> None:
        """Read every event with hookbus."""
        count = 0
        async with asyncio.timeout(TIMEOUT), aclosing(replay(self.connection)) as events:
            async for _ in events:
                count += 1
        assert count == EVENTS

    async def fetch(self, decode: Callable[[bytes], object]) -> list[Msg]:
        """Read every event with nats-py."""
        messages: list[Msg] = []
        subscription = await self.client.jetstream().pull_subscribe("", stream=TOOL_EVENTS)
        async with asyncio.timeout(TIMEOUT):
            while len(messages) < EVENTS:
                for message in await subscription.fetch(FETCHED):
                    decode(message.data)
                    await message.ack()
                    messages.append(message)
        await subscription.unsubscribe()
        return messages


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Set everything up: bus, stream, outbox with its journal on the disk, and a round of events in the stream."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hookbus-bench-")))
        url = await stack.enter_async_context(open_bus(BusSettings(state_dir=folder)))
        bus = BusSettings(url=url, state_dir=folder)
        connection = await stack.enter_async_context(await connect(bus, name="operator"))
        await ensure_streams(connection, bus)
        executor = await stack.enter_async_context(Executor(EXECUTOR, bus=bus))
        client = await nats.connect(url)
        stack.push_async_callback(client.close)
        on = Stage(connection, executor._running.outbox, executor._running.recorder, client)
        await on.record_all()
        on.published = await on.fetch(decode_event)
        yield on


def _admission() -> Admission:
    """Return the admission of one call that its hook has let pass; no two calls have the same arguments."""
    now, call_id = now_ms(), secrets.token_hex(16)
    context = ToolHookContext(
        session_id="session-1",
        sender_id="ann",
        tool_name="one",
        arguments_json=json.dumps(ARGUMENTS | {"note": call_id + ARGUMENTS["note"][len(call_id) :]}),
        call_id=call_id,
        executor_id=EXECUTOR,
        sent_at_ms=now,
        deadline_ms=now + 500,
    )
    return Admission(allowed=True, context=context, decisions=DECISIONS, elapsed=0.0008)


async def measure(on: Stage, rounds: int) -> tuple[list[Row], list[str]]:
    """Return the rows (name, figures, baseline, bar), and the names of those that are rates."""
    by_hand, unchecked = f"nats-py fetch({FETCHED}) loop, decoded", f"nats-py fetch({FETCHED}) loop, msgpack alone"
    read = await rates(
        [
            (by_hand, lambda: on.fetch(decode_event)),
            (unchecked, lambda: on.fetch(msgpack.unpackb)),
            ("hookbus replay, decoded", on.replay),
        ],
        EVENTS,
        rounds,
    )
    written = await rates(
        [
            ("nats-py publish_async, acknowledged", on.publish_all),
            ("hookbus outbox, journal and chain, acknowledged", on.record_all),
        ],
        EVENTS,
        rounds,
    )
    bars = {
        "hookbus replay, decoded": Bar(">=", 3.0),
        "hookbus outbox, journal and chain, acknowledged": Bar(">=", 1.0),
    }
    rows: list[Row] = [(name, one, read[by_hand], bars.get(name)) for name, one in read.items()]
    rows += [(name, one, next(iter(written.values())), bars.get(name)) for name, one in written.items()]
    processor, clock = await _costs(on, rounds)
    rows.append((processor.name, processor, None, Bar("<=", 50, "µs")))
    rows.append((clock.name, clock, None, None))
    return rows, [*read, *written]


async def _costs(on: Stage, rounds: int) -> tuple[Measured, Measured]:
    """Return what recording a call costs its caller, on the processor and by the clock."""
    costs = Measured("what the caller pays for its event, of its own thread"), Measured("... by the clock")
    for number in range(rounds + 1):
        taken = [await _cost(on) for _ in range(CALLS)]
        if number:  # the first round warms up
            for one, times in zip(costs, zip(*taken, strict=True), strict=True):
                one.add(times)
        await on.outbox.flush(TIMEOUT)
    return costs


async def _cost(on: Stage) -> tuple[float, float]:
    """Return the seconds that one call costs; then the sender has its turn."""
    admission = _admission()
    clock, processor = time.perf_counter(), time.thread_time()
    on.record(admission)
    taken = time.thread_time() - processor, time.perf_counter() - clock
    await asyncio.sleep(0)
    return taken
