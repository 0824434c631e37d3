"""``hookbus whatif``: recorded calls, and what another hook would have made of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import hookbus
from hookbus_broker import BusSettings, connect, ensure_streams
from hookbus_executor import Executor, ExecutorSettings, Session
from hookbus_subscribers import Autonomy, AutonomySettings

HOOKS = '''
from hookbus_subscribers import Decision, hook

@hook("no-drops")
async def no_drops(context):
    """Deny what drops."""
    if "BREAK" in context.arguments_json:
        raise RuntimeError("broken")
    assert context.dry_run
    return Decision.deny("never") if "DROP" in context.arguments_json else Decision.allow()
'''


@pytest.fixture
async def recorded(bus_url: str, tmp_path: Path) -> str:
    """A bus with six calls in its record, one of them denied by Autonomy, one by the executor."""
    bus = BusSettings(url=bus_url, events_max_bytes=8 * 2**20, state_dir=tmp_path / "state")
    async with await connect(bus, name="operator") as connection:
        await ensure_streams(connection, bus)
    executor = Executor("agent", bus=bus, settings=ExecutorSettings(required_hooks=()))
    executor.add_hook(Autonomy(AutonomySettings(allowed_shell_command_globs=("ls*",))))

    @executor.tool
    async def query(sql: str) -> str:
        return f"did {sql}"

    @executor.tool
    async def shell(command: str) -> str:
        return f"did {command}"

    async with executor:
        for sql in ("SELECT", "DROP", "DROP", "BREAK"):
            await executor.execute("query", {"sql": sql}, session=Session("s1"))
        await executor.execute("shell", {"command": "rm x"})
        await executor.execute("unknown", {"sql": "DROP"})
        await executor.flush()
    return bus_url


async def whatif(folder: Path, url: str, *arguments: str) -> dict[str, Any]:
    """Return what the command prints as JSON, without the time that it took."""
    ended = await hookbus(folder, "whatif", *arguments, "--json", HOOKBUS_URL=url)
    assert (ended.code, ended.err) == (0, "")
    printed: dict[str, Any] = json.loads(ended.out)
    assert printed.pop("seconds") >= 0
    return printed


async def test_a_new_hook_is_asked_about_recorded_calls(recorded: str, tmp_path: Path) -> None:
    """What it would have denied, and where it fails; a call of an unknown tool never reached a hook."""
    (tmp_path / "my_hooks.py").write_text(HOOKS)
    found = await whatif(tmp_path, recorded, "my_hooks:no_drops")
    assert (found["hook"], found["asked"]) == ("no-drops", 5)
    assert (found["denied"]["tools"], found["allowed"]["tools"]) == ({"query": 2}, {})
    assert [(one["session"], one["reason"]) for one in found["denied"]["examples"]] == [("s1", "never")] * 2
    assert [one["reason"] for one in found["unanswered"]["examples"]] == ["it raised RuntimeError"]


async def test_a_built_in_hook_is_tried_with_another_configuration(recorded: str, tmp_path: Path) -> None:
    """What it denied and would allow, and the other way round, in words for people."""
    (tmp_path / "new.toml").write_text('[autonomy]\nmode = "readonly"\nread_only_tools = ["query"]\n')
    (tmp_path / "open.toml").write_text("[autonomy]\n")
    strict = await whatif(tmp_path, recorded, "Autonomy", "--config", "new.toml", "--since", "1h")
    assert (strict["denied"]["tools"], strict["allowed"]["tools"]) == ({}, {})
    loose = await hookbus(tmp_path, "whatif", "Autonomy", "--config", "open.toml", HOOKBUS_URL=recorded)
    assert loose.code == 0
    assert "would have allowed, and denied: 1 (shell 1), such as" in loose.out
    assert "shell command rm is not among the allowed ones" in loose.out


async def test_a_slip_is_one_line(recorded: str, tmp_path: Path) -> None:
    """With exit code 2."""
    for arguments, says in {
        ("Autonomie",): "there is no module Autonomie in",
        ("Autonomy", "--since", "soon"): "time 'soon' should be such as 30s",
        ("Autonomy", "--config", "none.toml"): "configuration file none.toml does not exist",
    }.items():
        ended = await hookbus(tmp_path, "whatif", *arguments, HOOKBUS_URL=recorded)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert says in ended.err
