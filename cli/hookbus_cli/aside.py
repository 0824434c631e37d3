"""``hookbus events set-aside`` and ``retry``: events that a consumer could not handle."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from hookbus_broker import Connection
from hookbus_cli.command import DENIED, command, options, out, plain, running_bus
from hookbus_cli.times import local_time
from hookbus_schemas import ConfigError

if TYPE_CHECKING:
    from hookbus_subscribers.set_aside import SetAside

LIST_EPILOG = "Example: hookbus events set-aside --json"
RETRY_EPILOG = "Examples: hookbus events retry audit  ·  hookbus events retry hook-no-drops 1041 1042"


@command()
async def set_aside(
    context: typer.Context,
    consumer: Annotated[str | None, typer.Option(help="Of this consumer alone.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """List the events that a consumer could not handle, and why. They stay in the record."""
    from hookbus_subscribers.set_aside import all_set_aside

    async with running_bus(options(context).bus(), "hookbus events") as connection:
        found = [entry async for entry in all_set_aside(connection, consumer)]
    if json:
        out.print_json(data=[entry.model_dump(exclude={"v"}) for entry in found])
    elif found:
        _show(found)
    else:
        out.print("no event is set aside", soft_wrap=True)
    return 0


def _show(found: "list[SetAside]") -> None:
    words = (Column(head, overflow="fold") for head in ("event", "at", "error"))
    table = Table(
        Column("consumer", overflow="fold"),
        Column("sequence", justify="right"),
        Column("attempts", justify="right"),
        *words,
    )
    for one in found:
        at = local_time(one.at_ms)
        table.add_row(
            plain(one.durable), str(one.sequence), str(one.attempts), plain(one.event_id or "-"), at, plain(one.error)
        )
    out.print(table)


@command()
async def retry(
    context: typer.Context,
    consumer: Annotated[str, typer.Argument(help="As `hookbus events set-aside` names it.")],
    sequences: Annotated[
        list[int] | None, typer.Argument(metavar="[SEQUENCE]...", help="Which events; all by default.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that it has for one event.")] = 60.0,
) -> int:
    """Hand events that were set aside to their consumer, which must run. Exit code 0 if it handled all, 1 if not."""
    from hookbus_subscribers.retrying import Retried
    from hookbus_subscribers.retrying import retry as hand_back

    async with running_bus(options(context).bus(), "hookbus events") as connection:
        failed = 0
        for entry in await _chosen(connection, consumer, sequences or []):
            came, error = await hand_back(connection, entry, timeout)
            failed += came is Retried.FAILED
            said = {
                Retried.HANDLED: "[green]handled[/]",
                Retried.GONE: "[yellow]gone[/]: the stream keeps it no longer",
                Retried.FAILED: f"[red]failed[/]: {plain(error)}; it stays set aside",
            }
            out.print(f"{entry.sequence} {said[came]}", highlight=False, soft_wrap=True)
    return DENIED if failed else 0


async def _chosen(connection: Connection, consumer: str, sequences: list[int]) -> "list[SetAside]":
    from hookbus_subscribers.set_aside import all_set_aside

    found = {entry.sequence: entry async for entry in all_set_aside(connection, consumer)}
    if unknown := [str(sequence) for sequence in sequences if sequence not in found]:
        which = f"{', '.join(unknown)} of consumer {consumer}"
        raise ConfigError(f"{which}: not set aside; `hookbus events set-aside` lists what is")
    if not found:
        out.print("no event is set aside", soft_wrap=True)
    return [found[sequence] for sequence in sequences or found]
