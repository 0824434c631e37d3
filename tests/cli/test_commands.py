"""The commands as people and scripts use them: real processes, a bus of their own in a folder of their own."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from children import alive
from cli.running import COMMAND, environment, hookbus, one_by_one, running
from hookbus_schemas.globs import matches_any
from hookbus_subscribers import BUILT_IN

HOOK = '''
from hookbus_subscribers import Decision, ToolHookContext, hook


@hook("no-drops", tools=["db_*"])
async def no_drops(context: ToolHookContext) -> Decision:
    """Deny what drops."""
    return Decision.deny("never") if "DROP" in context.arguments_json else Decision.allow()
'''
ASKED = [name for name, one in BUILT_IN.items() if matches_any(one.registration.tools, "db_query")]
"""The built-in hooks that are asked about it."""
DROP = ("check", "db_query", '{"sql": "DROP TABLE users"}')


async def data(folder: Path, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    ended = await hookbus(folder, *arguments)
    assert ended.err == ""
    return json.loads(ended.out)


async def test_a_hook_from_serving_to_enforcing(tmp_path: Path) -> None:
    """up, serve, add, check, shadow, enforce, remove: each sees what the others did; the end leaves nothing behind."""
    (tmp_path / "my_hooks.py").write_text(HOOK)
    async with running(tmp_path, "up") as up:
        await up.says("hooks: AuditLog, Autonomy")
        async with running(tmp_path, "serve", "my_hooks:no_drops") as serve:
            assert "hookbus hooks add no-drops" in await serve.says("no-drops is not registered")
            assert (await hookbus(tmp_path, *DROP)).code == 0
            added = await hookbus(tmp_path, "hooks", "add", "no-drops", "--tools", "db_*", "--owner", "payments")
            assert added.out == f"no-drops registered, revision {len(BUILT_IN) + 1}\n"
            names = [hook["name"] for hook in await data(tmp_path, "hooks", "list", "--json")]
            assert sorted(names) == sorted([*BUILT_IN, "no-drops"])
            denied = await hookbus(tmp_path, *DROP)
            assert (denied.code, denied.out.splitlines()[-1]) == (1, "denied by no-drops: never")
            answer = json.loads((await hookbus(tmp_path, *DROP, "--json")).out)
            for decision in answer["decisions"]:
                assert decision.pop("elapsed_ms") > 0
            allows = [{"hook": name, "decision": "allow", "reason": ""} for name in ASKED]
            deny = {"hook": "no-drops", "decision": "deny", "reason": "never"}
            assert answer == {
                "allowed": False,
                "denied_by": "no-drops",
                "reason": "never",
                "decisions": [*allows, deny],
            }
            await hookbus(tmp_path, "hooks", "shadow", "no-drops")
            assert (await hookbus(tmp_path, *DROP)).code == 0
            await hookbus(tmp_path, "hooks", "enforce", "no-drops")
            shown = await data(tmp_path, "hooks", "show", "no-drops")
            assert (shown["enforcement"], shown["owner"], shown["revision"]) == (
                "enforce",
                "payments",
                len(BUILT_IN) + 3,
            )
            assert await serve.end(signal.SIGTERM) == 0
        dead = await hookbus(tmp_path, *DROP)
        assert dead.code == 1
        assert "denied by no-drops: unavailable: no replica of it is running" in dead.out
        assert (await hookbus(tmp_path, "hooks", "remove", "no-drops")).out == "no-drops removed\n"
        assert (await hookbus(tmp_path, *DROP)).code == 0
        pid = json.loads((tmp_path / ".hookbus" / "server.json").read_text())["pid"]
        assert alive(pid)
        assert await up.end(signal.SIGTERM) == 0
    assert not alive(pid)


async def test_ctrl_c_ends_up_and_its_server(tmp_path: Path) -> None:
    """Nothing is left behind."""
    async with running(tmp_path, "up") as up:
        await up.says("up: ")
        pid = json.loads((tmp_path / ".hookbus" / "server.json").read_text())["pid"]
        assert await up.end(signal.SIGINT) == 0
    assert not alive(pid)


async def test_a_thousand_calls_are_answered_in_order_on_a_bus_made_for_them(tmp_path: Path) -> None:
    """Each line has its answer, also one that is no call; no process, no file is left."""
    lines = [json.dumps({"id": n, "tool": "shell", "arguments": {"n": n}, "session_id": "s"}) for n in range(1000)]
    lines[10] = json.dumps({"id": "raw", "tool": "shell", "arguments_json": "[1]"})
    lines[11] = "no JSON"
    lines[12] = json.dumps({"id": "no tool"})
    (tmp_path / "calls.jsonl").write_text("\n".join(lines) + "\n\n")
    ended = await hookbus(tmp_path, "check", "--calls", "calls.jsonl")
    assert (ended.code, ended.err) == (0, "")
    answers = [json.loads(line) for line in ended.out.splitlines()]
    ids = list(range(1000))
    assert [answer["id"] for answer in answers] == [*ids[:10], "raw", None, "no tool", *ids[13:]]
    assert [answer["id"] for answer in answers if not answer["allowed"]] == ["raw", None, "no tool"]
    assert {answers[n]["denied_by"] for n in (10, 11, 12)} == {"executor"}
    assert answers[10]["reason"] == "arguments must be a JSON object, not an array"
    assert answers[11]["reason"].startswith("line 12 is no call: Invalid JSON: ")
    assert answers[12]["reason"] == "line 13 is no call: tool: Field required"
    assert [one["hook"] for one in answers[0]["decisions"]] == ASKED
    assert os.listdir(tmp_path) == ["calls.jsonl"]  # noqa: PTH208


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_check_that_is_ended_leaves_nothing(how: signal.Signals, tmp_path: Path) -> None:
    """The bus that was started for it and its folder go, and the exit code says why."""
    (tmp_path / "tmp").mkdir()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("check", "--calls", "-"),
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path / "tmp")),
        stdin=-1,
        stdout=-1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"id": 1, "tool": "shell"}\n')
    async with asyncio.timeout(20):
        assert json.loads(await process.stdout.readline())["id"] == 1
        (record,) = (tmp_path / "tmp").glob("hookbus-check-*/server.json")
        pid = json.loads(record.read_text())["pid"]
        process.send_signal(how)
        assert await process.wait() == 128 + how
    assert not alive(pid)
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_events_are_shown_to_people_and_programs(tmp_path: Path) -> None:
    """An agent's calls stand in the record, oldest first."""
    agent = """
import asyncio
from hookbus_broker import BusSettings
from hookbus_executor import Executor, Session
async def main():
    async with Executor("agent", bus=BusSettings.load()) as executor:
        executor.tool(name="echo")(lambda text: text)
        await executor.execute("echo", {"text": "a"}, session=Session("s1"))
        await executor.execute("nosuch", {}, session=Session("[red]s2"))
asyncio.run(main())
"""
    (tmp_path / "agent.py").write_text(agent)
    async with running(tmp_path, "up") as up:
        await up.says("hooks: ")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "agent.py", cwd=tmp_path, env=environment(), stdout=-1
        )
        await process.communicate()
        lines = (await hookbus(tmp_path, "events", "tail")).out.splitlines()
        assert [line.split(" ", 2)[2].rpartition(" ms")[0] or line.split(" ", 2)[2] for line in lines][1] == (
            "[red]s2 nosuch denied by executor: Unknown tool"
        )
        assert " s1 echo completed " in lines[0]
        events = [json.loads(line) for line in (await hookbus(tmp_path, "events", "tail", "--json")).out.splitlines()]
        assert [(event["type"], event["context"]["tool_name"]) for event in events] == [
            ("tool:after", "echo"),
            ("tool:denied", "nosuch"),
        ]
        assert (await hookbus(tmp_path, "events", "tail", "--since", "2100-01-01T00:00")).out == ""
        found = json.loads((await hookbus(tmp_path, "events", "stats", "--json")).out)
        assert (found["calls"], sum(found["outcomes"].values())) == (len(events), len(events))
        shown = (await hookbus(tmp_path, "events", "stats", "--outcome", "denied")).out.splitlines()
        assert shown[0] == f"{found['outcomes']['denied']} calls: {found['outcomes']['denied']} denied"
        verified = await hookbus(tmp_path, "events", "verify")
        whole = f"clean: {len(events)} events in 1 chains, none missing, none changed\n"
        assert (verified.code, verified.out) == (0, whole)
        about = {"events": len(events), "chains": 1, "last_good": len(events), "findings": []}
        assert json.loads((await hookbus(tmp_path, "events", "verify", "--json")).out) == about


