"""The built-in policy hooks under test: asked by a real executor, about a small tree of files."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hookbus_broker import BusSettings, connect, ensure_streams
from hookbus_executor import Admission, Executor, ExecutorSettings
from hookbus_schemas import Hook

Case = dict[str, Any]
CASES = Path(__file__).parents[1] / "cases"


def cases(name: str) -> list[Case]:
    """Return the cases of a file, without the line that says which files there are."""
    return [case for case in map(json.loads, (CASES / name).read_text().splitlines()) if "fixture" not in case]


class Disk:
    """The files that cases speak of: a workspace {W}, its neighbour, a directory {O} outside, the home {HOME}."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.outside = folder / "work", folder / "outside"
        first = json.loads((CASES / "autonomy.jsonl").read_text().splitlines()[0])["fixture"]
        made = self.fill(first)
        for path in made["dirs"]:
            Path(path).mkdir(parents=True, exist_ok=True)
        for path in made["files"]:
            Path(path).write_text(path)
        for path, target in made["links"].items():
            Path(path).symlink_to(target)

    def fill(self, value: Any) -> Any:
        """Return the value with the placeholders in its texts and keys replaced."""
        text = json.dumps(value)
        for name, path in {"W": self.workspace, "O": self.outside, "HOME": Path.home()}.items():
            text = text.replace(f"{{{name}}}", str(path))
        return json.loads(text)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A new tree, links resolved on the way to it."""
    return Disk(tmp_path.resolve())


class Asking:
    """Starts executors with a hook in their own process, closed with the test."""

    def __init__(self, bus: BusSettings, stack: AsyncExitStack) -> None:
        self._bus = bus
        self._stack = stack

    async def executor(self, *hooks: Hook) -> Executor:
        """Start an executor that asks these hooks alone."""
        executor = Executor("e1", bus=self._bus, settings=ExecutorSettings(required_hooks=()))
        for hook in hooks:
            executor.add_hook(hook)
        return await self._stack.enter_async_context(executor)

    async def admit(self, hook: Hook, tool: str, arguments: str | dict[str, Any]) -> Admission:
        """Ask one hook about one call."""
        return await (await self.executor(hook)).admit(tool, arguments)


@pytest.fixture
async def asking(bus_url: str) -> AsyncIterator[Asking]:
    """A bus with its streams, and nothing registered."""
    bus = BusSettings(url=bus_url, events_max_bytes=8 * 2**20)
    async with await connect(bus, name="operator") as connection:
        await ensure_streams(connection, bus)
    async with AsyncExitStack() as stack:
        yield Asking(bus, stack)
