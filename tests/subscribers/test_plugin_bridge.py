"""A plugin in JavaScript, run unchanged: what it is told, and what its answers mean."""

from pathlib import Path

import pytest

from hookbus_schemas import Decision, Verdict
from hookbus_subscribers import HookServer
from hookbus_subscribers.plugin_bridge import load_plugin
from hooking import Bus
from plugging import call, handling, needs_node, running_plugin, write_plugin

pytestmark = needs_node

ALLOWED = Decision.allow()


async def test_a_plugin_denies_over_the_bus(bus: Bus, tmp_path: Path) -> None:
    """Its hook is called after its id; the reason reaches who asks."""
    code = handling('return ctx.toolName === "rm" ? { allow: false, reason: "no " + ctx.arguments } : undefined')
    hook = load_plugin(write_plugin(tmp_path / "p", code, id="guard"))
    asker = await bus.asker("plugin:guard")
    async with HookServer(hook, await bus.connection()):
        denied = await asker.ask(tool_name="rm", arguments_json='{"path":"ä"}')
        allowed = await asker.ask(tool_name="ls")
    assert (denied.decision, denied.reason) == (Verdict.DENY, 'no {"path":"ä"}')
    assert allowed.decision is Verdict.ALLOW


ANSWERS = [
    pytest.param("return false", Decision.deny("", reason_code="plugin"), id="false"),
    pytest.param("return { allow: false }", Decision.deny("", reason_code="plugin"), id="no reason"),
    pytest.param('return { allow: false, reason: "no" }', Decision.deny("no", reason_code="plugin"), id="reason"),
    pytest.param("return { allow: false, reason: { a: 1 } }", Decision.deny("", reason_code="plugin"), id="odd reason"),
    pytest.param("return true", ALLOWED, id="true"),
    pytest.param("", ALLOWED, id="undefined"),
    pytest.param("return null", ALLOWED, id="null"),
    pytest.param("return 0", ALLOWED, id="0"),
    pytest.param('return "false"', ALLOWED, id="text"),
    pytest.param("return NaN", ALLOWED, id="NaN"),
    pytest.param("return []", ALLOWED, id="list"),
    pytest.param("return () => false", ALLOWED, id="function"),
    pytest.param("return Symbol()", ALLOWED, id="symbol"),
    pytest.param("return 10n", ALLOWED, id="bigint"),
    pytest.param("return { allow: 0 }", ALLOWED, id="allow 0"),
    pytest.param('return { allow: "false" }', ALLOWED, id="allow text"),
    pytest.param('return { reason: "no" }', ALLOWED, id="reason alone"),
    pytest.param("return new Proxy({}, {})", ALLOWED, id="proxy"),
    pytest.param("const a = {}; a.a = a; return a", ALLOWED, id="circular"),
]


async def test_what_answers_mean(tmp_path: Path) -> None:
    """Only `false` and `allow: false` deny; the circular and the strange are no trouble."""
    handlers = ",".join(f"async () => {{ {answer.values[0]} }}" for answer in ANSWERS)
    code = f'const all = [{handlers}]; module.exports = (api) => api.on("tool:before", (ctx) => all[ctx.toolName]());'
    async with running_plugin(write_plugin(tmp_path, code)) as hook:
        got = {answer.id: await hook.before_execute(call(str(n))) for n, answer in enumerate(ANSWERS)}
    assert got == {answer.id: answer.values[1] for answer in ANSWERS}
