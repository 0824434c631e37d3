"""A call from beginning to end: what the model reads, and what the record says."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import structlog

from executor.conftest import World
from hookbus_executor import Executor, Session
from hookbus_schemas import (
    ConfigError,
    Decision,
    HookbusError,
    HookRegistration,
    Outcome,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHook,
    ToolHookContext,
    ToolHookWithContext,
    Verdict,
)
from support import until


async def recorded(world: World, executor: Executor) -> ToolAfterEvent | ToolDeniedEvent:
    """Return the one event there is."""
    async with asyncio.timeout(5):
        await executor.flush()
    (event,) = await world.events()
    return event


async def test_a_completed_call_is_recorded_with_its_result_and_times(world: World) -> None:
    """The event says who, what, how long and who judged."""
    await world.hook("judge", Decision.allow(labels={"risk": "low"}))
    executor = await world.started()
    result = await executor.execute("echo", {"text": "hello"}, session=Session("s1"))
    event = await recorded(world, executor)
    assert isinstance(event, ToolAfterEvent)
    assert (event.outcome, event.result, event.context.session_id) == (Outcome.COMPLETED, "hello", "s1")
    assert event.context.call_id == result.call_id
    assert event.duration_ms == round(result.duration * 1000, 3)
    assert (event.decisions[0].hook, event.decisions[0].labels) == ("judge", {"risk": "low"})


@pytest.mark.parametrize(
    ("name", "arguments", "text", "code"),
    [
        pytest.param("nosuch", "{}", "Error: Unknown tool", "unknown_tool", id="unknown tool"),
        pytest.param("", "{}", "Error: Unknown tool", "unknown_tool", id="no name"),
        pytest.param("\ud800" * 300, "{}", "Error: Unknown tool", "unknown_tool", id="a name that is no text"),
        pytest.param("x" * 9000, "{}", "Error: Unknown tool", "unknown_tool", id="an endless name"),
        pytest.param("echo", "{", "Error: arguments are not valid JSON", "invalid_arguments", id="no JSON"),
        pytest.param("echo", "[]", "Error: arguments must be a JSON object", "invalid_arguments", id="no object"),
        pytest.param("echo", '{"\ud800":1}', "Error: arguments", "invalid_arguments", id="half a surrogate pair"),
        pytest.param("echo", '{"txt":1}', "Error: arguments do not fit echo", "invalid_arguments", id="no fit"),
    ],
)
async def test_a_call_that_never_reaches_the_hooks_is_recorded_too(
    world: World, name: str, arguments: str, text: str, code: str
) -> None:
    """No hook is asked; the event names the executor and the reason."""
    await world.register("never asked")
    executor = await world.started()
    result = await executor.execute(name, arguments)
    assert result.text.startswith(text)
    event = await recorded(world, executor)
    assert isinstance(event, ToolDeniedEvent)
    assert (event.denied_by, event.reason_code, event.decisions) == ("executor", code, ())


async def test_a_tool_that_raises_fails_and_keeps_its_details_from_the_model(world: World) -> None:
    """The model reads the reference's words; the record says failed."""
    executor = await world.executor()

    @executor.tool
    def fails() -> None:
        raise ValueError("the password is swordfish")

    async with executor:
        result = await executor.execute("fails", {})
        assert (result.text, result.outcome) == ("Error: Tool execution failed.", Outcome.FAILED)
        event = await recorded(world, executor)
    assert isinstance(event, ToolAfterEvent)
    assert (event.outcome, event.result) == (Outcome.FAILED, "Error: Tool execution failed.")


async def test_a_tool_that_ignores_cancellation_does_not_hang_the_call(world: World) -> None:
    """Async or in a thread, it is left behind when its time is up."""
    executor = await world.executor()
    release = asyncio.Event()
    thread = threading.Event()

    @executor.tool(timeout=0.05)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    @executor.tool(timeout=0.05)
    def blocked() -> None:
        thread.wait(30)

    async with asyncio.timeout(5), executor:
        for name in ("stubborn", "blocked"):
            result = await executor.execute(name, {})
            assert (result.text, result.outcome) == ("Error: Tool execution timed out.", Outcome.TIMED_OUT)
        release.set()
        thread.set()
        await executor.flush()
    assert [event.outcome for event in await world.events()] == [Outcome.TIMED_OUT] * 2


