"""The process of a plugin: what it is given, what it leaves behind, and whose death it does not survive."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from children import Child, alive
from hookbus_schemas import Verdict
from hookbus_subscribers.plugin_bridge import PluginEntry, PluginHook, PluginSettings
from plugging import call, handling, needs_node, running_plugin, write_plugin
from support import until

pytestmark = needs_node

SHELLS_OWN = {"PWD", "OLDPWD", "SHLVL", "_"}
"""Variables that some shells set by themselves."""

REASON = "return { allow: false, reason: JSON.stringify(%s) };"


async def test_the_environment_holds_what_is_named_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets of the process that runs it are not for it; nor is NODE_OPTIONS."""
    for name in ("SECRET", "TOKEN", "NODE_OPTIONS", "HOOKBUS_URL"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    settings = PluginSettings(entries={"p": PluginEntry(environment=("TOKEN", "NOT_SET"))})
    async with running_plugin(write_plugin(tmp_path, handling(REASON % "process.env")), settings) as hook:
        told = json.loads((await hook.before_execute(call())).reason)
    assert set(told) - SHELLS_OWN == {"PATH", "HOME", "LANG", "TZ", "TOKEN"}
    assert told["TOKEN"] == "value of TOKEN"


async def test_it_runs_in_its_folder_without_standard_input(tmp_path: Path) -> None:
    """And in a session of its own, so that Ctrl-C in a terminal does not end it before its hook drains."""
    code = handling(REASON % '[process.cwd(), require("fs").readFileSync(0, "utf8"), process.stdout.isTTY ?? false]')
    async with running_plugin(write_plugin(tmp_path / "a b", code)) as hook:
        told = json.loads((await hook.before_execute(call())).reason)
    assert told == [str((tmp_path / "a b").resolve()), "", False]


GRANDCHILD = """
  const started = require("child_process").spawn("sleep", ["1000"], { stdio: "inherit" });
  return { allow: false, reason: `${process.pid} ${started.pid}` };
"""


async def pids(hook: PluginHook) -> list[int]:
    """Return the processes that the plugin says there are, all alive."""
    found = [int(pid) for pid in (await hook.before_execute(call("start"))).reason.split()]
    assert len(found) == 2
    assert all(map(alive, found))
    return found


@pytest.mark.parametrize("ends", ["process.exit()", "while (true)", 'process.kill(process.pid, "SIGKILL")'])
async def test_what_a_plugin_has_started_ends_with_it(ends: str, tmp_path: Path) -> None:
    """However it ends."""
    folder = write_plugin(tmp_path, handling(f'if (ctx.toolName === "end") {ends}; {GRANDCHILD}'))
    async with running_plugin(folder, answer_timeout=0.5) as hook:
        first = await pids(hook)
        assert (await hook.before_execute(call("end"))).decision is Verdict.ERROR
        await until(lambda: not any(map(alive, first)))


async def test_what_a_plugin_has_started_ends_when_its_hook_does(tmp_path: Path) -> None:
    """The ordinary way."""
    async with running_plugin(write_plugin(tmp_path, handling(GRANDCHILD))) as hook:
        found = await pids(hook)
    await until(lambda: not any(map(alive, found)))


OWNER = """
import asyncio, sys
from pathlib import Path
from hookbus_subscribers.plugin_bridge import load_plugin
from plugging import call

async def main():
    hook = load_plugin(Path(sys.argv[1]))
    await hook.attach()
    print((await hook.before_execute(call("start"))).reason, flush=True)
    await hook.before_execute(call("stick"))

asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_plugin_does_not_outlive_its_hooks_process(how: signal.Signals, tmp_path: Path) -> None:
    """Even one that is stuck, when the other is killed and can say nothing any more."""
    folder = write_plugin(tmp_path, handling(f'if (ctx.toolName === "stick") while (true); {GRANDCHILD}'))
    async with Child(OWNER, str(folder)) as owner:
        found = [int(pid) for pid in (await owner.line()).split()]
        assert all(map(alive, found))
        owner.process.send_signal(how)
        await until(lambda: not any(map(alive, found)))


async def test_what_a_plugin_was_told_is_done_before_it_ends(tmp_path: Path) -> None:
    """Its hook asks it to end, and waits for the handlers of tool:after; nobody else does."""
    code = """const fs = require("fs");
    module.exports = (api) => {
      api.on("tool:before", () => false);
      api.on("tool:after", async (ctx) => {
        await new Promise((resolve) => setTimeout(resolve, 100));
        fs.writeFileSync("told.json", JSON.stringify(ctx));
      });
    };"""
    context = call("db", '{"a":1}', session_id="s", channel_id="ch", sender_id="se", correlation_id="co", call_id="c1")
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        await hook.after_execute(context, "done: ä", 0.0125, True)
        assert (await hook.before_execute(call())).decision is Verdict.DENY
        assert not (tmp_path / "told.json").exists()
    assert json.loads((tmp_path / "told.json").read_text()) == {
        "toolName": "db",
        "arguments": '{"a":1}',
        "phase": "after",
        "sessionId": "s",
        "channelId": "ch",
        "senderId": "se",
        "correlationId": "co",
        "callId": "c1",
        "dryRun": False,
        "result": "done: ä",
        "durationMs": 12.5,
        "duration": 12.5,
        "failed": True,
    }


async def test_a_handler_of_what_ran_that_fails_or_hangs_keeps_nobody_from_anything(tmp_path: Path) -> None:
    """Not the next handler, not the next call, not the end."""
    code = """module.exports = (api) => {
      api.on("tool:after", () => { throw new Error("no"); });
      api.on("tool:after", (ctx) => require("fs").appendFileSync("told", ctx.toolName));
      api.on("tool:after", () => new Promise(() => {}));
      api.on("tool:before", () => false);
    };"""
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        for tool in "abc":
            await hook.after_execute(call(tool), "", 0, False)
        assert (await hook.before_execute(call())).decision is Verdict.DENY
        assert (tmp_path / "told").read_text() == "abc"


async def test_a_plugin_that_is_told_and_does_not_read_is_ended(tmp_path: Path) -> None:
    """What waits for it is bounded in bytes and in time."""
    code = handling("while (true);", "tool:after")
    async with running_plugin(write_plugin(tmp_path, code), answer_timeout=0.5) as hook:
        telling = [hook.after_execute(call(), "x" * 4_000_000, 0, False) for _ in range(20)]
        told = await asyncio.gather(*telling, return_exceptions=True)
    refused = [str(one) for one in told if one is not None]
    assert "did not read for 0.5 seconds" in refused
    assert any("are over the 67108864 allowed" in words for words in refused)
