"""The record when the broker or the network between lies, loses, or says nothing: a proxy does so to each event."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import datetime

import pytest

from executor.conftest import World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Outcome
from hookbus_subscribers.chains import verified
from hookbus_subscribers.replaying import replay
from proxy import Frame, NatsProxy
from support import NatsServer, eventually, until

WINDOW = 0.2
"""Seconds in which the stream of these tests takes an event for a copy of another."""


class Tried:
    """An executor behind a proxy, its tool's own journal, and the stream to hold against it."""

    def __init__(self, world: World, proxy: NatsProxy, executor: Executor) -> None:
        self.world, self.proxy, self.executor = world, proxy, executor
        self.ran: list[int] = []

        @executor.tool
        def work(n: int) -> int:
            self.ran.append(n)
            return n

    async def call(self, *numbers: int) -> None:
        """Make calls, each of which runs."""
        for n in numbers:
            assert (await self.executor.execute("work", {"n": n})).outcome is Outcome.COMPLETED

    async def stored(self) -> list[int]:
        """Return the calls that the stream holds, copies too."""
        return [json.loads(event.context.arguments_json)["n"] for event in await self.world.events()]

    async def check(self) -> None:
        """Hold what a reader gets, and the chain, against what ran."""
        await self.executor.flush(20)
        read = [json.loads(stored.event.context.arguments_json)["n"] async for stored in replay(self.world.operator)]
        assert Counter(read) == Counter(self.ran)
        verifier = await verified(self.world.operator)
        assert (verifier.findings, verifier.events) == ([], len(self.ran))
        assert self.executor.dropped_events == 0


@pytest.fixture
async def tried(own_server: NatsServer) -> AsyncIterator[Tried]:
    """An executor that notices a dead link within a second."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url, duplicate_window=WINDOW, events_max_bytes=8 * 2**20), stack)
        await world.start()
        proxy = await stack.enter_async_context(NatsProxy(own_server.port))
        bus = BusSettings(url=proxy.url, ping_interval=0.2, connect_timeout=0.5, reconnect_wait=0.01)
        executor = Executor("e1", bus=bus, settings=ExecutorSettings(required_hooks=()))
        made = Tried(world, proxy, executor)
        await stack.enter_async_context(executor)
        yield made
        proxy.flowing.set()


def nothing(_: Frame) -> Iterable[Frame]:
    """Lose a frame."""
    return ()


REFUSAL = b'{"error":{"code":503,"description":"insufficient resources"}}'


@pytest.mark.parametrize(
    "treatment",
    [
        pytest.param(lambda ack: (ack, ack), id="twice"),
        pytest.param(lambda ack: (ack.said(b"", ack.subject + b"999"), ack), id="for no event as well"),
        pytest.param(lambda ack: (ack.said(b"\xffgarbage"),), id="garbage"),
        pytest.param(lambda ack: (ack.said(b"[" * 100_000),), id="endless garbage"),
        pytest.param(lambda ack: (ack.said(REFUSAL),), id="an error although it was stored"),
        pytest.param(lambda ack: (ack.said(b'{"stream":"OTHER","seq":1}'),), id="another stream"),
    ],
)
async def test_what_is_no_acknowledgement_of_an_event_is_none(
    tried: Tried, treatment: Callable[[Frame], Iterable[Frame]]
) -> None:
    """The event is sent again, at once and not only when its time is up, until the stream says that it has it."""
    heard: list[Frame] = []

    def treat(ack: Frame) -> Iterable[Frame]:
        heard.append(ack)
        return treatment(ack) if len(heard) <= 3 else (ack,)

    tried.proxy.on_ack = treat
    await tried.call(*range(3))
    await tried.executor.flush(4)  # less than the time after which what was not acknowledged is sent again
    await tried.check()


async def test_events_and_acknowledgements_that_are_lost_or_late_lose_and_double_nothing(tried: Tried) -> None:
    """Of ten events two never arrive, two are not acknowledged, two are when they have been sent again."""
    sent: Counter[bytes] = Counter()
    late: dict[bytes, Frame] = {}

    def lose(event: Frame) -> Iterable[Frame]:
        sent[event.reply] += 1
        return () if len(sent) <= 2 and sent[event.reply] == 1 else (event,)

    def hold(ack: Frame) -> Iterable[Frame]:
        number = list(sent).index(ack.subject)
        if sent[ack.subject] > 1:
            return (late.pop(ack.subject), ack) if number >= 4 else (ack,)
        if 4 <= number < 6:
            late[ack.subject] = ack
        return () if number < 6 else (ack,)

    tried.proxy.on_event, tried.proxy.on_ack = lose, hold
    await tried.call(*range(10))
    await tried.check()
    assert (sorted(sent.values()), late) == ([1] * 4 + [2] * 6, {})


async def test_an_event_that_is_sent_again_after_the_duplicate_window_is_read_once(tried: Tried) -> None:
    """Its acknowledgement was lost in a network that stalled for longer: the stream holds it twice, readers get one."""
    acks: list[Frame] = []

    def stall(ack: Frame) -> Iterable[Frame]:
        tried.proxy.flowing.clear()
        acks.append(ack)
        return ()

    await tried.call(0)
    await tried.executor.flush()
    tried.proxy.on_ack = stall
    await tried.call(1)
    await until(lambda: acks)
    await tried.call(2, 3)
    await until(lambda: not tried.executor.connected)
    await eventually(lambda: is_past(tried.world, 5 * WINDOW))
    tried.proxy.on_ack = lambda ack: (ack,)
    tried.proxy.flowing.set()
    await tried.check()
    assert Counter(await tried.stored()) == {0: 1, 1: 2, 2: 1, 3: 1}
    await tried.call(4)
    await tried.check()


async def is_past(world: World, seconds: float) -> bool:
    """Tell whether by the server's clock so much time has passed since the last event was stored."""
    answer = await world.client.request("$JS.API.STREAM.INFO.TOOL_EVENTS")
    info = json.loads(answer.data)
    return seconds < _seconds(info["ts"]) - _seconds(info["state"]["last_ts"])


def _seconds(time: str) -> float:
    whole, _, fraction = time.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
