"""The record when the disk is full: what runs leaves a trace, what would leave none does not run."""

import resource
import signal
from pathlib import Path

import pytest

from children import Child
from executor.agents import Agents
from executor.conftest import World
from hookbus_executor.journal import SEGMENT_BYTES, Journal, JournalUnwritable, Kind
from hookbus_schemas import Outcome


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


HELD = """
import asyncio, logging, sys, structlog
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
url, state, journal, first = sys.argv[1:]

async def main():
    settings = ExecutorSettings(required_hooks=())
    executor = Executor("agent", bus=BusSettings(url=url, state_dir=state), settings=settings)

    @executor.tool
    def work(n: int) -> str:
        with open(journal, "a") as ran:
            print(n, file=ran)
        print("running", flush=True)
        input()
        return "ran"

    async with executor:
        print("ready", flush=True)
        print((await executor.execute("work", {"n": int(first)})).outcome.value, flush=True)
        try:
            await executor.flush(0.5)
        except TimeoutError:
            print("waiting", flush=True)
        await executor.flush(10)
        print("recorded", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def fill_disk(pid: int, most: int) -> None:
    """Let a process write no file beyond so many bytes, as if the disk were full."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, hard))


def free_disk(pid: int) -> None:
    """Give it room again."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


async def test_a_disk_that_fills_while_calls_run_and_is_freed_loses_and_doubles_nothing(
    world: World, tmp_path: Path
) -> None:
    """Calls are refused until there is room; then they run again."""
    agents = Agents(world, tmp_path)
    async with agents.agent() as agent:
        await agents.run_more(50)
        fill_disk(agent.process.pid, 100_000)
        await said(agent, "refused")
        free_disk(agent.process.pid)
        await agents.run_more(50)
        await agent.end(signal.SIGKILL)
    await agents.recovered()


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.INTERRUPTED])
async def test_a_call_that_ends_on_a_full_disk_is_once_in_the_record(
    outcome: Outcome, world: World, tmp_path: Path
) -> None:
    """When there is room; where its executor dies before that, the next one cannot know how it ended."""
    agents = Agents(world, tmp_path)
    async with agents.agent(HELD) as agent:
        await said(agent, "running")
        fill_disk(agent.process.pid, 1)
        await agent.send_line()
        assert [await agent.line() for _ in range(2)] == ["completed", "waiting"]
        if outcome is Outcome.COMPLETED:
            free_disk(agent.process.pid)
            assert await agent.line() == "recorded"
        await agent.end(signal.SIGKILL)
    (event,) = await agents.recovered()
    assert event.outcome is outcome


async def said(agent: Child, line: str) -> None:
    """Wait until an agent has said so."""
    while await agent.line() != line:
        pass


def test_what_the_stream_has_takes_no_room_though_the_disk_is_too_full_to_say_so(tmp_path: Path) -> None:
    """Segments go all the same: an outbox that filled the disk itself empties it."""
    journal = Journal.open(tmp_path / "outbox")
    for number in range(12):
        journal.append(Kind.ENDED, str(number), bytes(SEGMENT_BYTES // 4))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, limit[1]))
        for number in range(12):
            with pytest.raises(JournalUnwritable):
                journal.append(Kind.DONE, str(number))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(list(journal.folder.iterdir())) == 2
    journal.close()
    assert list((tmp_path / "outbox").iterdir()) == []
