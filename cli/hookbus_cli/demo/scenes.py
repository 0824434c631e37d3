"""The scenes of the demo, in their order. Every figure is measured in the run, every statement is checked."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hookbus_broker import HOOKS, Connection, put
from hookbus_cli.demo.agent import Agent, Call, Checks, allowed, denied
from hookbus_cli.demo.processes import HookProcess
from hookbus_cli.demo.record import replay
from hookbus_cli.demo.tools import SHELL_TIMEOUT, Shell
from hookbus_cli.demo.view import View
from hookbus_executor import Executor, ToolResult
from hookbus_schemas import Enforcement, HookRegistration, Outcome, Verdict, subjects

AT_ONCE = 1.0
"""Seconds within which a dead hook must have been noticed for the demo to pass; the time that it took is printed."""

NOTICED = 0.3
"""Seconds for the server to read the end of a killed process's connection; the system closes it before."""

LONG_TEXT = "All work and no play makes a dull agent. " * 10


@dataclass(frozen=True, slots=True)
class Stage:
    """All that the scenes play with."""

    view: View
    agent: Agent
    checks: Checks
    executor: Executor
    operator: Connection
    hooks: dict[str, HookProcess]
    registrations: dict[str, HookRegistration]
    workspace: Path
    shell: Shell


async def play(stage: Stage) -> None:
    """Play all scenes."""
    for scene in (_let_pass, _denied, _go_wrong, _at_once, _shadow, _dead_hook):
        await scene(stage)


async def _calls(stage: Stage, title: str, *calls: Call) -> list[ToolResult]:
    with stage.view.scene(title) as scene:
        return [await stage.agent.call(scene, call) for call in calls]


async def _let_pass(stage: Stage) -> None:
    pieces: list[str] = []
    with stage.view.scene("Every hook that is registered for the tool was asked; none objected") as scene:
        await stage.agent.call(scene, allowed("list_files", "notes.txt"))
        await stage.agent.call(scene, allowed("read_file", "Any deny stops", path="notes.txt"))
        await stage.agent.call(scene, allowed("shell", "3 notes.txt", command="wc -l notes.txt"))
        await stage.agent.call(scene, allowed("write_file", "13 characters", path="summary.txt", text="Three lines.\n"))
        await stage.agent.call(scene, allowed("stream_file", "Any deny", path="notes.txt"), pieces.append)
    _all_allowed(stage)
    stage.checks.that((stage.workspace / "summary.txt").is_file(), "summary.txt should have been written")
    stage.checks.that(len(pieces) == 3, f"stream_file should have come in 3 pieces, not {len(pieces)}")


def _all_allowed(stage: Stage) -> None:
    for row in stage.agent.seen:
        wanted = {hook.name for hook in stage.executor.hooks if hook.enforced and hook.asked_about(row.tool)}
        decisions = row.result.decisions if row.result else ()
        found = {decision.hook for decision in decisions if decision.decision is Verdict.ALLOW}
        stage.checks.that(wanted <= found, f"call {row.number} should be allowed by {wanted}, and was by {found}")


async def _denied(stage: Stage) -> None:
    await _calls(
        stage,
        "Denied, with a reason for the model; what a hook suggests passes",
        denied("read_file", "no-secrets", "may hold secrets", path=".env"),
        allowed("read_file", "API_TOKEN=", path=".env.example"),
        denied("read_file", "no-secrets", ".env may hold", path="settings.txt"),
        denied("shell", "shell-guard", "whole folder", command="rm -rf ."),
        denied("shell", "shell-guard", "error: ", command='echo "no end'),
    )
    stage.view.note("settings.txt is a link to .env: a hook judges where a path really leads")
    stage.view.note(f"call {len(stage.agent.seen)} made shell-guard raise; it fails closed, so the call was stopped")
    stage.checks.that((stage.workspace / "settings.txt").readlink() == Path(".env"), "settings.txt should link to .env")
    stage.checks.that((stage.workspace / "notes.txt").is_file(), "rm -rf ran though it was denied")


async def _go_wrong(stage: Stage) -> None:
    results = await _calls(
        stage,
        "Slow, failing, out of time, and two that reached no hook",
        allowed("search", "notes.txt", word="record"),
        Call("fetch_rate", {"currency": "EUR"}, Outcome.FAILED, says="failed"),
        Call("shell", {"command": "sleep 30"}, Outcome.TIMED_OUT, says="timed out"),
        denied("fly_to_moon", "executor", "Unknown tool", speed="high"),
        denied("read_file", "executor", "arguments do not fit", file="notes.txt"),
    )
    stage.checks.that(not any(result.decisions for result in results[-2:]), "two calls should have reached no hook")
    gone = await within(5.0, lambda: not stage.shell.running)
    stage.checks.that(gone, "sleep 30 still runs after its time limit")
    if gone:
        stage.view.note(f"sleep 30 was killed at its limit of {SHELL_TIMEOUT:g} s; no command is left running")


