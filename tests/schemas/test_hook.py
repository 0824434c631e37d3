"""One way to ask and to tell a hook, whatever it is made of."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hookbus_schemas import Answer, Decision, ToolHook, ToolHookContext, ToolHookWithContext
from hookbus_schemas.hook import decider, observer, observes
from hookbus_schemas.threads import Threads
from support import until

CONTEXT = ToolHookContext(
    tool_name="t", arguments_json='{"a":1}', call_id="c", executor_id="e", sent_at_ms=1, deadline_ms=2
)


class Plain(ToolHook):
    """Answers what it is given, and keeps what it was asked and where."""

    name = "plain"

    def __init__(self, answer: object = True) -> None:
        self.answer = answer
        self.seen: list[tuple[object, ...]] = []
        self.threads: list[threading.Thread] = []

    def _see(self, *arguments: object) -> None:
        self.seen.append(arguments)
        self.threads.append(threading.current_thread())

    def before_execute(self, tool_name: str, arguments: str) -> Any:
        """Answer, or raise."""
        self._see(tool_name, arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def after_execute(self, tool_name: str, arguments: str, result: str, duration: float, failed: bool) -> None:
        """Keep it, or raise."""
        self._see(tool_name, arguments, result, duration, failed)
        if isinstance(self.answer, Exception):
            raise self.answer


class Async(Plain):
    """The same, async."""

    name = "async"

    async def before_execute(self, tool_name: str, arguments: str) -> Any:
        """Answer, or raise."""
        return super().before_execute(tool_name, arguments)

    async def after_execute(  # type: ignore[override]  # a hook may be either
        self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
    ) -> None:
        """Keep it, or raise."""
        super().after_execute(tool_name, arguments, result, duration, failed)


class PlainWithContext(ToolHookWithContext):
    """Keeps the context that it is given."""

    name = "plain with context"

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def before_execute(self, context: ToolHookContext) -> Answer | Awaitable[Answer]:
        """Allow."""
        self.seen.append((context,))
        return True

    def after_execute(
        self, context: ToolHookContext, result: str, duration: float, failed: bool
    ) -> Awaitable[None] | None:
        """Keep it."""
        self.seen.append((context, result, duration, failed))
        return None


class Silent(ToolHook):
    """Overrides nothing."""

    name = "silent"


class SilentWithContext(ToolHookWithContext):
    """Overrides nothing."""

    name = "silent with context"


class AsyncCallable:
    """An object that is called like an async function."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    async def __call__(self, *arguments: object) -> bool:
        """Deny."""
        self.seen.append(arguments)
        return False


async def _ask(hook: ToolHook | ToolHookWithContext) -> Decision:
    async with asyncio.timeout(5):
        return await decider(hook, Threads())(CONTEXT)


async def _tell(hook: ToolHook | ToolHookWithContext) -> None:
    async with asyncio.timeout(5):
        await observer(hook, Threads())(CONTEXT, "done", 0.5, True)


@pytest.mark.parametrize("make", [Plain, Async])
@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        pytest.param(True, Decision.allow(), id="true allows"),
        pytest.param(False, Decision.deny(""), id="false denies"),
        pytest.param(Decision.deny("no", reason_code="x"), Decision.deny("no", reason_code="x"), id="a deny is itself"),
        pytest.param(Decision.allow(warning="w"), Decision.allow(warning="w"), id="an allow is itself"),
        pytest.param(Decision.error("e"), Decision.error("e"), id="an error is itself"),
    ],
)
async def test_an_answer_becomes_a_decision(make: type[Plain], answer: object, decision: Decision) -> None:
    """The hook was asked once, with the tool and its arguments."""
    hook = make(answer)
    assert await _ask(hook) == decision
    assert hook.seen == [("t", '{"a":1}')]


@pytest.mark.parametrize("make", [Plain, Async])
@pytest.mark.parametrize("answer", [None, 1, 0, "", "allow", "deny", {"decision": "allow"}, [], object(), Decision])
async def test_any_other_answer_is_an_error_never_an_allow(make: type[Plain], answer: object) -> None:
    """Not what is like true or like false either; the message names the hook and what is asked of it."""
    with pytest.raises(TypeError, match=f"hook {make.name} answered with .*must be True, False or a Decision"):
        await _ask(make(answer))