async def test_a_tool_that_ignores_cancellation_does_not_hang_the_end(world: World) -> None:
    """The executor closes all the same, and says so."""
    executor = await world.executor()
    release = asyncio.Event()

    @executor.tool(timeout=0.05)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(10):
        with structlog.testing.capture_logs() as logs:
            async with executor:
                assert (await executor.execute("stubborn", {})).outcome is Outcome.TIMED_OUT
        release.set()
    assert [entry["count"] for entry in logs if entry["event"] == "tools.abandoned"] == [1]


async def test_a_streaming_tool_hands_its_pieces_to_the_caller(world: World) -> None:
    """Pieces come as they are made; the hooks know that it streams."""
    contexts: list[ToolHookContext] = []

    class Watch(ToolHookWithContext):
        name = "watch"

        async def before_execute(self, context: ToolHookContext) -> bool:
            contexts.append(context)
            return True

    executor = await world.executor()
    executor.add_hook(Watch())

    @executor.tool
    async def count(to: int) -> AsyncIterator[str]:
        for number in range(to):
            yield str(number)

    pieces: list[str] = []
    async with executor:
        result = await executor.execute("count", '{"to": 3}', on_delta=pieces.append)
        event = await recorded(world, executor)
    assert (result.text, pieces) == ("012", ["0", "1", "2"])
    assert contexts[0].is_streaming
    assert isinstance(event, ToolAfterEvent)
    assert event.result == "012"


async def test_calls_of_a_sub_agent_name_the_call_that_started_it(world: World) -> None:
    """A tool that calls tools makes a chain, also from a thread."""
    executor = await world.executor()
    loop = asyncio.get_running_loop()

    @executor.tool
    async def agent() -> str:
        return (await executor.execute("helper", {})).text

    @executor.tool
    def helper() -> str:
        inner = asyncio.run_coroutine_threadsafe(executor.execute("leaf", {}), loop)
        return inner.result(5).text

    @executor.tool
    async def leaf() -> str:
        return "done"

    async with executor, asyncio.timeout(5):
        assert (await executor.execute("agent", {})).text == "done"
        await executor.flush()
    by_tool = {event.context.tool_name: event.context for event in await world.events()}
    assert [by_tool[name].depth for name in ("agent", "helper", "leaf")] == [0, 1, 2]
    assert by_tool["leaf"].parent_call_id == by_tool["helper"].call_id
    assert by_tool["helper"].parent_call_id == by_tool["agent"].call_id


async def test_hooks_in_the_process_follow_the_same_rules(world: World) -> None:
    """Async or plain, allow, deny, raise or hang: as if they were on the bus."""

    class Plain(ToolHook):
        name = "plain"

        def before_execute(self, tool_name: str, arguments: str) -> bool | Decision:
            return Decision.deny("in the thread") if "thread" in arguments else True

    class Odd(ToolHookWithContext):
        name = "odd"

        async def before_execute(self, context: ToolHookContext) -> bool | Decision:
            if "raise" in context.arguments_json:
                raise KeyError("secret")
            if "hang" in context.arguments_json:
                await asyncio.Event().wait()
            if "exit" in context.arguments_json:
                raise SystemExit(3)
            if "give up" in context.arguments_json:
                raise asyncio.CancelledError
            if "endless" in context.arguments_json:
                return Decision.deny("no", suggested_arguments={"number": 2**70})
            return True

    executor = await world.executor()
    executor.add_hook(Plain(), HookRegistration(order=1))
    executor.add_hook(Odd(), HookRegistration(order=2, timeout_ms=100))
    async with executor, asyncio.timeout(5):
        said = [
            await executor.admit("t", {"do": do})
            for do in ("nothing", "thread", "raise", "hang", "endless", "exit", "give up")
        ]
    assert [one.denied_by for one in said] == ["", "plain", "odd", "odd", "odd", "odd", "odd"]
    assert [one.decision for one in said[0].decisions] == [Verdict.ALLOW, Verdict.ALLOW]
    assert said[2].reason == "error: it raised KeyError"
    assert said[3].reason == "timeout: it did not answer within 0.1 s"
    assert said[4].reason == "no"
    assert said[5].reason == "error: it raised SystemExit"
    assert said[6].reason == "error: it raised CancelledError"