async def _at_once(stage: Stage) -> None:
    calls = (
        allowed("search", "notes.txt", word="deny"),
        allowed("read_file", "hello", path="app.py"),
        denied("read_file", "no-secrets", "may hold secrets", path=".env"),
        allowed("shell", "Any deny", command="grep deny notes.txt"),
        allowed("list_files", "app.py"),
        allowed("search", "notes.txt", word="Hooks"),
    )
    began = time.perf_counter()
    with stage.view.scene(f"{len(calls)} calls at once, as one turn of a model makes them") as scene:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(stage.agent.call(scene, call)) for call in calls]
    took = time.perf_counter() - began
    alone = sum(task.result().duration + task.result().admission_duration for task in tasks)
    stage.checks.that(took < alone, f"calls at once took {took:.2f} s, one after the other {alone:.2f} s")
    stage.view.note(f"together {took * 1000:.0f} ms; their own times add up to {alone * 1000:.0f} ms")


async def _shadow(stage: Stage) -> None:
    long_write = allowed("write_file", "characters", path="essay.txt", text=LONG_TEXT)
    with stage.view.scene("A new hook in shadow: asked and recorded, it neither stops nor delays") as scene:
        result = await stage.agent.call(scene, long_write)
    await _tell_of_shadow(stage, result.call_id, result.admission_duration)
    await _enforce(stage, "budget")
    stopped = replace(long_write, outcome=Outcome.DENIED, denied_by="budget", says="are left")
    short_write = allowed("write_file", "characters", path="short.txt", text="Enough.")
    await _calls(
        stage, "The same hook, enforced: now it is waited for, and its deny stops the call", stopped, short_write
    )


async def _tell_of_shadow(stage: Stage, call_id: str, admission: float) -> None:
    await stage.executor.flush()
    event = (await replay(stage.operator)).of(call_id)
    decisions = event.decisions if event else ()
    found = next((each for each in decisions if each.hook == "budget" and each.decision is Verdict.DENY), None)
    stage.checks.that(found, "the record should hold the denial of budget in shadow")
    if found is not None:
        stage.checks.that(found.enforcement is Enforcement.SHADOW, "budget should be in shadow")
        stage.checks.that(admission * 1000 < found.elapsed_ms, "a hook in shadow delayed the call")
        stage.view.note(
            f'the record holds the deny of budget, "{found.reason}", after {found.elapsed_ms:.0f} ms; '
            f"the call waited {admission * 1000:.1f} ms"
        )


async def _enforce(stage: Stage, name: str) -> None:
    enforced = stage.registrations[name].model_copy(update={"enforcement": Enforcement.ENFORCE})
    began = time.perf_counter()
    await put(stage.operator, HOOKS, subjects.token(name), enforced.to_json())
    seen = await within(5.0, lambda: any(hook.name == name and hook.enforced for hook in stage.executor.hooks))
    took = time.perf_counter() - began
    stage.checks.that(seen, f"{name} was not in force 5 s after its registration was changed")
    if seen:
        stage.view.note(f"operator: {name} from shadow to enforce; in force in the agent {took * 1000:.1f} ms later")


async def _dead_hook(stage: Stage) -> None:
    hook = stage.hooks["shell-guard"]
    dead = hook.pid
    fails_open = any(each.name == hook.name and each.fails_open for each in stage.executor.hooks)
    stage.checks.that(not fails_open, f"{hook.name} should fail closed")
    await hook.kill()
    await asyncio.sleep(NOTICED)
    with stage.view.scene(f"The process of shell-guard ({dead}) was killed with SIGKILL; it fails closed") as scene:
        stopped = await stage.agent.call(scene, denied("shell", hook.name, "unavailable: ", command="date"))
        await stage.agent.call(scene, allowed("read_file", "hello", path="app.py"))
    took = stopped.admission_duration
    stage.checks.that(took < AT_ONCE, f"the call without its hook was denied only after {took:.2f} s")
    stage.view.note(f"denied {took * 1000:.1f} ms after it was asked for; what it does not guard goes on")
    started = await hook.start()
    stage.checks.that(hook.pid != dead, "the process of shell-guard is the same as before")
    with stage.view.scene(f"shell-guard started again ({hook.pid}), serving after {started:.1f} s") as scene:
        await stage.agent.call(scene, allowed("shell", "3 notes.txt", command="wc -l notes.txt"))


async def within(timeout: float, holds: Callable[[], object]) -> bool:
    """Wait until it holds; say whether it did within `timeout` seconds."""
    give_up_at = time.perf_counter() + timeout
    while not holds():
        if time.perf_counter() > give_up_at:
            return False
        await asyncio.sleep(0.001)
    return True
