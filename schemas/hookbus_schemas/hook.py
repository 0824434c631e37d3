"""What a hook is in Python, whether it is served on the bus or runs in the agent's process."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from hookbus_schemas.context import ToolHookContext
from hookbus_schemas.decision import PLAIN_ALLOW, Decision
from hookbus_schemas.threads import Threads

Answer: TypeAlias = bool | Decision
"""What a hook may return: `True` allows, `False` denies, a `Decision` says why. Anything else is an error."""


class ToolHook:
    """A hook that looks at the tool and its arguments. Both methods may be async or plain; plain ones run in a thread.

    Attributes:
        name: under which the operator registers it.
    """

    name: str

    def before_execute(self, tool_name: str, arguments: str) -> Answer | Awaitable[Answer]:  # noqa: ARG002
        """Decide about a call before it runs; the arguments are a JSON object as text."""
        return True

    def after_execute(
        self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
    ) -> Awaitable[None] | None:
        """See a call that ran: the text of its result, and the tool's own duration in seconds."""


class ToolHookWithContext:
    """A hook that looks at the whole context of a call; otherwise as `ToolHook`."""

    name: str

    def before_execute(self, context: ToolHookContext) -> Answer | Awaitable[Answer]:  # noqa: ARG002
        """Decide about a call before it runs."""
        return True

    def after_execute(
        self, context: ToolHookContext, result: str, duration: float, failed: bool
    ) -> Awaitable[None] | None:
        """See a call that ran: the text of its result, and the tool's own duration in seconds."""


Hook: TypeAlias = ToolHook | ToolHookWithContext
Decide: TypeAlias = Callable[[ToolHookContext], Awaitable[Decision]]
Observe: TypeAlias = Callable[[ToolHookContext, str, float, bool], Awaitable[None]]


def decider(hook: Hook, threads: Threads) -> Decide:
    """Return the one way to ask this hook: an async function from context to decision.

    It raises whatever the hook raises, and `TypeError` for an answer that is none.
    """
    function = cast("Callable[..., object]", hook.before_execute)
    with_context = isinstance(hook, ToolHookWithContext)
    is_async = inspect.iscoroutinefunction(function)

    async def decide(context: ToolHookContext) -> Decision:
        arguments = (context,) if with_context else (context.tool_name, context.arguments_json)
        answer = function(*arguments) if is_async else await threads.run(function, *arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        return _decision(hook.name, answer)

    return decide


def observer(hook: Hook, threads: Threads) -> Observe:
    """Return the one way to tell this hook of a call that ran."""
    function = cast("Callable[..., object]", hook.after_execute)
    with_context = isinstance(hook, ToolHookWithContext)
    is_async = inspect.iscoroutinefunction(function)

    async def observe(context: ToolHookContext, result: str, duration: float, failed: bool) -> None:
        about = (context,) if with_context else (context.tool_name, context.arguments_json)
        arguments = (*about, result, duration, failed)
        told = function(*arguments) if is_async else await threads.run(function, *arguments)
        if inspect.isawaitable(told):
            await told

    return observe


def observes(hook: Hook) -> bool:
    """Tell whether the hook wants to be told of calls that ran."""
    return type(hook).after_execute not in (ToolHook.after_execute, ToolHookWithContext.after_execute)


def _decision(name: str, answer: object) -> Decision:
    if answer is True:
        return PLAIN_ALLOW
    if answer is False:
        return Decision.deny("")
    if isinstance(answer, Decision):
        return answer
    raise TypeError(f"hook {name} answered with {type(answer).__name__}; it must be True, False or a Decision")
