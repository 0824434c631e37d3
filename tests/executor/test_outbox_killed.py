"""The record when processes die: the stream against the tool's own journal of what it really did."""

import resource
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from children import Child
from executor.conftest import World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Outcome, ToolAfterEvent
from hookbus_subscribers.chains import verified
from support import NatsServer, eventually

AGENT = """
import asyncio, os, sys
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
url, state, journal, first = sys.argv[1:]
ran = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

async def main():
    settings = ExecutorSettings(required_hooks=())
    executor = Executor("agent", bus=BusSettings(url=url, state_dir=state), settings=settings)

    @executor.tool
    def work(n: int) -> str:
        os.write(ran, b"%d\\n" % n)
        return "x" * (n % 5000)

    async def caller(numbers):
        for n in numbers:
            await executor.execute("work", {"n": n})

    async with executor:
        print("ready", flush=True)
        start = int(first)
        await asyncio.gather(*(caller(range(start + k, start + 1_000_000, 8)) for k in range(8)))

asyncio.run(main())
"""


class Killed:
    """Agents in processes of their own, killed in the middle of their calls, that share a state directory."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.state, self.journal = folder / "state", folder / "journal"
        self.journal.touch()

    def ran(self) -> list[int]:
        """Return the calls that ran, as the tool wrote them down itself."""
        return [int(line) for line in self.journal.read_text().split()]

    async def kill_after(self, calls: int, number: int, meanwhile: Callable[[], object] | None = None) -> None:
        """Start an agent and kill it when so many more calls have run; if `meanwhile` is given, twice as many."""
        wanted = len(self.ran()) + calls
        url = str(self.world.bus.url)
        async with Child(AGENT, url, str(self.state), str(self.journal), str(number * 1_000_000)) as agent:
            while await agent.line() != "ready":
                pass
            await eventually(lambda: self._has_run(wanted))
            if meanwhile is not None:
                meanwhile()
                await eventually(lambda: self._has_run(wanted + calls))
            await agent.end(signal.SIGKILL)

    async def _has_run(self, wanted: int) -> bool:
        return self.journal.read_bytes().count(b"\n") >= wanted

    async def recovered(self) -> list[ToolAfterEvent]:
        """Start an executor where they were, which sends what they left, and return the record."""
        bus = BusSettings(url=self.world.bus.url, state_dir=self.state)
        async with Executor("next", bus=bus, settings=ExecutorSettings(required_hooks=())) as executor:
            await executor.flush(30)
        assert list((self.state / "outbox").iterdir()) == []
        verifier = await verified(self.world.operator)
        assert (verifier.findings, verifier.events > 0) == ([], True)
        return [event for event in await self.world.events() if isinstance(event, ToolAfterEvent)]


def _check(ran: list[int], events: list[ToolAfterEvent]) -> None:
    recorded = Counter(int(event.context.arguments_json.removeprefix('{"n":').removesuffix("}")) for event in events)
    assert max(recorded.values()) == 1
    assert set(ran) - set(recorded) == set()
    finished = {event.context.arguments_json for event in events if event.outcome is Outcome.COMPLETED}
    assert len(finished - {f'{{"n":{n}}}' for n in ran}) == 0


async def test_an_executor_that_is_killed_again_and_again_leaves_each_call_once_in_the_record(
    world: World, tmp_path: Path
) -> None:
    """At different moments; what was running is `interrupted`, and at most as many as ran at once."""
    killed = Killed(world, tmp_path)
    kills = 5
    for number in range(kills):
        await killed.kill_after(1 + 37 * number, number)
    events = await killed.recovered()
    _check(killed.ran(), events)
    assert sum(event.outcome is Outcome.INTERRUPTED for event in events) <= 8 * kills


@pytest.mark.slow
async def test_two_hundred_kills_lose_and_double_nothing(world: World, tmp_path: Path) -> None:
    """The long form."""
    killed = Killed(world, tmp_path)
    for number in range(200):
        await killed.kill_after(number % 41, number)
    _check(killed.ran(), await killed.recovered())


async def test_what_waits_for_the_bus_survives_the_executor(own_server: NatsServer, tmp_path: Path) -> None:
    """Both are killed, the server first; calls that ran without it are sent by the next executor."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url, events_max_bytes=8 * 2**20), stack)
        await world.start()
        killed = Killed(world, tmp_path)
        await killed.kill_after(50, 0, meanwhile=own_server.kill)
        own_server.start()
        await world.operator.wait_connected()
        _check(killed.ran(), await killed.recovered())


async def test_a_call_does_not_run_that_would_leave_no_trace(world: World, tmp_path: Path) -> None:
    """The disk is full: the outbox cannot be written, so the tool does not run, and the model reads why."""
    executor = await world.started()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limit[1]))
        refused = await executor.execute("echo", {"text": "ran"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert (refused.outcome, refused.denied_by) == (Outcome.DENIED, "executor")
    assert "cannot be written: File too large" in refused.reason
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
    await executor.flush()
    assert [event.outcome for event in await world.events()] == [Outcome.DENIED, Outcome.COMPLETED]
