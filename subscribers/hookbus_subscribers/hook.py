"""A hook from a function: the decorator `hook`. Below it are only the contract's own classes."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, ParamSpec, Protocol, TypeVar, cast, overload

from hookbus_schemas import Answer, ConfigError, ToolHookContext, ToolHookWithContext, subjects
from hookbus_schemas.globs import matches_any

P = ParamSpec("P")
R = TypeVar("R", bound=Answer | Awaitable[Answer])


class FunctionHook(ToolHookWithContext, Generic[P, R]):
    """A hook made of one function; called like the function, it is the function.

    Attributes:
        name: under which the operator registers it.
        tools: globs of the tools for which the function is called; all other calls are allowed.
        function: what was decorated.
    """

    def __init__(self, function: Callable[P, R], name: str, tools: Sequence[str]) -> None:
        self.name = check_name(name)
        self.tools = _globs(name, tools)
        self.function = function
        self._takes_context = _parameters(name, function) == 1
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, whatever the tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<hook {self.name} of {getattr(self.function, '__qualname__', self.function)}>"

    def before_execute(self, context: ToolHookContext) -> Answer | Awaitable[Answer]:
        """Ask the function if the tool is one of `tools`; allow otherwise."""
        if not matches_any(self.tools, context.tool_name):
            return True
        arguments = (context,) if self._takes_context else (context.tool_name, context.arguments_json)
        return cast("Callable[..., R]", self.function)(*arguments)


class _AsyncFunctionHook(FunctionHook[P, R]):
    """The same of an async function: asked on the loop, without a thread."""

    async def before_execute(self, context: ToolHookContext) -> Answer:
        answer = super().before_execute(context)
        return await answer if inspect.isawaitable(answer) else answer


class _Decorator(Protocol):
    """What `hook` returns: it takes a function of the context, or of the tool's name and the arguments."""

    @overload
    def __call__(self, function: Callable[[ToolHookContext], R]) -> FunctionHook[[ToolHookContext], R]: ...
    @overload
    def __call__(self, function: Callable[[str, str], R]) -> FunctionHook[[str, str], R]: ...


def hook(name: str, *, tools: Sequence[str] = ("*",)) -> _Decorator:
    """Make a hook of an async or plain function; a plain one runs in a thread.

    The function takes a `ToolHookContext`, or the tool's name and the arguments as JSON text; it returns True, False or
    a `Decision`. Calls of tools that match none of `tools` are allowed without calling it. That is a convenience: who
    is asked about what is decided by the operator's registration, and only by it.

    Args:
        name: under which the operator registers it.
        tools: globs of tool names; only ``*`` is special.

    Raises:
        ConfigError: the name or a glob cannot mean anything, or the function has other parameters.
    """
    check_name(name)

    def decorate(function: Callable[P, R]) -> FunctionHook[P, R]:
        kind = _AsyncFunctionHook if inspect.iscoroutinefunction(function) else FunctionHook
        return kind(function, name, tools)

    return cast("_Decorator", decorate)


def check_name(name: object) -> str:
    """Return the name if a hook can have it.

    Raises:
        ConfigError: it is empty, too long, or no text.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f'hook name {name!r:.80} should be text that is not blank, as in @hook("no-drops")')
    subjects.token(name)
    return name


def _globs(name: str, tools: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tools, str) or not tools or any(not isinstance(glob, str) or not glob.strip() for glob in tools):
        raise ConfigError(f'hook {name}: tools {tools!r:.80} should be a list of globs, none blank, as in ["db_*"]')
    return tuple(tools)


def _parameters(name: str, function: object) -> int:
    """Return how many arguments the function takes: 1 for the context, 2 for tool and arguments."""
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"hook {name}: {function!r:.80} is not a function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise ConfigError(f"hook {name}: {function!r:.80} does not say what it takes: wrap it in a function") from None
    for count in (1, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise ConfigError(f"hook {name}: its function should take (context) or (tool_name, arguments), not {signature}")
