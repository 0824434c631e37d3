"""The demo from start to end: its own bus, its own folders, its own processes; nothing of them is left behind."""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hookbus_broker import HOOKS, BusSettings, Connection, connect, ensure_streams, open_bus, put
from hookbus_cli.demo import picture
from hookbus_cli.demo.agent import Agent, Checks
from hookbus_cli.demo.logs import Logs, kept_logs
from hookbus_cli.demo.processes import HookProcess
from hookbus_cli.demo.record import differences, replay
from hookbus_cli.demo.scenes import Stage, play, within
from hookbus_cli.demo.tools import add_tools, make_workspace
from hookbus_cli.demo.view import View
from hookbus_cli.signals import Signalled, ended_by_signals
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Enforcement, HookbusError, HookRegistration, Outcome, subjects
from hookbus_subscribers import BUILT_IN, AuditLog, Autonomy, AutonomySettings, HookServer
from hookbus_subscribers import replay as replay_events
from hookbus_subscribers.autonomy_settings import Mode
from hookbus_subscribers.chains import verified
from hookbus_subscribers.serve import after_side
from hookbus_subscribers.whatif import try_hook

REGISTRATIONS = {
    "AuditLog": BUILT_IN["AuditLog"].registration,
    "no-secrets": HookRegistration(order=10, tools=("*_file",)),
    "shell-guard": HookRegistration(order=20, tools=("shell",)),
    "budget": HookRegistration(order=30, tools=("write_file",), enforcement=Enforcement.SHADOW),
}
"""As an operator would write them; each fails closed, the default."""

NEXT = (
    ("hookbus up", "a bus here, with the built-in hooks"),
    ("hookbus serve my_hooks:no_drops", "your own hook, one function"),
    ("hookbus whatif my_hooks:no_drops", "the same hook, tried on recorded calls"),
    ("docs/architecture.md", "how it works, and what it guarantees"),
)


async def run_demo(console: Console, *, svg: Path | None = None) -> int:
    """Run the demo and return the exit code: 0, 1 if anything that it says was not so, 128 + n after signal n.

    Args:
        console: where to show it; live on a terminal, line by line elsewhere.
        svg: also write the run as a picture to this file.

    Raises:
        ConfigError: the picture cannot be written there.
        HookbusError: the bus or a hook did not start.
    """
    target = picture.target(svg) if svg else None
    recorder = picture.recorder() if svg else None
    checks = Checks()
    try:
        with ended_by_signals(), kept_logs() as logs:
            await _run(View(console, recorder), checks, logs)
    except Signalled as ended:
        console.print(f"interrupted by {ended.signal.name}; processes and folders of the demo are gone")
        return ended.exit_code
    if target is not None and recorder is not None and not checks.problems:
        picture.save(recorder, target)
        console.print(f"picture of this run: {target}", highlight=False, soft_wrap=True)
    return 1 if checks.problems else 0


async def _run(view: View, checks: Checks, logs: Logs) -> None:
    began = time.perf_counter()
    async with _stage(view, checks) as stage:
        await play(stage)
        await _compare(stage, logs)
        await _what_if(stage)
    view.say("", Text(f"The demo took {time.perf_counter() - began:.1f} s, start and end of its processes included."))
    for problem in checks.problems:
        view.say(Text(f"WRONG: {problem}", "bold red"))
    if not checks.problems:
        view.say(*(Text.assemble("  ", (f"{what:<34}", "bold"), why) for what, why in NEXT))


@asynccontextmanager
async def _stage(view: View, checks: Checks) -> AsyncIterator[Stage]:
    """Set everything up, and take it down again, whatever happens."""
    async with AsyncExitStack() as stack:
        here = Path.cwd()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hookbus-demo-")))
        workspace = make_workspace(folder)
        bus = BusSettings(state_dir=folder / "bus", nats_server=BusSettings.load().nats_server)
        url = await stack.enter_async_context(open_bus(bus))
        bus = bus.model_copy(update={"url": url})
        operator = await _connected(stack, bus, "demo-operator")
        await ensure_streams(operator, bus)
        hooks = {
            name: HookProcess(name, url, logs=folder, directory=here) for name in REGISTRATIONS if name != "AuditLog"
        }
        started = await _start(stack, hooks)
        await _serve_audit_log(stack, operator)
        for name, registration in REGISTRATIONS.items():
            await put(operator, HOOKS, subjects.token(name), registration.to_json())
        stack.enter_context(contextlib.chdir(workspace))  # where the paths of the agent's calls begin
        executor = Executor("demo-agent", bus=bus, settings=ExecutorSettings(required_hooks=("AuditLog",)))
        shell = add_tools(executor, workspace)
        await stack.enter_async_context(executor)
        _introduce(view, executor, hooks, started)
        yield Stage(
            view, Agent(executor, checks), checks, executor, operator, hooks, dict(REGISTRATIONS), workspace, shell
        )


