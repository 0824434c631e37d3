"""``hookbus events export``: the record for other programs. Below it: `formats`, `whole_file`."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from hookbus_cli.command import command, discard_output, options, out, plain, running_bus
from hookbus_cli.filters import OfExecutor, OfOutcome, OfSender, OfSession, OfTool, Since, Until
from hookbus_cli.formats import Format, Writer, format_of, writer_of
from hookbus_cli.signals import ended_by_signals
from hookbus_cli.times import parse_bound
from hookbus_cli.whole_file import Unwritable, whole_file
from hookbus_schemas import ConfigError, HookbusError

if TYPE_CHECKING:
    from hookbus_subscribers import StoredEvent

EPILOG = "Examples: hookbus events export calls.parquet --since 7d  ·  hookbus events export - --format csv | head"
STDOUT = "-"
SHOW_INTERVAL = 0.1
"""Seconds between two moves of the bar."""


@command()
async def export(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help=".jsonl, .csv or .parquet; - for standard output.")],
    since: Since = None,
    until: Until = None,
    session: OfSession = None,
    tool: OfTool = None,
    sender: OfSender = None,
    outcome: OfOutcome = None,
    executor: OfExecutor = None,
    format: Annotated[  # noqa: A002 - the name of the option
        Format | None, typer.Option(help="By the file's suffix by default.", show_default=False)
    ] = None,
) -> int:
    """Write the recorded calls to a file, oldest first. It is there whole, or as it was before.

    JSON Lines hold each event whole, CSV and Parquet a row for each call. In CSV a text that a spreadsheet would run as
    a formula has a ' in front. Parquet needs the extra "parquet" of hookbus.
    """
    from hookbus_subscribers import EventFilter, last_sequence, replay

    make = _writer(file, format)
    begin, end = parse_bound(since), parse_bound(until)
    wanted = EventFilter(session, tool, sender, outcome, executor)
    with ended_by_signals():
        async with running_bus(options(context).bus(), "hookbus events") as connection:
            with _bar(file, await last_sequence(connection)) as moved, _target(file) as target:
                async with aclosing(replay(connection, since=begin, until=end, wanted=wanted, whole=True)) as stored:
                    count = await _write(stored, make(target), moved)
    if file != STDOUT:
        out.print(f"{count} calls written to {plain(file)}", highlight=False, soft_wrap=True)
    return 0


def _writer(file: str, said: Format | None) -> Callable[[BinaryIO], Writer]:
    form = Format.JSONL if file == STDOUT and said is None else format_of(file, said)
    if file == STDOUT and form is Format.PARQUET:
        raise ConfigError("Parquet is not written to standard output: name a file")
    return writer_of(form)


def _target(file: str) -> AbstractContextManager[BinaryIO]:
    return _stdout() if file == STDOUT else whole_file(Path(file))


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except (HookbusError, BrokenPipeError):
        raise
    except OSError as error:
        discard_output()
        raise Unwritable(f"standard output cannot be written: {error.strerror or error}") from error


async def _write(stored: AsyncIterator["StoredEvent"], writer: Writer, moved: Callable[[int], None]) -> int:
    count = 0
    try:
        async for one in stored:
            writer.add(one)
            count += 1
            moved(one.sequence)
        writer.finish()
    except BaseException:
        writer.give_up()
        raise
    return count


@contextmanager
def _bar(file: str, last: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how far the export has come in the stream, whose last event is known."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    shown = sys.stderr.isatty() and not (file == STDOUT and sys.stdout.isatty())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task("events", total=None)
        first = shown_at = 0.0

        def moved(sequence: int) -> None:
            nonlocal first, shown_at
            first = first or sequence - 1
            if sequence >= last or time.monotonic() - shown_at > SHOW_INTERVAL:
                progress.update(task, completed=sequence - first, total=last - first)
                shown_at = time.monotonic()

        yield moved
        progress.update(task, completed=1, total=1)