NO_BUS = "no bus is running here: start one with `hookbus up`"
SLIPS = {
    ("hooks", "list"): NO_BUS,
    ("events", "tail"): "no bus is running here",
    ("events", "replay", "--since", "soon"): "time 'soon' should be such as 30s",
    ("serve", "no_such_module"): "no_such_module",
    ("check",): "give a tool and its arguments",
    ("check", "--calls", "nowhere.jsonl"): "calls nowhere.jsonl cannot be read",
    ("check", "t", "--calls", "x"): "give either a tool or --calls",
    ("--url", "http://x", "hooks", "list"): "bus.url",
    ("--url", "nats://127.0.0.1:1", "hooks", "list"): "127.0.0.1:1",
    ("--config", "nowhere.toml", "up"): "nowhere.toml",
    ("hooks", "add", "h", "--timeout-ms", "9000"): "timeout_ms",
    ("hooks", "add", "h", "--file", "nowhere.json"): "nowhere.json",
    ("nosuch",): "No such command 'nosuch'; see hookbus --help",
    ("hooks", "ad", "h"): "No such command 'ad'. Did you mean 'add'?; see hookbus hooks --help",
    ("hooks", "add"): "Missing argument 'name'; see hookbus hooks add --help",
    ("check", "--nosuch"): "No such option: --nosuch; see hookbus check --help",
    ("check", "--config"): "Option '--config' requires an argument; see hookbus",
    ("hooks", "add", "h", "--order", "first"): "see hookbus hooks add --help",
}


