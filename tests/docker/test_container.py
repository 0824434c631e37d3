"""The contract over the public `nats` image, started as docker-compose.yml says."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing

import pytest

from hookbus_broker import HOOKS, BusSettings, Connection, connect, ensure_streams, put, read_bucket
from hookbus_executor import Executor, ExecutorSettings, ToolResult
from hookbus_schemas import (
    BusUnavailable,
    FailurePolicy,
    HookRegistration,
    Outcome,
    PayloadTooLarge,
    ToolAfterEvent,
    ToolDeniedEvent,
    subjects,
)
from hookbus_subscribers import Decision, HookServer, ToolHookContext, hook, replay
from support import eventually

from .conftest import NatsContainer

pytestmark = pytest.mark.docker


@hook("no-drops")
async def no_drops(context: ToolHookContext) -> Decision:
    """Deny what drops something."""
    return Decision.deny("no") if "drop" in context.arguments_json else Decision.allow()


class Bus:
    """The container's bus, with an executor name and tool of this test's own."""

    def __init__(self, settings: BusSettings, connection: Connection) -> None:
        self.settings = settings
        self.connection = connection
        self.name = secrets.token_hex(4)

    async def register(self, name: str, **fields: object) -> None:
        """Register a hook for this test's tool alone."""
        registration = HookRegistration.model_validate({"tools": [self.name]} | fields)
        await put(self.connection, HOOKS, subjects.token(name), registration.to_json())

    async def call(self, argument: str) -> ToolResult:
        """Run one call of this test's tool, and wait until its event is stored."""
        executor = Executor(self.name, bus=self.settings, settings=ExecutorSettings(required_hooks=()))
        executor.tool(name=self.name)(_echo)
        async with asyncio.timeout(10), executor:
            result = await executor.execute(self.name, {"text": argument})
            await executor.flush()
        return result

    async def events(self) -> list[ToolAfterEvent | ToolDeniedEvent]:
        """Return what the stream holds of this test's executor."""
        async with asyncio.timeout(10), aclosing(replay(self.connection)) as stored:
            return [one.event async for one in stored if one.event.context.executor_id == self.name]


async def _echo(text: str) -> str:
    return text


@pytest.fixture
async def bus(container: NatsContainer) -> AsyncIterator[Bus]:
    """A connection to the container, its streams made."""
    settings = BusSettings(url=container.url, reconnect_wait=0.05, reconnect_wait_max=0.2)
    async with AsyncExitStack() as stack:
        connection = await _connected(settings)
        stack.push_async_callback(connection.close)
        await eventually(lambda: _streams(connection, settings))
        yield Bus(settings, connection)


async def _connected(settings: BusSettings) -> Connection:
    made: list[Connection] = []

    async def attempt() -> bool:
        try:
            made.append(await connect(settings, name="operator"))
        except BusUnavailable:
            return False
        return True

    await eventually(attempt, timeout=20)
    return made[0]


async def _streams(connection: Connection, settings: BusSettings) -> bool:
    """Make the streams, unless JetStream is still being started."""
    try:
        await ensure_streams(connection, settings)
    except BusUnavailable:
        return False
    return True


async def test_streams_and_buckets_are_made_once(bus: Bus) -> None:
    """A second `ensure_streams` finds what it needs and changes nothing."""
    before = await read_bucket(bus.connection, HOOKS)
    await ensure_streams(bus.connection, bus.settings)
    assert await read_bucket(bus.connection, HOOKS) == before


async def test_a_registered_hook_decides_and_each_call_is_recorded(bus: Bus) -> None:
    """A hook is registered, served and asked; its deny stops the call; both calls are in the stream."""
    await bus.register("no-drops")
    async with HookServer(no_drops, bus.connection):
        allowed, denied = await bus.call("select"), await bus.call("drop")
    assert (allowed.outcome, allowed.text) == (Outcome.COMPLETED, "select")
    assert (denied.outcome, denied.denied_by, denied.reason) == (Outcome.DENIED, "no-drops", "no")
    assert [event.outcome for event in await bus.events()] == [Outcome.COMPLETED, Outcome.DENIED]


async def test_a_hook_without_a_replica_is_unavailable_at_once(bus: Bus) -> None:
    """Its failure policy decides, long before its five seconds are over."""
    await bus.register("absent")
    denied = await bus.call("x")
    await bus.register("absent", failure_policy=FailurePolicy.ALLOW)
    passed = await bus.call("x")
    assert (denied.denied_by, denied.decisions[0].reason_code) == ("absent", "no_responders")
    assert denied.admission_duration < 1
    assert (passed.outcome, passed.decisions[0].failed_open) == (Outcome.COMPLETED, True)


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(bus: Bus) -> None:
    """The limit is that of the embedded server, and the connection stays up."""
    with pytest.raises(PayloadTooLarge) as refused:
        bus.connection.publish_nowait("somewhere", bytes(8 * 1024 * 1024 + 1))
    await bus.connection.barrier()
    assert refused.value.limit_bytes == 8 * 1024 * 1024


async def test_the_record_survives_a_restart_of_the_container(bus: Bus, container: NatsContainer) -> None:
    """Connections come back by themselves and find streams, registrations and events."""
    await bus.register("absent", enforcement="shadow")
    await bus.call("x")
    kept = await bus.events(), (await read_bucket(bus.connection, HOOKS)).entries
    await asyncio.to_thread(container.restart)
    await bus.connection.wait_connected(20)
    await eventually(lambda: _streams(bus.connection, bus.settings), timeout=20)
    assert (await bus.events(), (await read_bucket(bus.connection, HOOKS)).entries) == kept


async def test_the_health_check_of_the_compose_file_passes(bus: Bus, container: NatsContainer) -> None:
    """What Compose asks inside the container answers."""
    from .conftest import compose_service

    _, *command = compose_service()["healthcheck"]["test"]
    assert await asyncio.to_thread(container.run, *command) == 0