async def test_hooks_in_the_process_are_told_of_what_ran_and_harm_nobody(world: World) -> None:
    """An error after a call is logged and never reaches the caller."""
    told: list[tuple[str, bool]] = []

    class Told(ToolHook):
        name = "told"

        async def after_execute(
            self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
        ) -> None:
            told.append((result, failed))
            raise RuntimeError

    executor = await world.executor()
    executor.add_hook(Told())

    @executor.tool
    async def echo(text: str) -> str:
        return text

    async with executor:
        assert (await executor.execute("echo", {"text": "a"})).text == "a"
        await until(lambda: told)
    assert told == [("a", False)]


async def test_an_event_names_the_hooks_that_are_to_be_told(world: World) -> None:
    """By their registrations: `after` among the events, and the tool; whether they were asked does not count."""
    await world.hook("both", Decision.allow())
    await world.hook("only before", Decision.allow(), events=["before"])
    await world.register("only after", events=["after"], enforcement="shadow")
    await world.register("other tools", tools=["db_*"])
    executor = await world.started()
    async with asyncio.timeout(5):
        await executor.execute("echo", {})
        await executor.flush()
    (event,) = await world.events()
    assert isinstance(event, ToolAfterEvent)
    assert event.told == ("both", "only after")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"events": ["after"]}, ["asked for"], id="after"),
        pytest.param({"events": ["before"]}, [], id="only before"),
        pytest.param({"events": ["after"], "tools": ["db_*"]}, [], id="other tools"),
    ],
)
async def test_hooks_in_the_process_are_told_of_what_their_registration_says(
    world: World, fields: dict[str, object], told: list[str]
) -> None:
    """The same rules as on the bus."""
    heard: list[str] = []

    class Listener(ToolHook):
        def __init__(self, name: str) -> None:
            self.name = name

        async def after_execute(
            self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
        ) -> None:
            heard.append(self.name)

    executor = await world.executor()
    executor.add_hook(Listener("asked for"), HookRegistration.model_validate(fields))
    executor.tool(_nothing)
    async with executor, asyncio.timeout(5):
        await executor.execute("_nothing", {})
        await executor.flush()
    assert heard == told


async def _nothing() -> None: ...


async def test_an_executor_says_what_is_wrong_before_it_starts(world: World) -> None:
    """Slips of the developer are errors at once."""
    executor = await world.executor()

    @executor.tool
    async def echo() -> None: ...

    with pytest.raises(ConfigError, match="there is a tool echo already"):
        executor.tool(echo)
    with pytest.raises(ConfigError, match="an executor needs a name"):
        Executor("")
    with pytest.raises(HookbusError, match="is not started"):
        await executor.execute("echo", {})


async def test_a_log_that_cannot_be_written_hangs_no_call(broken_log: None, world: World) -> None:
    """Whatever becomes of the lines, a call is decided, recorded and ended."""
    await world.hook("hung", None, timeout_ms=50)
    await world.hook("garbled", b"garbage", failure_policy="allow")
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {})
        await executor.flush()
    assert (result.denied_by, len(await world.events())) == ("hung", 1)


@pytest.mark.parametrize(
    ("sender", "answer", "kept"),
    [
        pytest.param("x" * 3_000_000, Decision.allow(), 3, id="long names are cut"),
        pytest.param("", Decision.allow(labels={"l": "x" * 3_000_000}), 0, id="large decisions are left out"),
    ],
)
async def test_an_event_larger_than_the_bus_takes_is_recorded_shortened(
    world: World, sender: str, answer: Decision, kept: int
) -> None:
    """The record says less, and the events behind it are not held up."""
    executor = await world.executor()
    for number in range(3):

        class Wordy(ToolHookWithContext):
            name = f"h{number}"

            async def before_execute(self, context: ToolHookContext) -> Decision:
                return answer

        executor.add_hook(Wordy())

    @executor.tool
    async def echo(text: str) -> str:
        return text * 2

    async with asyncio.timeout(20), executor:
        for text, session in (("long", Session("s", sender_id=sender)), ("short", None)):
            ran = await executor.execute("echo", {"text": text}, session=session)
            assert ran.outcome is Outcome.COMPLETED
        await executor.flush()
    first, last = await world.events()
    assert len(first.decisions) == kept
    assert len(first.context.sender_id) < 20_000
    assert last.context.arguments_json == '{"text":"short"}'
