"""A plugin that does its worst: each fault with a real process of Node.js. It costs its own answer, and no other."""

import asyncio
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from children import alive
from hookbus_schemas import Decision, ToolHookContext, ToolHookWithContext, Verdict
from hookbus_subscribers import HookServer
from hookbus_subscribers.plugin_bridge import PluginHook, PluginUnavailable
from hooking import Bus
from plugging import call, handling, needs_node, running_plugin, write_plugin
from support import eventually, until

pytestmark = needs_node

PID = 'if (ctx.toolName === "pid") return { allow: false, reason: String(process.pid) };'


def unavailable(problem: str) -> Decision:
    """Return what a plugin that gave no answer is taken to have answered."""
    return Decision.error(f"the plugin gave no answer: {problem}", reason_code="plugin_unavailable")


def failed(problem: str) -> Decision:
    """Return what a plugin whose handler failed is taken to have answered."""
    return Decision.error(f"a handler of the plugin failed: {problem}", reason_code="plugin_error")


ENDS = [
    pytest.param("while (true);", "did not answer within 0.5 seconds", id="hangs"),
    pytest.param("await new Promise(() => {});", "did not answer within 0.5 seconds", id="never decides"),
    pytest.param("process.exit(3);", "ended", id="exits"),
    pytest.param('process.kill(process.pid, "SIGKILL");', "ended", id="is killed"),
    pytest.param("process.abort();", "ended", id="aborts"),
    pytest.param(
        'setTimeout(() => { throw new Error("x"); }); await new Promise(() => {});', "ended", id="throws in a timer"
    ),
    pytest.param(
        'const all = process._getActiveHandles(); all.forEach((one) => one.remoteAddress ?? one.write?.("x\\n"));'
        "await new Promise(() => {});",
        "broke the bridge's stream: no JSON",
        id="writes to the bridge's socket",
    ),
]


@pytest.mark.parametrize(("code", "problem"), ENDS)
async def test_a_plugin_that_ends_is_started_again(code: str, problem: str, tmp_path: Path) -> None:
    """Its call has no answer, later ones are answered by a new process."""
    folder = write_plugin(tmp_path, handling(f'{PID} if (ctx.toolName === "bad") {{ {code} }}'))
    async with running_plugin(folder, answer_timeout=0.5) as hook:
        first = await hook.before_execute(call("pid"))
        ended = await hook.before_execute(call("bad"))
        second = await answered(hook, call("pid"))
    assert ended == unavailable(problem)
    assert first.decision is second.decision is Verdict.DENY
    assert first.reason != second.reason
    await until(lambda: not alive(int(first.reason)) and not alive(int(second.reason)))


async def answered(hook: PluginHook, context: ToolHookContext) -> Decision:
    """Ask until there is an answer."""
    async with asyncio.timeout(20):
        while (decision := await hook.before_execute(context)).decision is Verdict.ERROR:
            pass
    return decision


async def test_calls_that_come_while_a_plugin_is_started_again_wait_for_it(tmp_path: Path) -> None:
    """A guard that is away for a moment lets nothing pass; what it was asked when it ended has no answer."""
    code = handling('if (ctx.toolName === "bad") process.exit(1); return { allow: false, reason: ctx.arguments };')
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        assert await hook.before_execute(call("bad")) == unavailable("ended")
        waited = await asyncio.gather(*(hook.before_execute(call("good", str(n))) for n in range(20)))
    assert [decision.reason for decision in waited] == [str(n) for n in range(20)]


async def test_a_plugin_that_ends_again_and_again_is_given_up(tmp_path: Path) -> None:
    """After the last restart every call has no answer, at once, and the log says so."""
    with capture_logs() as logs:
        async with running_plugin(
            write_plugin(tmp_path, handling("process.exit()")), restart_waits=(0.01, 0.02)
        ) as hook:
            for _ in range(3):
                assert await hook.before_execute(call()) == unavailable("ended")
            problem = "ended, and was started again 2 times already: restart its hook"
            given_up = unavailable(f"the plugin is not running: it {problem}")
            assert await hook.before_execute(call()) == given_up
            with pytest.raises(PluginUnavailable, match="is not running"):
                await hook.after_execute(call(), "", 0, False)
    assert [line["restart_after_s"] for line in logs if line["event"] == "plugin.ended"] == [0.01, 0.02]
    about = {"hook": "plugin:p", "problem": problem, "log_level": "error"}
    assert {"event": "plugin.given_up"} | about in logs


async def test_subscriptions_are_read_again_when_a_plugin_is_started_again(tmp_path: Path) -> None:
    """What the first process was for does not count any more; nor does what one adds later have to wait."""
    code = """const fs = require("fs");
    const times = fs.existsSync("times") ? Number(fs.readFileSync("times")) + 1 : 0;
    fs.writeFileSync("times", String(times));
    module.exports = (api) => {
      if (times === 0) api.on("tool:after", () => process.exit());
      if (times === 1) api.on("tool:before", (ctx) => ctx.toolName === "end" ? process.exit() : false);
      if (times === 2) setTimeout(() => api.on("tool:*", () => false), 1);
    };"""
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        assert (await hook.before_execute(call())).decision is Verdict.ALLOW
        await hook.after_execute(call(), "", 0, False)
        await until_denied(hook)
        assert (await hook.before_execute(call("end"))).decision is Verdict.ERROR
        await until_denied(hook)


