"""``hookbus events``: the record."""

import sys
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hookbus_cli import aside, export
from hookbus_cli.command import DENIED, command, options, out, plain, running_bus
from hookbus_cli.filters import OfExecutor, OfOutcome, OfSender, OfSession, OfTool, Since, Until
from hookbus_cli.times import local_time, parse_bound
from hookbus_schemas import Outcome, ToolAfterEvent

if TYPE_CHECKING:
    from hookbus_subscribers import StoredEvent
    from hookbus_subscribers.chains import Finding, Verifier

app = typer.Typer(help="Read the record of calls.", no_args_is_help=True)
app.command("export", epilog=export.EPILOG)(export.export)
app.command("set-aside", epilog=aside.LIST_EPILOG)(aside.set_aside)
app.command("retry", epilog=aside.RETRY_EPILOG)(aside.retry)

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
COLOURS = {Outcome.COMPLETED: "green", Outcome.DENIED: "red", Outcome.INTERRUPTED: "magenta"}


@app.callback()
def _group() -> None:
    """Read the record of calls."""


@app.command(epilog="Example: hookbus events tail -f  ·  hookbus events tail -n 100 --outcome denied --json")
@command()
async def tail(
    context: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the newest.")] = 20,
    session: OfSession = None,
    tool: OfTool = None,
    sender: OfSender = None,
    outcome: OfOutcome = None,
    executor: OfExecutor = None,
    follow: Follow = False,
    json: JsonLines = False,
) -> int:
    """Show the newest recorded calls, oldest first. Of the whole past, or from a time on: `hookbus events replay`."""
    from hookbus_subscribers import EventFilter, newest, replay

    wanted = EventFilter(session, tool, sender, outcome, executor)
    async with running_bus(options(context).bus(), "hookbus events") as connection:
        found, last = await newest(connection, lines, wanted, whole=json)
        for one in found:
            _print(one, json=json, now=follow)
        if follow:
            following = replay(connection, start_sequence=last + 1, follow=True, wanted=wanted, whole=json)
            async with aclosing(following) as stored:
                async for one in stored:
                    _print(one, json=json, now=True)
    return 0


@app.command(
    "replay", epilog="Example: hookbus events replay --since 2h --tool 'db_*'  ·  hookbus events replay --json"
)
@command()
async def show_all(
    context: typer.Context,
    since: Since = None,
    until: Until = None,
    session: OfSession = None,
    tool: OfTool = None,
    sender: OfSender = None,
    outcome: OfOutcome = None,
    executor: OfExecutor = None,
    follow: Follow = False,
    json: JsonLines = False,
) -> int:
    """Show all recorded calls, or those from a time on, oldest first. The newest alone: `hookbus events tail`."""
    from hookbus_subscribers import EventFilter, replay

    begin, end = parse_bound(since), parse_bound(until)
    wanted = EventFilter(session, tool, sender, outcome, executor)
    async with (
        running_bus(options(context).bus(), "hookbus events") as connection,
        aclosing(replay(connection, since=begin, until=end, follow=follow, wanted=wanted, whole=json)) as stored,
    ):
        async for one in stored:
            _print(one, json=json, now=follow)
    return 0


def _print(stored: "StoredEvent", *, json: bool, now: bool) -> None:
    if json:
        sys.stdout.write(stored.event.model_dump_json() + "\n")
    else:
        out.print(_line(stored), soft_wrap=True)
    if now:
        sys.stdout.flush()


@app.command(epilog="Example: hookbus events verify --json")
@command()
async def verify(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """Prove that no event is missing, changed or there in two forms. Exit code 0 if so, 1 if not."""
    from hookbus_subscribers.chains import verified

    async with running_bus(options(context).bus(), "hookbus events") as connection:
        verifier = await verified(connection)
    if json:
        about = {"events": verifier.events, "chains": verifier.chains, "last_good": verifier.last_good}
        out.print_json(data=about | {"findings": [asdict(finding) for finding in verifier.findings]})
    else:
        for finding in verifier.findings:
            out.print(_finding(finding), highlight=False, soft_wrap=True)
        out.print(_summary(verifier), highlight=False, soft_wrap=True)
    return DENIED if verifier.findings else 0


def _finding(finding: "Finding") -> str:
    from hookbus_subscribers.chains import Fault

    where = f"executor {plain(finding.executor)}, chain {plain(finding.chain)}, event {plain(finding.event_id)}"
    what = {
        Fault.GAP: f"{finding.count} missing from place {finding.place}, before",
        Fault.CHANGED: f"the event before place {finding.place} is not the one that was recorded:",
        Fault.FORK: f"place {finding.place} is taken by another event than",
        Fault.UNCHAINED: "no place in a chain:",
        Fault.UNREADABLE: "no event that can be read, or of another executor than published it:",
    }[finding.fault]
    return f"[red]{finding.fault}[/]: {what} {where}, stored as {finding.stream_sequence}"


def _summary(verifier: "Verifier") -> str:
    whole = f"{verifier.events} events in {verifier.chains} chains"
    if not verifier.findings:
        return f"[green]clean[/]: {whole}, none missing, none changed"
    return (
        f"[red]not clean[/]: {whole}, {len(verifier.findings)} findings; good up to {verifier.last_good} in the stream"
    )


@app.command(epilog="Example: hookbus events stats --since 24h  ·  hookbus events stats --tool 'db_*' --json")
@command()
async def stats(
    context: typer.Context,
    since: Since = None,
    until: Until = None,
    session: OfSession = None,
    tool: OfTool = None,
    sender: OfSender = None,
    outcome: OfOutcome = None,
    executor: OfExecutor = None,
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """Count the recorded calls: outcomes, denials by hook and reason code, and how long each hook took."""
    from hookbus_cli import stats_view
    from hookbus_subscribers import EventFilter, replay
    from hookbus_subscribers.stats import Stats

    begin, end = parse_bound(since), parse_bound(until)
    found, wanted = Stats(), EventFilter(session, tool, sender, outcome, executor)
    async with (
        running_bus(options(context).bus(), "hookbus events") as connection,
        aclosing(replay(connection, since=begin, until=end, wanted=wanted)) as stored,
    ):
        async for one in stored:
            found.add(one.event)
    if json:
        out.print_json(data=stats_view.as_json(found))
    else:
        stats_view.show(found)
    return 0


def _line(stored: "StoredEvent") -> Text:
    event = stored.event
    colour = COLOURS.get(event.outcome, "yellow")
    line = f"[dim]{local_time(event.at_ms)}[/] {plain(event.context.session_id or '-')} "
    line += f"[bold]{plain(event.context.tool_name)}[/] [{colour}]{event.outcome}[/]"
    if isinstance(event, ToolAfterEvent):
        line += f" {event.duration_ms:.0f} ms"
    else:
        line += f" by {plain(event.denied_by)}: {plain(event.reason)}"
    if event.unguarded_by:
        line += f" [yellow]unguarded by {plain(', '.join(event.unguarded_by))}[/]"
    return Text.from_markup(line, emoji=False)
