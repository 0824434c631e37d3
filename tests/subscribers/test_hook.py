"""The decorator."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hookbus_schemas import Answer, ConfigError, Decision, ToolHookContext, ToolHookWithContext
from hookbus_schemas.hook import decider
from hookbus_schemas.threads import Threads
from hookbus_subscribers import FunctionHook, hook


def call(tool: str, arguments: str = "{}") -> ToolHookContext:
    """Return a call of a tool."""
    return ToolHookContext(
        tool_name=tool, arguments_json=arguments, call_id="c", executor_id="e", sent_at_ms=0, deadline_ms=0
    )


async def ask(asked: ToolHookWithContext, context: ToolHookContext) -> Decision:
    """Ask a hook as the server does."""
    async with asyncio.timeout(5):
        return await decider(asked, Threads())(context)


@hook("no-drops", tools=["db_*"])
async def no_drops(context: ToolHookContext) -> Answer:
    """Deny drops."""
    return Decision.deny("no drops") if "drop" in context.tool_name else True


@hook("plain")
def plain(tool_name: str, arguments: str) -> bool:
    """Allow a tool whose name is its arguments."""
    return tool_name == arguments


async def test_an_async_function_of_the_context_is_a_hook() -> None:
    """It has a name and globs, and decides."""
    assert isinstance(no_drops, ToolHookWithContext)
    assert (no_drops.name, no_drops.tools) == ("no-drops", ("db_*",))
    assert await ask(no_drops, call("db_drop")) == Decision.deny("no drops")
    assert await ask(no_drops, call("db_read")) == Decision.allow()


async def test_a_plain_function_of_tool_and_arguments_is_a_hook() -> None:
    """The reference system's interface, as a function."""
    assert await ask(plain, call("x", "x")) == Decision.allow()
    assert await ask(plain, call("x", "y")) == Decision.deny("")


async def test_other_tools_are_allowed_without_calling_the_function() -> None:
    """The function sees only what its globs name."""

    @hook("h", tools=["db_*", "sql"])
    async def never(context: ToolHookContext) -> bool:
        raise AssertionError(context.tool_name)

    assert await ask(never, call("shell")) == Decision.allow()
    with pytest.raises(AssertionError, match="sql"):
        await ask(never, call("sql"))


async def test_the_decorated_function_can_still_be_called() -> None:
    """A unit test needs no bus."""
    assert await no_drops(call("drop")) == Decision.deny("no drops")
    assert plain("x", "x") is True
    assert plain.__doc__ == "Allow a tool whose name is its arguments."


async def test_a_plain_function_may_return_an_awaitable() -> None:
    """A callable that only turns out to be async is awaited on the loop."""

    @hook("h")
    def answer(context: ToolHookContext) -> Awaitable[bool]:
        return asyncio.sleep(0, result=False)

    assert await ask(answer, call("t")) == Decision.deny("")


@pytest.mark.parametrize("name", [pytest.param("", id="empty"), pytest.param(" ", id="blank"), "n" * 300, 7, no_drops])
def test_a_name_that_no_hook_can_have_is_refused_at_once(name: str) -> None:
    """Also a decorator without its parentheses."""
    with pytest.raises(ConfigError, match="name"):
        hook(name)


@pytest.mark.parametrize(
    "tools", [pytest.param([], id="none"), pytest.param(["a", " "], id="blank"), pytest.param("db_*", id="text")]
)
def test_globs_that_cannot_mean_anything_are_refused_at_once(tools: list[str]) -> None:
    """A text would be taken letter by letter."""
    with pytest.raises(ConfigError, match="hook h: tools"):
        FunctionHook(lambda context: True, "h", tools)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: True, id="none"),
        pytest.param(lambda a, b, c: True, id="three"),
        pytest.param(int, id="class"),
        pytest.param(min, id="without a signature"),
    ],
)
def test_a_function_with_other_parameters_is_refused_at_once(function: Callable[..., bool]) -> None:
    """One parameter is the context, two are the tool and its arguments."""
    with pytest.raises(ConfigError, match="hook h: "):
        hook("h")(function)
