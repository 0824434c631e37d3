"""docs/events.md is true: its commands and its consumer run, its columns are those of an export."""

import ast
import inspect
import re
import shlex
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.running import one_by_one
from hookbus_cli.rows import COLUMNS
from hookbus_subscribers import Consumer
from hooking import Bus, make_event

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")


def test_the_columns_are_those_of_an_export() -> None:
    """All of them, in their order."""
    table = PAGE.partition("| column | what it holds |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == list(COLUMNS)


async def test_the_commands_are_there_and_the_exports_run(bus_url: str, tmp_path: Path) -> None:
    """Each writes the file that it names."""
    exports = re.findall(r"^    hookbus (events export \w\S+.*)$", PAGE, flags=re.MULTILINE)
    named = re.findall(r"^\| `hookbus (events [\w-]+)", PAGE, flags=re.MULTILINE)
    async with AsyncExitStack() as stack:
        bus = Bus(bus_url, stack)
        await bus.record(await bus.streams(), make_event(0))
        written = [tuple(shlex.split(command, comments=True)) for command in exports]
        shown = [(*command.split(), "--help") for command in named]
        ended = await one_by_one(tmp_path, *written, *shown, HOOKBUS_URL=bus_url)
    assert [(one.code, one.err) for one in ended] == [(0, "")] * 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls.jsonl", "calls.parquet", "denied.csv"]  # noqa: ASYNC240


async def test_the_consumer_of_ones_own_runs(bus_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands on the page."""
    monkeypatch.setenv("HOOKBUS_URL", bus_url)
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    running = eval(compile(code, "events.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307
    assert inspect.isawaitable(running)
    await running
    assert isinstance(names["consumer"], Consumer)
