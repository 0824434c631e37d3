"""The record when servers die while calls run, one alone or one of three."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from nats.errors import Error

from executor.agents import Agents
from executor.conftest import World
from hookbus_broker import BusSettings, connect, ensure_streams
from hookbus_schemas import Decision, HookbusError
from support import NatsCluster, NatsServer, eventually

SIZE = 2**30


async def _kill_again_and_again(server: NatsServer, folder: Path, times: int) -> None:
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=server.url, events_max_bytes=SIZE), stack)
        await world.start()
        agents = Agents(world, folder)
        async with agents.agent() as agent:
            for number in range(times):
                await agents.run_more(1 + 23 * (number % 7))
                server.kill()
                await agents.run_more(20)
                server.start()
            await agents.run_more(20)
            await agent.end(signal.SIGKILL)
        await agents.recovered()


async def test_a_server_that_is_killed_again_and_again_while_calls_run_loses_and_doubles_nothing(
    own_server: NatsServer, tmp_path: Path
) -> None:
    """Calls go on without it, and what it had not acknowledged is sent again."""
    await _kill_again_and_again(own_server, tmp_path, 4)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_fifty_kills_of_the_server_lose_and_double_nothing(own_server: NatsServer, tmp_path: Path) -> None:
    """The long form."""
    await _kill_again_and_again(own_server, tmp_path, 50)


class OfThree:
    """A cluster with the stream on all its servers, a hook that lets pass what it cannot judge, and agents."""

    def __init__(self, cluster: NatsCluster, world: World, agents: Agents) -> None:
        self.cluster, self.world, self.agents = cluster, world, agents

    async def leader(self) -> NatsServer:
        """Return the server that leads the stream, as soon as all have all of it."""
        found: list[NatsServer] = []

        async def find() -> bool:
            try:
                answer = await self.world.client.request("$JS.API.STREAM.INFO.TOOL_EVENTS", timeout=1)
            except Error:
                return False
            state = json.loads(answer.data).get("cluster", {})
            others = [other["name"] for other in state.get("replicas", []) if other["current"]]
            if len(others) == 2 and state.get("leader"):
                found.append(self.cluster.named(state["leader"]))
            return bool(found)

        await eventually(find, timeout=30)
        return found[0]

    async def kill_for_a_while(self, server: NatsServer) -> None:
        """Kill one server while calls run, and start it again when many have run without it."""
        await self.agents.run_more(20)
        server.kill()
        await self.agents.run_more(100)
        server.start()
        await self.agents.run_more(20)


@pytest.fixture
async def of_three(tmp_path: Path) -> AsyncIterator[OfThree]:
    """Three servers."""
    with NatsCluster() as cluster:
        async with AsyncExitStack() as stack:
            world = World(BusSettings(url=cluster.url, replicas=3, events_max_bytes=SIZE), stack)
            await eventually(lambda: _has_streams(world.bus), timeout=30)
            await world.start()
            await world.hook("h", Decision.allow(), failure_policy="allow")
            yield OfThree(cluster, world, Agents(world, tmp_path))


async def _has_streams(bus: BusSettings) -> bool:
    """Make the streams, if the servers have found each other."""
    try:
        async with await connect(bus, name="operator") as connection:
            await ensure_streams(connection, bus)
    except HookbusError:
        return False
    return True


async def test_the_leader_of_three_servers_that_is_killed_and_back_loses_and_doubles_nothing(of_three: OfThree) -> None:
    """Calls run on meanwhile, none is kept waiting beyond its deadline."""
    async with of_three.agents.agent() as agent:
        await of_three.kill_for_a_while(await of_three.leader())
        await agent.end(signal.SIGKILL)
    await of_three.agents.recovered()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_any_of_three_servers_that_is_killed_and_back_loses_and_doubles_nothing(of_three: OfThree) -> None:
    """One after the other, those that lead and those that follow, and each time the leader as well."""
    async with of_three.agents.agent() as agent:
        for server in of_three.cluster.servers * 2:
            await of_three.leader()
            await of_three.kill_for_a_while(server)
            await of_three.kill_for_a_while(await of_three.leader())
        await agent.end(signal.SIGKILL)
    await of_three.agents.recovered()
