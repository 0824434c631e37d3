"""A tool: a function with a name, arguments checked against its signature, and a time limit."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NotRequired, Required, TypeAlias, cast

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from hookbus_executor.declared import UNDECLARED, Declared
from hookbus_schemas import ConfigError, subjects
from hookbus_schemas.arguments import InvalidArguments, JsonObject
from hookbus_schemas.threads import Threads

ToolFunction: TypeAlias = Callable[..., object]
OnDelta: TypeAlias = Callable[[str], Awaitable[None] | None]


class Tool:
    """One tool of an agent.

    Attributes:
        name: what the model calls.
        description: the function's docstring.
        timeout: seconds that it may run; 0 for no limit.
        is_streaming: it is an async generator, whose pieces reach the caller as they come.
        declared: what it says of itself to the hooks.
    """

    def __init__(
        self, function: ToolFunction, *, name: str = "", timeout: float, declared: Declared = UNDECLARED
    ) -> None:
        """Wrap the function.

        Raises:
            ConfigError: its signature cannot be called by name or lacks a parameter that it declares, the time limit is
                negative, or the name is empty or too long.
        """
        self.name = name or getattr(function, "__name__", type(function).__name__)
        if timeout < 0:
            raise ConfigError(f"tool {self.name}: timeout must be 0 (no limit) or more seconds, not {timeout}")
        if not self.name:
            raise ConfigError("a tool needs a name")
        subjects.token(self.name)
        self.description = inspect.getdoc(function) or ""
        self.timeout = timeout
        self.is_streaming = inspect.isasyncgenfunction(function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._function = function
        parameters = _parameters(self.name, function)
        self.declared = declared
        for named in declared.names:
            if named not in parameters:
                raise ConfigError(f"tool {self.name}: it declares {named!r}, which is none of its parameters")
        self._arguments = _arguments_adapter(self.name, parameters)

    @property
    def arguments_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, as model APIs want it."""
        return self._arguments.json_schema()

    def bind(self, values: JsonObject) -> dict[str, Any]:
        """Return the function's keyword arguments.

        Raises:
            InvalidArguments: the values do not fit; the message names each field, for the model.
        """
        try:
            return self._arguments.validate_python(values)
        except ValidationError as error:
            raise InvalidArguments(f"arguments do not fit {self.name}: {_problems(error)}") from error

    async def run(self, arguments: Mapping[str, Any], threads: Threads, on_delta: OnDelta | None) -> str:
        """Run the function and return its result as text; whatever it raises passes through."""
        try:
            if self.is_streaming:
                pieces = cast("AsyncIterator[object]", self._function(**arguments))
                return await _collect(pieces, on_delta)
            if self._is_async:
                return as_text(await cast("Awaitable[object]", self._function(**arguments)))
            return as_text(await threads.run(lambda: self._function(**arguments)))
        except SystemExit as error:  # would end the agent, not the tool
            raise RuntimeError(f"tool {self.name} asked to exit with {error.code}") from error


def as_text(result: object) -> str:
    """Return a result as the model reads it: text as it is, None as nothing, all else as JSON."""
    if result is None:
        return ""
    if not isinstance(result, str):
        return to_json(result, fallback=str, inf_nan_mode="strings").decode()
    # File names may hold half a surrogate pair for a byte that is no UTF-8; no message can.
    return result if result.isascii() else result.encode("utf-8", "backslashreplace").decode()


async def _collect(pieces: AsyncIterator[object], on_delta: OnDelta | None) -> str:
    texts: list[str] = []
    async for piece in pieces:
        texts.append(as_text(piece))
        if on_delta is not None and inspect.isawaitable(told := on_delta(texts[-1])):
            await told
    return "".join(texts)


def _parameters(name: str, function: ToolFunction) -> dict[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ConfigError(f"tool {name}: its signature cannot be read: {error}") from error
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {name}: parameter {parameter.name} cannot be given by name")
    return dict(parameters)


def _arguments_adapter(name: str, parameters: Mapping[str, inspect.Parameter]) -> TypeAdapter[dict[str, Any]]:
    fields: dict[str, Any] = {}
    for parameter in parameters.values():
        annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
        fields[parameter.name] = (Required if parameter.default is parameter.empty else NotRequired)[annotation]
    # Not a model: a parameter may be called "json" or "copy", which a model has already.
    make: Any = TypedDict  # mypy knows only those that are written out
    arguments: Any = make(name, fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    try:
        return TypeAdapter(arguments)
    except PydanticUserError as error:
        raise ConfigError(f"tool {name}: its signature cannot be checked: {error}") from error


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found[:5])