async def _connected(stack: AsyncExitStack, bus: BusSettings, name: str) -> Connection:
    connection = await connect(bus, name=name)
    stack.push_async_callback(connection.close)
    return connection


async def _start(stack: AsyncExitStack, hooks: dict[str, HookProcess]) -> float:
    began = time.perf_counter()
    for hook in hooks.values():
        stack.push_async_callback(hook.stop)
    try:
        async with asyncio.TaskGroup() as group:
            for hook in hooks.values():
                group.create_task(hook.start())
    except* HookbusError as errors:
        raise errors.exceptions[0] from None
    return time.perf_counter() - began


async def _serve_audit_log(stack: AsyncExitStack, connection: Connection) -> None:
    hook = AuditLog()
    server, consumer = HookServer(hook, connection), after_side(hook, connection)
    await server.start()
    stack.push_async_callback(server.drain)
    await consumer.start()
    stack.push_async_callback(consumer.stop)


def _introduce(view: View, executor: Executor, hooks: dict[str, HookProcess], started: float) -> None:
    processes = ", ".join(f"{hook.name} ({hook.pid})" for hook in hooks.values())
    view.say(
        Text("hookbus demo: every tool call asked over NATS, run or stopped, and recorded", "bold"),
        f"an agent with {len(executor.tools)} tools, in a temporary folder, on a nats-server of its own; AuditLog;",
        f"{len(hooks)} hook processes, serving after {started:.1f} s:",
        f"  {processes}",
    )


async def _compare(stage: Stage, logs: Logs) -> None:
    """Replay the record, compare it with what the agent saw, and print the counts."""
    await stage.executor.flush()
    replayed = await replay(stage.operator)
    seen = stage.agent.seen
    stage.checks.problems.extend(differences(replayed, seen))
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in replayed.outcomes.items())
    stage.view.say("", Text("The record, replayed from the stream", "bold"))
    stage.view.say(f"{len(replayed.events)} events in {replayed.duration * 1000:.0f} ms: {counts}.")
    if not stage.checks.problems:
        stage.view.say(f"The agent saw {len(seen)} calls: each is in the record exactly once, with the same end.")
    verifier = await verified(stage.operator)
    stage.checks.that(not verifier.findings, f"the record is not whole: {verifier.findings}")
    stage.view.say(f"Verified: {verifier.events} events in {verifier.chains} chain, none missing, none changed.")
    ran = len(replayed.events) - replayed.outcomes[Outcome.DENIED]
    asked = sum(bool(event.decisions) for event in replayed.events)
    await within(5.0, lambda: logs.count("tool_call.completed", "tool_call.failed") >= ran)
    logged = logs.count("tool_call.requested"), logs.count("tool_call.completed", "tool_call.failed")
    stage.checks.that(logged == (asked, ran), f"AuditLog logged {logged}, and should have logged {(asked, ran)}")
    stage.view.say(f"AuditLog logged {logged[0]} calls before they were decided and {logged[1]} that ran.")


async def _what_if(stage: Stage) -> None:
    """Try a stricter policy on the record, as `hookbus whatif` does, and print what it would have denied."""
    hook = Autonomy(AutonomySettings(mode=Mode.READONLY))
    async with contextlib.aclosing(replay_events(stage.operator)) as events:
        found = await try_hook(hook, events)
    tools = Counter(found.denied.tools)
    ran = Counter(row.tool for row in stage.agent.seen if row.result and row.result.outcome is not Outcome.DENIED)
    stage.checks.that(tools["write_file"] == ran["write_file"], f"readonly would deny writes, and denied {tools}")
    stage.checks.that(not tools.keys() & {"list_files", "read_file"}, f"readonly would let read, and denied {tools}")
    stage.checks.that(not found.unanswered.tools, f"Autonomy could not decide about {found.unanswered.tools}")
    denied = ", ".join(f"{tool} {count}" for tool, count in tools.most_common())
    stage.view.say("", Text("What if the built-in hook Autonomy had let the agent read only?", "bold"))
    stage.view.say(
        f"Asked about {found.asked} recorded calls, it would have denied {tools.total()} that ran: {denied}."
    )
    for example in found.denied.examples[:1]:
        stage.view.say(f'Such as: "{example.reason}". Nothing was run again.')
