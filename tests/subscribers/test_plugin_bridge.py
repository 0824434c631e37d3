"""A plugin in JavaScript, run unchanged: what it is told, and what its answers mean."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hookbus_broker import HOOKS, put
from hookbus_executor import Executor, ExecutorSettings, Session
from hookbus_schemas import Decision, Verdict, subjects
from hookbus_subscribers import HookServer
from hookbus_subscribers.plugin_bridge import PluginHook, load_plugin
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


@asynccontextmanager
async def asked_by_executor(bus: Bus, hook: PluginHook, timeout_ms: int = 5000) -> AsyncIterator[Executor]:
    """Serve the plugin, registered as by default but for its time, and run an executor that asks it alone."""
    registration = hook.registration.model_copy(update={"timeout_ms": timeout_ms})
    await put(await bus.streams(), HOOKS, subjects.token(hook.name), registration.to_json())
    executor = Executor("e1", bus=bus.settings, settings=ExecutorSettings(required_hooks=()))
    async with HookServer(hook, await bus.connection()), executor:
        yield executor


async def test_of_five_hundred_admissions_at_once_each_gets_its_own_answer(bus: Bus, tmp_path: Path) -> None:
    """Over the bus, by one process of the plugin."""
    hook = load_plugin(write_plugin(tmp_path, handling("return { allow: false, reason: ctx.arguments };")))
    async with asked_by_executor(bus, hook) as executor:
        asking = (executor.admit("t", {"n": n}, session=Session("s")) for n in range(500))
        admissions = await asyncio.gather(*asking)
    assert [json.loads(admission.reason) for admission in admissions] == [{"n": n} for n in range(500)]


async def test_a_plugin_that_hangs_on_every_call_is_waited_for_three_times(bus: Bus, tmp_path: Path) -> None:
    """Then nobody waits; every call is let pass, by its failure policy, and marked."""
    hook = load_plugin(write_plugin(tmp_path, handling("await new Promise(() => {});")))
    async with asked_by_executor(bus, hook, timeout_ms=100) as executor:
        admissions = [await executor.admit("t", {"n": 0}, session=Session("s")) for _ in range(5)]
    decisions = [admission.decisions[0] for admission in admissions]
    assert [one.decision for one in decisions] == [Verdict.TIMEOUT] * 3 + [Verdict.UNAVAILABLE] * 2
    assert [admission.allowed and one.failed_open for admission, one in zip(admissions, decisions, strict=True)] == [
        True
    ] * 5


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
