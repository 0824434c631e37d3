"""The same on uvloop, whose transports differ: life, loss, a dead peer, a close that cannot wait."""

import asyncio

import pytest
import uvloop

from hookbus_broker.connection import Connection, connect
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable
from support import NatsServer

QUICK = {"ping_interval": 0.2, "reconnect_wait": 0.01, "reconnect_wait_max": 0.05}


@pytest.fixture
def runner() -> "asyncio.Runner":
    """Runs coroutines on uvloop."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def test_messages_losses_and_close_on_uvloop(runner: asyncio.Runner, own_server: NatsServer) -> None:
    """Large messages wait for room; a killed server is noticed, and its successor found."""

    async def live() -> None:
        settings = BusSettings.model_validate({"url": own_server.url, "pending_bytes": 200_000} | QUICK)
        async with await connect(settings, name="test") as connection:
            got: list[int] = []
            await connection.subscribe_direct("a", lambda msg: got.append(len(msg.data)))
            for _ in range(100):
                await connection.publish("a", bytes(100_000))
            await connection.barrier()
            own_server.kill()
            await connection.wait_disconnected()
            own_server.start()
            await connection.wait_connected()
            connection.publish_nowait("a", b"")
            await connection.barrier()
            assert got == [100_000] * 100 + [0]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with runner:
        runner.run(live())


async def publish_for_ever(connection: Connection) -> None:
    """Publish until it raises."""
    while True:
        await connection.publish("a", bytes(100_000))


def test_a_suspended_server_on_uvloop(runner: asyncio.Runner, own_server: NatsServer) -> None:
    """With bytes stuck on their way: noticed by pings, and closed in time."""

    async def suffer() -> None:
        connection = await connect(BusSettings.model_validate({"url": own_server.url} | QUICK), name="test")
        own_server.suspend()
        with pytest.raises(BusUnavailable):
            await publish_for_ever(connection)
        await connection.wait_disconnected()
        own_server.resume()
        await connection.wait_connected()
        await connection.barrier()
        own_server.suspend()
        async with asyncio.timeout(5):
            await connection.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with runner:
        runner.run(suffer())


def test_a_dead_server_on_uvloop(runner: asyncio.Runner) -> None:
    """Said in the same words."""
    with runner, pytest.raises(BusUnavailable, match="nothing listens there"):
        runner.run(connect(BusSettings(url="nats://127.0.0.1:1"), name="test"))
