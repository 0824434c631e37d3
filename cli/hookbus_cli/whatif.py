"""``hookbus whatif``: a hook tried on the calls of yesterday, before it is deployed."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from hookbus_broker import Connection, UsesBus
from hookbus_cli.command import command, options, out, plain, running_bus
from hookbus_cli.times import local_time, parse_time
from hookbus_schemas import Hook

if TYPE_CHECKING:
    from hookbus_subscribers.whatif import Group, WhatIf

MOST_TOOLS = 20
"""Tools that are named of each kind."""

EPILOG = "Examples: hookbus whatif my_hooks:no_drops --since 24h  ·  hookbus whatif Autonomy --config new.toml"


@command()
async def whatif(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="HOOK", help="MODULE:HOOK, plugin:FOLDER, or the name of a built-in hook.")
    ],
    since: Annotated[str, typer.Option(help="Such as 10m, 24h, 2026-11-30T10:00.")] = "24h",
    config: Annotated[Path | None, typer.Option(help="Settings file of a built-in hook or a plugin.")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """Ask a hook about recorded calls: what it would have denied that ran, and allowed that it denied.

    Nothing runs and nothing is counted. A hook that counts calls judges by the counts of this moment.
    """
    from hookbus_subscribers import replay
    from hookbus_subscribers.whatif import try_hook

    said = options(context)
    hook = _hook(target, config or said.config)
    begin = parse_time(since)
    async with (
        running_bus(said.bus(), "hookbus whatif") as connection,
        _attached(hook, connection),
        aclosing(replay(connection, since=begin, whole=True)) as events,
    ):
        began = time.perf_counter()
        found = await try_hook(hook, events)
        seconds = time.perf_counter() - began
    if json:
        out.print_json(data={"hook": hook.name, "seconds": round(seconds, 3)} | asdict(found))
    else:
        _show(hook.name, found, seconds)
    return 0


def _hook(target: str, config: Path | None) -> Hook:
    from hookbus_subscribers import BUILT_IN, PluginSettings, load_hooks

    if target in BUILT_IN:
        return BUILT_IN[target].make(config)
    (hook,) = load_hooks(target, plugins=PluginSettings.load(config))
    return hook


@asynccontextmanager
async def _attached(hook: Hook, connection: Connection) -> AsyncIterator[None]:
    if not isinstance(hook, UsesBus):
        yield
        return
    await hook.attach(connection)
    try:
        yield
    finally:
        await hook.detach()


def _show(name: str, found: "WhatIf", seconds: float) -> None:
    asked = f"{found.asked} recorded calls in {seconds:.1f} s; nothing was run or counted"
    out.print(f"{plain(name)} was asked about {asked}", highlight=False, soft_wrap=True)
    if not any(group.tools for group in (found.denied, found.allowed, found.unanswered)):
        out.print("[green]nothing would have ended in another way[/]")
    _show_group("red", "would have denied, and ran", found.denied)
    _show_group("green", "would have allowed, and denied", found.allowed)
    _show_group("yellow", "gave no usable answer about", found.unanswered)


def _show_group(colour: str, what: str, group: "Group") -> None:
    if not group.tools:
        return
    most = sorted(group.tools.items(), key=lambda item: -item[1])[:MOST_TOOLS]
    tools = ", ".join(f"{plain(tool)} {count}" for tool, count in most)
    line = f"[{colour}]{what}[/]: {sum(group.tools.values())} ({tools}), such as"
    out.print(line, highlight=False, soft_wrap=True)
    table = Table(*(Column(head, overflow="fold") for head in ("at", "session", "tool", "reason")))
    for one in group.examples:
        table.add_row(local_time(one.at_ms), plain(one.session or "-"), plain(one.tool), plain(one.reason))
    out.print(table)
