"""The record when processes die: the stream against the tool's own journal of what it really did."""

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from executor.agents import CALLERS, Agents
from executor.conftest import World
from hookbus_broker import BusSettings
from hookbus_schemas import Outcome
from support import NatsServer


async def kill_after(agents: Agents, calls: int) -> None:
    """Start an agent and kill it when so many calls have run."""
    async with agents.agent() as agent:
        await agents.run_more(calls)
        await agent.end(signal.SIGKILL)


async def test_an_executor_that_is_killed_again_and_again_leaves_each_call_once_in_the_record(
    world: World, tmp_path: Path
) -> None:
    """At different moments; what was running is `interrupted`, and at most as many as ran at once."""
    agents = Agents(world, tmp_path)
    kills = 5
    for number in range(kills):
        await kill_after(agents, 1 + 37 * number)
    events = await agents.recovered()
    assert sum(event.outcome is Outcome.INTERRUPTED for event in events) <= CALLERS * kills


@pytest.mark.slow
async def test_two_hundred_kills_lose_and_double_nothing(world: World, tmp_path: Path) -> None:
    """The long form."""
    agents = Agents(world, tmp_path)
    for number in range(200):
        await kill_after(agents, number % 41)
    await agents.recovered()


async def test_what_waits_for_the_bus_survives_the_executor(own_server: NatsServer, tmp_path: Path) -> None:
    """Both are killed, the server first; calls that ran without it are sent by the next executor."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url, events_max_bytes=8 * 2**20), stack)
        await world.start()
        agents = Agents(world, tmp_path)
        async with agents.agent() as agent:
            await agents.run_more(50)
            own_server.kill()
            await agents.run_more(50)
            await agent.end(signal.SIGKILL)
        own_server.start()
        await agents.recovered()
