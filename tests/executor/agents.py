"""Agents in processes of their own, and what they really did, to hold the record against."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from children import Child
from executor.conftest import World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Outcome, ToolAfterEvent
from hookbus_subscribers.chains import verified
from hookbus_subscribers.replaying import replay
from support import eventually

CALLERS = 8
"""Calls of an agent that are in progress at once."""

AGENT = f"""
import asyncio, logging, os, sys, structlog
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
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
            async with asyncio.timeout(8):  # hooks have five seconds: a call that hangs ends the agent, and the test
                result = await executor.execute("work", {{"n": n}})
            if result.outcome.value == "denied":
                print("refused", flush=True)
                await asyncio.sleep(0.02)

    async with executor:
        print("ready", flush=True)
        start = int(first)
        await asyncio.gather(*(caller(range(start + k, start + 1_000_000, {CALLERS})) for k in range({CALLERS})))

asyncio.run(main())
"""
"""Calls its tool again and again; the tool writes down each call that runs, and the process never ends by itself."""


class Agents:
    """Agents that share a state directory, one after the other or at once, and their tool's own journal.

    Attributes:
        state: the state directory.
        journal: the file in which the tool writes which calls ran.
        url: where they connect; by default that of the world.
    """

    def __init__(self, world: World, folder: Path, *, url: str = "") -> None:
        self.world = world
        self.state, self.journal = folder / "state", folder / "journal"
        self.journal.touch()
        self.url = url or str(world.bus.url)
        self._started = 0

    def ran(self) -> list[int]:
        """Return the calls that ran, as the tool wrote them down itself."""
        return [int(line) for line in self.journal.read_text().split()]

    @asynccontextmanager
    async def agent(self, code: str = AGENT) -> AsyncIterator[Child]:
        """Run an agent, which is killed at the latest on leaving, with calls of its own numbers."""
        number, self._started = self._started, self._started + 1
        async with Child(code, self.url, str(self.state), str(self.journal), str(number * 1_000_000)) as agent:
            while await agent.line() != "ready":
                pass
            yield agent

    async def run_more(self, calls: int) -> None:
        """Wait until so many more calls have run."""
        wanted = len(self.ran()) + calls
        await eventually(lambda: self._has_run(wanted), timeout=30)

    async def _has_run(self, wanted: int) -> bool:
        return self.journal.read_bytes().count(b"\n") >= wanted

    async def recovered(self) -> list[ToolAfterEvent]:
        """Start an executor where they were, which sends what they left; return the record of the calls that ran.

        Each call that ran is there once, those that did not are not there but as interrupted, and the chains are whole.
        """
        bus = BusSettings(url=self.world.bus.url, state_dir=self.state)
        async with Executor("next", bus=bus, settings=ExecutorSettings(required_hooks=())) as executor:
            await executor.flush(30)
            assert executor.dropped_events == 0
        assert list((self.state / "outbox").iterdir()) == []
        await self.world.operator.wait_connected()
        state = (await self.world.operator.jetstream().stream_info("TOOL_EVENTS")).state
        assert state.first_seq == 1, "the stream has dropped events: give it more bytes"
        verifier = await verified(self.world.operator)
        assert (verifier.findings, verifier.events > 0) == ([], True)
        async with asyncio.timeout(60):
            read = [stored.event async for stored in replay(self.world.operator)]
        events = [event for event in read if isinstance(event, ToolAfterEvent)]
        assert max(Counter(event.event_id for event in read).values()) == 1
        _check(self.ran(), events)
        return events


def _check(ran: list[int], events: list[ToolAfterEvent]) -> None:
    recorded = Counter(json.loads(event.context.arguments_json)["n"] for event in events)
    assert max(recorded.values()) == 1
    assert set(ran) - set(recorded) == set()
    finished = [event for event in events if event.outcome is not Outcome.INTERRUPTED]
    assert {json.loads(event.context.arguments_json)["n"] for event in finished} <= set(ran)
