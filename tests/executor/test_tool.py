"""Tools: signatures, kinds of functions, results as text."""

import os
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hookbus_executor import InvalidArguments, Tool
from hookbus_executor.tool import as_text
from hookbus_schemas import ConfigError
from hookbus_schemas.threads import Threads


async def test_a_plain_function_runs_in_a_thread() -> None:
    """It may block without stopping the loop."""
    tool = Tool(lambda: threading.current_thread() is threading.main_thread(), name="where", timeout=1)
    assert await tool.run({}, Threads(), None) == "false"


async def test_a_streaming_tool_hands_out_its_pieces_in_order() -> None:
    """Callbacks may be plain or async; the result is all pieces together."""

    async def count(to: int) -> AsyncIterator[str]:
        for number in range(to):
            yield str(number)

    tool = Tool(count, timeout=1)
    assert tool.is_streaming
    plain: list[str] = []
    later: list[str] = []

    async def on_delta(piece: str) -> None:
        later.append(piece)

    assert await tool.run({"to": 3}, Threads(), plain.append) == "012"
    assert await tool.run({"to": 3}, Threads(), on_delta) == "012"
    assert plain == later == ["0", "1", "2"]


def test_a_model_can_be_told_of_a_tool() -> None:
    """Its name, what it does, and the JSON Schema of its arguments."""

    def search(query: str, limit: int = 10) -> None:
        """Find documents."""

    tool = Tool(search, timeout=1)
    assert (tool.name, tool.description) == ("search", "Find documents.")
    assert tool.arguments_schema == {
        "title": "search",
        "type": "object",
        "properties": {"query": {"title": "Query", "type": "string"}, "limit": {"title": "Limit", "type": "integer"}},
        "required": ["query"],
        "additionalProperties": False,
    }


def test_parameters_may_have_any_name() -> None:
    """Names that pydantic or Python use themselves are names like any other."""

    def odd(json: str, copy: int = 1, _x: list[str] | None = None, model_config: str = "") -> None: ...

    assert Tool(odd, timeout=1).bind({"json": "a", "copy": "2", "_x": ["b"], "model_config": "c"}) == {
        "json": "a",
        "copy": 2,
        "_x": ["b"],
        "model_config": "c",
    }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param({}, "path: Field required", id="missing"),
        pytest.param({"path": "a", "lines": "many"}, "lines: Input should be a valid integer", id="of another type"),
        pytest.param({"path": "a", "mode": "w"}, "mode: Extra inputs are not permitted", id="unknown"),
    ],
)
def test_arguments_that_do_not_fit_are_named_to_the_model(values: dict[str, Any], says: str) -> None:
    """Each refused field is in the message, its value is not."""

    def read(path: str, lines: int = 10) -> str:
        return path

    with pytest.raises(InvalidArguments, match=f"arguments do not fit read: {says}"):
        Tool(read, timeout=1).bind(values)


def test_a_signature_that_cannot_be_called_by_name_is_refused() -> None:
    """The developer learns it when the tool is made, not when the model calls it."""

    def positional(path: str, /) -> None: ...
    def several(*paths: str) -> None: ...
    def unknown(path: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (positional, several, unknown):
        with pytest.raises(ConfigError, match=f"tool {function.__name__}:"):
            Tool(function, timeout=1)
    with pytest.raises(ConfigError, match="timeout must be 0"):
        Tool(read_nothing, timeout=-1)


def read_nothing() -> None:
    """Return nothing."""


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param("a", "a", id="text"),
        pytest.param(None, "", id="nothing"),
        pytest.param({"a": [1, None]}, '{"a":[1,null]}', id="JSON"),
        pytest.param(float("nan"), '"NaN"', id="not a number"),
        pytest.param(os.fsdecode(b"\xff"), "\\udcff", id="a file name that is no UTF-8"),
    ],
)
def test_results_become_text_that_the_record_can_hold(result: object, text: str) -> None:
    """Whatever a tool returns, its event can be written."""
    assert as_text(result) == text


async def test_a_tool_that_exits_ends_itself_and_not_the_agent() -> None:
    """SystemExit is an exception like any other."""

    def leave() -> None:
        raise SystemExit(3)

    async def leave_later() -> None:
        raise SystemExit(3)

    for function in (leave, leave_later):
        with pytest.raises(RuntimeError, match="asked to exit with 3"):
            await Tool(function, timeout=1).run({}, Threads(), None)
