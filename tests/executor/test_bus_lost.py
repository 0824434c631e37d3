"""The bus goes away in the middle, and comes back."""

import asyncio
from contextlib import AsyncExitStack

from nats.aio.msg import Msg
from structlog.testing import capture_logs

from executor.conftest import Answer, World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, Session
from hookbus_schemas import Decision, Outcome, ToolHookContext
from support import NatsServer, eventually, until


async def runs(executor: Executor) -> bool:
    """Tell whether a call runs now."""
    return (await executor.execute("echo", {"text": "ran"})).outcome is Outcome.COMPLETED


async def test_a_bus_that_dies_in_the_middle_of_an_admission_ends_it_at_once(own_server: NatsServer) -> None:
    """Each hook is unavailable: its failure policy applies, the call does not hang; later calls work again."""
    asked = asyncio.Event()

    async def hang_then_allow(_: Msg, context: ToolHookContext) -> Answer:
        asked.set()
        return None if "hang" in context.arguments_json else Decision.allow()

    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        await world.serve("closed", hang_then_allow)
        await world.register("closed")
        executor = await world.started()
        call = asyncio.create_task(executor.execute("echo", {"text": "hang"}))
        async with asyncio.timeout(5):
            await asked.wait()
            own_server.kill()
            result = await call
        assert (result.denied_by, result.decisions[0].reason_code) == ("closed", "bus_unavailable")
        down = await executor.execute("echo", {"text": "while it is down"})
        assert "unavailable: the bus cannot be reached" in down.text
        own_server.start()
        await eventually(lambda: runs(executor))
        await executor.flush(10)
        outcomes = [event.outcome for event in await world.events()]
        assert outcomes[:2] == [Outcome.DENIED, Outcome.DENIED]
        assert outcomes[-1] is Outcome.COMPLETED


async def test_a_hook_that_fails_open_lets_pass_while_the_bus_is_away(own_server: NatsServer) -> None:
    """An operator chose so; the record of it waits for the bus."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        await world.hook("open", Decision.allow(), failure_policy="allow")
        executor = await world.started()
        own_server.kill()
        await until(lambda: not executor.connected)
        assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
        own_server.start()
        async with asyncio.timeout(10):
            await executor.flush(10)
        (event,) = await world.events()
        assert event.unguarded_by == ("open",)


async def test_a_change_made_while_an_executor_was_away_is_in_force_when_it_is_back(own_server: NatsServer) -> None:
    """The whole bucket is read again at every reconnection."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        executor = await world.started()
        assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
        own_server.kill()
        async with asyncio.timeout(10):
            await world.operator.wait_disconnected()
            own_server.start()
            await world.operator.wait_connected()
            await world.register("new")
            await until(lambda: executor.hooks)
        assert (await executor.execute("echo", {})).denied_by == "new"


async def test_an_executor_that_could_never_read_the_registrations_denies_everything(own_server: NatsServer) -> None:
    """There is no bucket: it says why and what to do, and recovers by itself when there is one."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        executor = await world.started()
        text = (await executor.execute("echo", {})).text
        assert text.startswith("Error: no hook can be asked, since the registrations could not be read: ")
        await world.start()
        await eventually(lambda: runs(executor))


async def test_calls_in_progress_have_their_place_in_the_outbox(world: World) -> None:
    """A burst is admitted as far as its events have room, not further; what ended makes room again."""
    executor = await world.executor(outbox_limit=3)
    go_on = asyncio.Event()

    @executor.tool
    async def wait() -> None:
        await go_on.wait()

    async with executor, asyncio.timeout(5):
        burst = [asyncio.create_task(executor.execute("wait", {})) for _ in range(10)]
        await until(lambda: executor.dropped_events == 7)
        go_on.set()
        outcomes = [(await call).outcome for call in burst]
        await executor.flush()
        assert (await executor.execute("wait", {})).outcome is Outcome.COMPLETED
    assert sorted(outcomes) == [Outcome.COMPLETED] * 3 + [Outcome.DENIED] * 7


async def test_an_event_that_cannot_be_sent_does_not_hold_up_those_behind_it(own_server: NatsServer) -> None:
    """It is logged and counted: here the bus takes less than the shortened event has."""
    own_server.stop()
    own_server.write_config("max_payload: 4096")
    own_server.start()
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url, events_max_bytes=8 * 2**20), stack)
        await world.start()
        executor = await world.started()
        with capture_logs() as logs:
            async with asyncio.timeout(5):
                for text, session in (("long", Session("s" * 10_000)), ("short", None)):
                    await executor.execute("echo", {"text": text}, session=session)
                await executor.flush()
        (event,) = await world.events()
        assert event.context.arguments_json == '{"text":"short"}'
        assert executor.dropped_events == 1
    assert len([entry for entry in logs if entry["event"] == "event.dropped"]) == 1


async def test_a_full_outbox_refuses_calls_rather_than_forget_them(own_server: NatsServer) -> None:
    """A call that would leave no trace does not run."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        executor = await world.started(outbox_limit=3)
        own_server.kill()
        await until(lambda: not executor.connected)
        said = [(await executor.execute("echo", {"text": "ran"})).text for _ in range(4)]
        assert said[:3] == ["ran"] * 3
        assert said[3].startswith("Error: the record is full: 3 events wait for the bus")
        for _ in range(10):
            await executor.execute("nosuch", {})
        assert executor.dropped_events == 11
        own_server.start()
        async with asyncio.timeout(10):
            await executor.flush(10)
        assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
