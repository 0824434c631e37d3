"""What a plugin in JavaScript costs, beside the same decision of a hook in Python."""

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.report import Row
from benchmarks.rounds import latency, throughput
from benchmarks.serving import serving
from hookbus_broker import HOOKS, BusSettings, connect, ensure_streams, open_bus, put
from hookbus_executor import Admission, Executor, ExecutorSettings
from hookbus_schemas import HookRegistration, subjects

ARGUMENTS = {"query": "SELECT name FROM users WHERE id = 7", "note": "x" * 400}
PLUGIN = "plugin:bench"
CODE = 'module.exports = (api) => api.on("tool:before", (ctx) => !ctx.arguments.includes("DROP TABLE"));\n'
AT_ONCE = 500

Admit = Callable[[str], Callable[[], Awaitable[Admission]]]


@asynccontextmanager
async def stage() -> AsyncIterator[Admit]:
    """Set everything up: bus, a hook in Python, a plugin by the command, an executor; yield how to ask one of them."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hookbus-bench-")))
        url = await stack.enter_async_context(open_bus(BusSettings(state_dir=folder / "bus")))
        bus = BusSettings(url=url)
        async with await connect(bus, name="operator") as operator:
            await ensure_streams(operator, bus)
            for name, tool in (("h0", "python"), (PLUGIN, "plugin")):
                await put(operator, HOOKS, subjects.token(name), HookRegistration(tools=(tool,)).to_json())
        await stack.enter_async_context(serving("hooks", url, "h0"))
        await stack.enter_async_context(_plugin(url, folder / "plugin"))
        settings = ExecutorSettings(required_hooks=())
        executor = await stack.enter_async_context(Executor("benchmark-executor3", bus=bus, settings=settings))

        def admit(tool: str) -> Callable[[], Awaitable[Admission]]:
            async def work() -> Admission:
                admission = await executor.admit(tool, ARGUMENTS)
                assert admission.allowed, admission
                return admission

            return work

        yield admit


def _write(folder: Path) -> None:
    folder.mkdir()
    (folder / "openclaw.plugin.json").write_text(json.dumps({"id": PLUGIN.partition(":")[2]}))
    (folder / "index.js").write_text(CODE)


@asynccontextmanager
async def _plugin(url: str, folder: Path) -> AsyncIterator[None]:
    """Serve the plugin as an operator does."""
    _write(folder)
    command = (sys.executable, "-m", "hookbus_cli", "--url", url, "serve", f"plugin:{folder}")
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=DEVNULL)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline(), "the plugin is not served: is there a Node.js?"
        yield
    finally:
        process.terminate()
        await process.wait()


async def measure(admit: Admit, rounds: int) -> tuple[list[Row], list[str]]:
    """Return the rows (name, figures, baseline, no bar), and the names of those that are rates."""
    python, plugin = "hookbus admission, 1 hook in Python", "hookbus admission, 1 plugin in JavaScript"
    found = await latency([(python, admit("python"), 60), (plugin, admit("plugin"), 60)], rounds)
    contestants = [
        (f"{name}, {AT_ONCE} at once", admit(tool)) for name, tool in ((python, "python"), (plugin, "plugin"))
    ]
    rates = await throughput(contestants, at_once=AT_ONCE, each=2, rounds=max(2, rounds // 2))
    base, base_rate = found[python], rates[contestants[0][0]]
    rows: list[Row] = [(name, one, base, None) for name, one in found.items()]
    return [*rows, *((name, one, base_rate, None) for name, one in rates.items())], list(rates)