async def test_an_error_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    """Exit code 2, no traceback."""
    alone = await hookbus(tmp_path, "hooks", "list")
    for ended, says in zip([alone, *await one_by_one(tmp_path, *SLIPS)], [NO_BUS, *SLIPS.values()], strict=True):
        assert ended.code == 2
        (line,) = ended.err.splitlines()
        assert line.startswith("hookbus: ")
        assert says in line


async def test_settings_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    """A slip in the file or the environment stops the start and is named."""
    (tmp_path / "hookbus.toml").write_text("[buss]\nurl = 'nats://x'\n")
    assert "did you mean bus" in (await hookbus(tmp_path, "up")).err
    (tmp_path / "hookbus.toml").write_text("[executor]\ntool_timout = 3\n")
    assert "did you mean tool_timeout" in (await hookbus(tmp_path, "check", "t", "{}")).err
    (tmp_path / "hookbus.toml").unlink()
    assert "did you mean HOOKBUS_URL" in (await hookbus(tmp_path, "hooks", "list", HOOKBUS_URK="x")).err


async def test_help_teaches(tmp_path: Path) -> None:
    """Each command says what it does and gives an example."""
    commands: list[tuple[str, ...]] = [
        ("demo",),
        ("up",),
        ("serve",),
        ("check",),
        ("whatif",),
    ]
    commands += [("events", name) for name in ("export", "replay", "retry", "set-aside", "stats", "tail", "verify")]
    commands += [("contracts", name) for name in ("attach", "list", "remove", "show")]
    commands += [("hooks", name) for name in ("add", "enforce", "list", "remove", "shadow", "show")]
    shown = await one_by_one(tmp_path, *((*command, "--help") for command in commands))
    assert [(ended.code, "Example" in ended.out, ended.err) for ended in shown] == [(0, True, "")] * len(commands)


async def test_the_command_alone_shows_where_to_begin(tmp_path: Path) -> None:
    """Its help names the demo."""
    ended = await hookbus(tmp_path, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert "Begin with hookbus demo" in ended.out.replace("`", "")


async def test_help_does_not_wait_for_what_it_does_not_need(tmp_path: Path) -> None:
    """The executor's and the hooks' side are imported by the commands that use them, when they run."""
    code = "import sys, hookbus_cli.main; print({'hookbus_executor', 'hookbus_subscribers'} & set(sys.modules))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=tmp_path, env=environment(), stdout=-1
    )
    assert (await process.communicate())[0] == b"set()\n"
