"""A replica that stops: what it took is answered, and nothing new is taken."""

import asyncio
from contextlib import AsyncExitStack
from threading import Event as ThreadEvent

import pytest

from hookbus_schemas import (
    Decision,
    ToolHook,
    Verdict,
    decode,
    encode,
)
from hookbus_subscribers import HookServer
from hooking import Asked, Bus, Gate
from support import NatsServer, until


async def test_draining_answers_what_was_taken_and_takes_nothing_new(bus: Bus) -> None:
    """The other replicas get what comes after."""
    asker, gate = await bus.asker("h"), Gate()
    asked = Asked(gate)
    server = HookServer(asked, await bus.connection(), concurrency=2)
    await server.start()
    taken = [await asker.send(encode(asker.context())) for _ in range(5)]
    await until(lambda: len(server._requests) == 5)
    drain = asyncio.create_task(server.drain())
    await until(lambda: server._subscription._closed)
    await asker.barrier()
    with pytest.raises(LookupError, match="503"):
        await asker.ask()
    assert not drain.done()
    gate.open.set()
    async with asyncio.timeout(5):
        await drain
        assert {decode(Decision, await answer).decision for answer in taken} == {Verdict.ALLOW}
    assert len(asked.calls) == 5


async def test_draining_does_not_wait_for_a_hook_that_hangs(bus: Bus) -> None:
    """What runs and what waits gets an error; the function is cancelled."""
    asker, gate = await bus.asker("h"), Gate()
    server = HookServer(Asked(gate), await bus.connection(), concurrency=1, drain_timeout=0.05)
    await server.start()
    taken = [await asker.send(encode(asker.context())) for _ in range(3)]
    await until(lambda: len(server._requests) == 3)
    async with asyncio.timeout(5):
        await server.drain()
        answers = [decode(Decision, await answer) for answer in taken]
    assert [answer.reason_code for answer in answers] == ["draining"] * 3
    assert gate.cancelled == 1
    assert not server._running


async def test_draining_answers_also_when_the_log_cannot_be_written(broken_log: None, bus: Bus) -> None:
    """That the time ran out is told to who asked, whoever reads the log."""
    asker = await bus.asker("h")
    server = HookServer(Asked(Gate()), await bus.connection(), drain_timeout=0.05)
    await server.start()
    taken = await asker.send(encode(asker.context()))
    await until(lambda: len(server._requests) == 1)
    async with asyncio.timeout(5):
        await server.drain()
        assert decode(Decision, await taken).reason_code == "draining"


async def test_draining_does_not_wait_for_a_thread_that_hangs(bus: Bus) -> None:
    """A plain function cannot be cancelled; its thread is left to itself."""
    end, began = ThreadEvent(), ThreadEvent()

    class Hung(ToolHook):
        name = "h"

        def before_execute(self, tool_name: str, arguments: str) -> bool:
            began.set()
            return end.wait(30)

    asker = await bus.asker("h")
    server = HookServer(Hung(), await bus.connection(), drain_timeout=0.05)
    await server.start()
    taken = await asker.send(encode(asker.context()))
    await until(began.is_set)
    async with asyncio.timeout(5):
        await server.drain()
        assert decode(Decision, await taken).reason_code == "draining"
    end.set()


async def test_draining_without_a_bus_ends_all_the_same(own_server: NatsServer) -> None:
    """A replica must be able to stop during an outage."""
    async with AsyncExitStack() as stack:
        connection = await Bus(own_server.url, stack).connection()
        server = HookServer(Asked(), connection)
        await server.start()
        own_server.kill()
        await connection.wait_disconnected()
        async with asyncio.timeout(5):
            await server.drain()
        assert not connection.is_connected
