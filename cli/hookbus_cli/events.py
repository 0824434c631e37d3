"""``hookbus events``: the record."""

import re
import sys
import time
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from hookbus_cli.command import DENIED, command, options, out, plain, running_bus
from hookbus_schemas import ConfigError, Outcome, ToolAfterEvent

if TYPE_CHECKING:
    from hookbus_subscribers import StoredEvent
    from hookbus_subscribers.chains import Finding, Verifier

app = typer.Typer(help="Read the record of calls.", no_args_is_help=True)

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
Since = Annotated[
    str | None, typer.Option(help="Such as 10m, 2h, 2026-11-30T10:00; all by default.", show_default=False)
]
Until = Annotated[str | None, typer.Option(help="The same; to the end by default.", show_default=False)]
OfSession = Annotated[str | None, typer.Option("--session", help="Of this session alone.", show_default=False)]
OfTool = Annotated[str | None, typer.Option("--tool", help="Of tools that match this glob.", show_default=False)]
OfSender = Annotated[str | None, typer.Option("--sender", help="Of this sender alone.", show_default=False)]
OfOutcome = Annotated[Outcome | None, typer.Option("--outcome", help="That ended so.", show_default=False)]
COLOURS = {Outcome.COMPLETED: "green", Outcome.DENIED: "red", Outcome.INTERRUPTED: "magenta"}


@app.callback()
def _group() -> None:
    """Read the record of calls."""


@app.command(epilog="Example: hookbus events tail --since 10m -f  ·  hookbus events tail --json")
@command()
async def tail(
    context: typer.Context,
    since: Since = None,
    until: Until = None,
    session: OfSession = None,
    tool: OfTool = None,
    sender: OfSender = None,
    outcome: OfOutcome = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")] = False,
) -> int:
    """Show the recorded calls, oldest first."""
    from hookbus_subscribers import EventFilter, replay

    begin, end = _bound(since), _bound(until)
    wanted = EventFilter(session, tool, sender, outcome)
    async with (
        running_bus(options(context).bus(), "hookbus events") as connection,
        aclosing(replay(connection, since=begin, until=end, follow=follow, wanted=wanted)) as stored,
    ):
        async for one in stored:
            if json:
                sys.stdout.write(one.event.model_dump_json() + "\n")
            else:
                out.print(_line(one), soft_wrap=True)
            if follow:
                sys.stdout.flush()
    return 0


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
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """Count the recorded calls: outcomes, denials by hook and reason code, and how long each hook took."""
    from hookbus_cli import stats_view
    from hookbus_subscribers import EventFilter, replay
    from hookbus_subscribers.stats import Stats

    begin, end = _bound(since), _bound(until)
    found = Stats()
    async with (
        running_bus(options(context).bus(), "hookbus events") as connection,
        aclosing(
            replay(connection, since=begin, until=end, wanted=EventFilter(session, tool, sender, outcome))
        ) as stored,
    ):
        async for one in stored:
            found.add(one.event)
    if json:
        out.print_json(data=stats_view.as_json(found))
    else:
        stats_view.show(found)
    return 0


def _bound(text: str | None) -> float | None:
    return None if text is None else parse_time(text)


def parse_time(text: str, now: float | None = None) -> float:
    """Return seconds since 1970 for a time as people write it: ``10m`` ago, or a date and time, local without a zone.

    Raises:
        ConfigError: it is neither.
    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip()):
        return (time.time() if now is None else now) - float(match[1]) * UNITS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"time {text!r} should be such as 30s, 10m, 2h, 7d or 2026-11-30T10:00") from error


def _line(stored: "StoredEvent") -> Text:
    event = stored.event
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    colour = COLOURS.get(event.outcome, "yellow")
    line = f"[dim]{at}[/] {plain(event.context.session_id or '-')} [bold]{plain(event.context.tool_name)}[/] "
    line += f"[{colour}]{event.outcome}[/]"
    if isinstance(event, ToolAfterEvent):
        line += f" {event.duration_ms:.0f} ms"
    else:
        line += f" by {plain(event.denied_by)}: {plain(event.reason)}"
    if event.unguarded_by:
        line += f" [yellow]unguarded by {plain(', '.join(event.unguarded_by))}[/]"
    return Text.from_markup(line, emoji=False)
