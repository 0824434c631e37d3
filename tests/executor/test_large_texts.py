"""Arguments and results that are too large for an event: stored beside it, and put back for who asks."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from executor.conftest import World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import ToolAfterEvent, encode, subjects
from hookbus_schemas.stored_text import divide
from hookbus_subscribers import TextGone, whole
from hookbus_subscribers.chains import verified
from support import NatsServer, until

LIMIT = 4096
TEXTS = [
    pytest.param("a" * LIMIT, True, id="as long as the limit"),
    pytest.param("a" * (LIMIT + 1), False, id="a byte longer"),
    pytest.param("\U0001f600" * (LIMIT // 4 + 1), False, id="few characters, many bytes"),
    pytest.param("line\n" * 200_000, False, id="many parts"),
]


@pytest.mark.parametrize(("text", "inline"), TEXTS)
async def test_a_large_result_is_stored_beside_its_event_and_put_back(world: World, text: str, inline: bool) -> None:
    """The event is small, the record is whole."""
    executor = await world.executor(inline_limit=LIMIT)

    @executor.tool
    async def write() -> str:
        return text

    async with executor:
        assert (await executor.execute("write", {})).text == text
        await executor.flush()
    (event,) = await world.events()
    assert isinstance(event, ToolAfterEvent)
    assert (event.result_stored is None) is inline
    assert len(encode(event)) < 3 * LIMIT
    put_back = await whole(world.operator, event)
    assert isinstance(put_back, ToolAfterEvent)
    assert (put_back.result, put_back.result_stored) == (text, None)
    assert not (await verified(world.operator)).findings


async def test_large_arguments_are_recorded_without_their_secrets(world: World) -> None:
    """What is stored beside the event is redacted as the event is; the tool got the real ones."""
    executor = await world.executor(inline_limit=LIMIT)
    got: list[str] = []

    @executor.tool
    async def upload(body: str, password: str) -> str:
        got.append(password)
        return str(len(body))

    async with executor:
        await executor.execute("upload", {"body": "b" * 300_000, "password": "hunter2"})
        await executor.flush()
    (event,) = await world.events()
    assert event.context.arguments_json == ""
    arguments = json.loads((await whole(world.operator, event)).context.arguments_json)
    assert arguments == {"body": "b" * 300_000, "password": "[redacted]"}
    assert got == ["hunter2"]
    stored = await world.operator.jetstream().stream_info("TOOL_OBJECTS")
    for number in range(1, stored.state.last_seq + 1):
        part = await world.operator.jetstream().get_msg("TOOL_OBJECTS", number)
        assert b"hunter2" not in (part.data or b"")


async def test_large_texts_survive_the_executor_and_go_to_the_next_one(own_server: NatsServer, tmp_path: Path) -> None:
    """The bus is away when the call ends and when its executor ends."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url, state_dir=tmp_path / "state"), stack)
        await world.start()
        settings = ExecutorSettings(required_hooks=(), inline_limit=LIMIT)
        text = "x" * 500_000
        for number in range(2):
            executor = Executor(f"e{number}", bus=world.bus, settings=settings)

            @executor.tool
            async def write() -> str:
                return text

            async with executor:
                if number == 0:
                    own_server.kill()
                    await until(lambda: not executor.connected)  # noqa: B023 - awaited here
                    assert (await executor.execute("write", {})).text == text
                else:
                    await executor.flush()
            if number == 0:
                own_server.start()
                await world.operator.wait_connected()
        (event,) = await world.events()
        put_back = await whole(world.operator, event)
        assert isinstance(put_back, ToolAfterEvent)
        assert put_back.result == text
        assert not (await verified(world.operator)).findings


async def test_an_event_is_not_in_the_stream_before_its_texts(world: World) -> None:
    """Who reads it finds them: without a place for the texts it waits."""
    stream = world.operator.jetstream()
    await stream.delete_stream("TOOL_OBJECTS")
    executor = await world.started(inline_limit=LIMIT)
    await executor.execute("echo", {"text": "x" * 100_000})
    with pytest.raises(TimeoutError):
        await executor.flush(0.3)
    assert await world.events() == []
    await stream.add_stream(name="TOOL_OBJECTS", subjects=["objects.>"])
    async with asyncio.timeout(10):
        await executor.flush(10)
    (event,) = await world.events()
    assert len((await whole(world.operator, event)).context.arguments_json) > 100_000


async def test_a_text_that_is_gone_or_altered_is_an_error_and_never_another_text(world: World) -> None:
    """The digest stands in the event, which the chain protects."""
    executor = await world.started(inline_limit=LIMIT)
    await executor.execute("echo", {"text": "x" * 10_000})
    await executor.flush()
    (event,) = await world.events()
    stored = event.context.arguments_stored
    assert stored is not None
    other, parts = divide("y" * 10_000)
    await world.operator.publish(subjects.object_part("e1", other.digest, 0), parts[0][:-1] + b"z")
    await world.operator.flush()
    for wrong in (stored.model_copy(update={"digest": "0" * 64}), other):
        context = event.context.model_copy(update={"arguments_stored": wrong})
        with pytest.raises(TextGone):
            await whole(world.operator, event.model_copy(update={"context": context}))


async def test_full_with_the_policy_drop_the_oldest_events_go_counted_and_named(own_server: NatsServer) -> None:
    """Calls run on; what is lost shows: in the counter, and as a gap in the chain."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        executor = await world.started(outbox_limit=3, outbox_full="drop")
        own_server.kill()
        await until(lambda: not executor.connected)
        for number in range(10):
            assert (await executor.execute("echo", {"text": str(number)})).text == str(number)
        assert executor.dropped_events == 7
        own_server.start()
        await executor.flush(15)
        kept = [json.loads(event.context.arguments_json)["text"] for event in await world.events()]
        assert kept == ["7", "8", "9"]
        (gap,) = (await verified(world.operator)).findings
        assert (gap.fault, gap.count) == ("gap", 7)


async def test_bytes_that_wait_are_limited_too(own_server: NatsServer) -> None:
    """A few huge results must not fill the memory."""
    async with AsyncExitStack() as stack:
        world = World(BusSettings(url=own_server.url), stack)
        await world.start()
        executor = await world.started(outbox_limit_bytes=300_000)
        own_server.kill()
        await until(lambda: not executor.connected)
        said = [(await executor.execute("echo", {"text": "x" * 100_000})).text[:30] for _ in range(3)]
        assert said == ["x" * 30, "x" * 30, "Error: the record is full: 2 e"]