@pytest.mark.parametrize("act", [_ask, _tell])
@pytest.mark.parametrize("make", [Plain, Async])
async def test_what_a_hook_raises_passes_through(make: type[Plain], act: Callable[[ToolHook], Any]) -> None:
    """The very exception: whoever asks decides what it means."""
    error = LookupError("no rules")
    with pytest.raises(LookupError) as caught:
        await act(make(error))
    assert caught.value is error


async def test_a_plain_hook_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    """So that a plain one may block."""
    plain, on_loop = Plain(), Async()
    for hook in (plain, on_loop):
        await _ask(hook)
        await _tell(hook)
    here = threading.current_thread()
    assert here not in plain.threads
    assert on_loop.threads == [here, here]


@pytest.mark.parametrize("make", [Plain, Async])
async def test_a_hook_is_told_of_a_call_that_ran(make: type[Plain]) -> None:
    """Tool, arguments, result, duration in seconds, and whether it failed."""
    hook = make()
    await _tell(hook)
    assert hook.seen == [("t", '{"a":1}', "done", 0.5, True)]


async def test_a_hook_with_context_gets_all_of_it() -> None:
    """When it is asked and when it is told."""
    hook = PlainWithContext()
    assert await _ask(hook) == Decision.allow()
    await _tell(hook)
    assert hook.seen == [(CONTEXT,), (CONTEXT, "done", 0.5, True)]


@pytest.mark.parametrize("wrap", [lambda call: call, functools.partial], ids=["object", "partial"])
async def test_an_async_callable_is_awaited_though_it_is_no_async_function(wrap: Callable[[Any], Any]) -> None:
    """A deny must not be lost in a coroutine that nobody awaits."""
    hook, called = Silent(), AsyncCallable()
    hook.before_execute = hook.after_execute = wrap(called)  # type: ignore[method-assign]
    assert await _ask(hook) == Decision.deny("")
    await _tell(hook)
    assert called.seen == [("t", '{"a":1}'), ("t", '{"a":1}', "done", 0.5, True)]


@pytest.mark.parametrize("make", [Silent, SilentWithContext])
async def test_a_hook_that_overrides_nothing_allows(make: type[Silent]) -> None:
    """And is told without harm."""
    assert await _ask(make()) == Decision.allow()
    await _tell(make())


def test_only_a_hook_that_overrides_it_is_to_be_told() -> None:
    """The others need no events."""
    told = [hook for hook in (Plain(), Async(), PlainWithContext(), Silent(), SilentWithContext()) if observes(hook)]
    assert [hook.name for hook in told] == ["plain", "async", "plain with context"]


async def test_a_slow_plain_hook_does_not_hold_up_another() -> None:
    """While one waits in its thread the other is asked and answers."""
    may_go = threading.Event()

    class Waiting(Plain):
        def before_execute(self, tool_name: str, arguments: str) -> Any:
            return may_go.wait(5)

    threads = Threads()
    async with asyncio.timeout(5):
        first = asyncio.ensure_future(decider(Waiting(), threads)(CONTEXT))
        assert await decider(Plain(False), threads)(CONTEXT) == Decision.deny("")
        assert not first.done()
        may_go.set()
        assert await first == Decision.allow()


async def test_an_async_hook_needs_no_thread() -> None:
    """It answers though every place is taken."""
    threads, may_go = Threads(limit=1), threading.Event()
    async with asyncio.timeout(5):
        blocking = asyncio.create_task(threads.run(may_go.wait, 5))
        await asyncio.sleep(0)
        assert await decider(Async(False), threads)(CONTEXT) == Decision.deny("")
        may_go.set()
        assert await blocking


async def test_a_question_that_is_given_up_is_cancelled_in_an_async_hook() -> None:
    """What the hook does at its end is done before the question ends."""
    steps: list[str] = []

    class Waiting(Async):
        async def before_execute(self, tool_name: str, arguments: str) -> Any:
            try:
                steps.append("asked")
                await asyncio.Event().wait()
            finally:
                steps.append("cancelled")

    async with asyncio.timeout(5):
        asking = asyncio.ensure_future(decider(Waiting(), Threads())(CONTEXT))
        await until(lambda: steps)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert steps == ["asked", "cancelled"]