async def until_denied(hook: PluginHook) -> None:
    """Ask until the answer is a deny."""

    async def denied() -> bool:
        return (await hook.before_execute(call())).decision is Verdict.DENY

    await eventually(denied)


async def test_a_plugin_that_cannot_be_loaded_again_is_given_up(tmp_path: Path) -> None:
    """A start that fails counts as a restart; the log has the plugin's own words."""
    code = 'const fs = require("fs"); if (fs.existsSync("seen")) throw new Error("no"); fs.writeFileSync("seen", "");'
    folder = write_plugin(tmp_path, code + handling("process.exit()"))
    with capture_logs() as logs:
        async with running_plugin(folder) as hook:
            assert await hook.before_execute(call()) == unavailable("ended")
            given_up = await hook.before_execute(call())
    assert given_up.reason.endswith("Error: no, and was started again 3 times already: restart its hook")
    assert [line["event"] for line in logs].count("plugin.ended") == 3


async def test_a_late_answer_is_late_and_the_plugin_lives_on(bus: Bus, tmp_path: Path) -> None:
    """The deadline is the caller's; the plugin hangs only after a time of its own."""
    code = handling(f"{PID} await new Promise((resolve) => setTimeout(resolve, 150)); return false;")
    asker = await bus.asker("plugin:p")
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        first = await hook.before_execute(call("pid"))
        async with HookServer(Served(hook), await bus.connection()) as server:
            deadline = round(time.time() * 1000) + 50
            assert (await asker.ask(deadline_ms=deadline)).decision is Verdict.DENY
            assert server.served.late == 1
        assert await hook.before_execute(call("pid")) == first


async def test_a_plugin_hangs_though_its_caller_has_gone(tmp_path: Path) -> None:
    """Its process is ended all the same: the next caller would wait in vain."""
    code = handling(f"{PID} await new Promise(() => {{}});")
    async with running_plugin(write_plugin(tmp_path, code), answer_timeout=0.5) as hook:
        first = await hook.before_execute(call("pid"))
        asking = asyncio.create_task(hook.before_execute(call()))
        await asyncio.sleep(0)
        asking.cancel()
        await until(lambda: not alive(int(first.reason)))


class Served(ToolHookWithContext):
    """A plugin that the test starts and ends by itself."""

    def __init__(self, hook: PluginHook) -> None:
        self.name = hook.name
        self.before_execute = hook.before_execute  # type: ignore[method-assign]


LONG_NAME = 'class Odd extends Error { get name() { return "x".repeat(1e6) + "\\n"; } }; throw new Odd("secret")'
FAILURES = [
    pytest.param('throw new TypeError("secret")', "TypeError", id="throws"),
    pytest.param('return Promise.reject(new Error("secret"))', "Error", id="rejects"),
    pytest.param("throw undefined", "undefined", id="throws undefined"),
    pytest.param("throw null", "object", id="throws null"),
    pytest.param('throw { code: "secret" }', "object", id="throws an object"),
    pytest.param("throw Object.create(null, { toJSON: { get() { throw 1; } } })", "object", id="cannot be shown"),
    pytest.param("return { get allow() { throw new RangeError('secret'); } }", "RangeError", id="answer that throws"),
    pytest.param(LONG_NAME, "x" * 500, id="a long name"),
]


@pytest.mark.parametrize(("code", "words"), FAILURES)
async def test_a_handler_that_fails_is_no_answer_and_the_next_is_still_asked(
    code: str, words: str, tmp_path: Path
) -> None:
    """The failure policy decides, unless another denies; the process lives on. Its words are in the log alone."""
    code = f"""module.exports = (api) => {{
      api.on("tool:before", async (ctx) => {{ {PID} {code} }});
      api.on("tool:before", (ctx) => ctx.toolName !== "rm");
    }};"""
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        before = await hook.before_execute(call("pid"))
        no_answer = await hook.before_execute(call())
        denied = await hook.before_execute(call("rm"))
        after = await hook.before_execute(call("pid"))
    assert no_answer == failed(words)
    assert denied == Decision.deny("", reason_code="plugin")
    assert before == after


async def test_a_rejection_that_nobody_looks_at_harms_nothing(tmp_path: Path) -> None:
    """Node.js would end the process for it; the log has it."""
    with capture_logs() as logs:
        async with running_plugin(
            write_plugin(tmp_path, handling(f'{PID} Promise.reject(new Error("stray"));'))
        ) as hook:
            first = await hook.before_execute(call("pid"))
            assert (await hook.before_execute(call())).decision is Verdict.ALLOW
            assert await hook.before_execute(call("pid")) == first
    assert any("nobody looked: Error: stray" in line["text"] for line in logs if line["event"] == "plugin.printed")
