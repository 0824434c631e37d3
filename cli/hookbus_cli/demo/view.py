"""What the demo shows: a table that fills while calls run, or one line for each call where nobody watches live."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hookbus_executor import ToolResult
from hookbus_schemas import Outcome

WIDTH = 120
"""Most columns that are used: longer lines are hard to read."""

COLOURS = {
    Outcome.COMPLETED: "green",
    Outcome.DENIED: "red",
    Outcome.FAILED: "yellow",
    Outcome.TIMED_OUT: "yellow",
    Outcome.INTERRUPTED: "yellow",
}


@dataclass(slots=True)
class Row:
    """One call as the agent sees it; without a result while it runs."""

    number: int
    tool: str
    arguments: dict[str, object]
    result: ToolResult | None = None

    @property
    def short_arguments(self) -> str:
        """The arguments in a few words."""
        return " ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())

    @property
    def outcome(self) -> Text:
        """How it ended, coloured."""
        if self.result is None:
            return Text("running", "cyan")
        return Text(self.result.outcome.value, f"bold {COLOURS[self.result.outcome]}")

    @property
    def words(self) -> Text:
        """Who denied and why, or the first line of what the tool returned."""
        if self.result is None:
            return Text()
        if self.result.outcome is not Outcome.DENIED:
            return Text(self.result.text.strip().partition("\n")[0], "dim")
        words = Text.assemble((self.result.denied_by, "bold"), f": {self.result.reason}")
        for suggested in (each.suggested_arguments for each in self.result.decisions if each.suggested_arguments):
            words.append(f"; would pass: {json.dumps(suggested)}")
        return words

    @property
    def times(self) -> tuple[str, str]:
        """Milliseconds of the admission and of the tool, empty for what did not take place."""
        if self.result is None:
            return "", ""
        return _ms(self.result.admission_duration), _ms(self.result.duration)

    @property
    def line(self) -> Text:
        """All of it in one line."""
        admission, tool = (
            f"{name} {ms} ms" if ms else "" for name, ms in zip(("asked", "ran"), self.times, strict=True)
        )
        took = ", ".join(filter(None, (admission, tool)))
        parts = f"{self.number:>2} {self.tool} {self.short_arguments} ", self.outcome, " ", self.words
        return Text.assemble(*parts, f" ({took})" if took else "")


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    line = " ".join(text.split())
    return line if len(line) <= 24 else f"{line[:20]}... ({len(text)})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}" if seconds else ""


class View:
    """Prints to the user's console and, where a picture is wanted, to a second one that records."""

    def __init__(self, console: Console, recorder: Console | None = None) -> None:
        self.console = console
        self._recorder = recorder
        self._width = min(console.width, WIDTH)
        self._header = True

    def say(self, *lines: RenderableType) -> None:
        """Print lines, the same everywhere."""
        for line in lines:
            self.console.print(line, highlight=False, soft_wrap=not self.console.is_terminal)
            self._record(line)

    def _record(self, what: RenderableType) -> None:
        if self._recorder is not None:
            self._recorder.print(what, highlight=False)

    def note(self, text: str) -> None:
        """Print what an operator did, or what was found."""
        self.say(Text(f" -> {text}", "cyan"))

    @contextmanager
    def scene(self, title: str) -> Iterator["Scene"]:
        """Show calls that belong together, live on a terminal."""
        self.say("", Text(title, "bold"))
        scene = Scene(self)
        with scene:
            yield scene
        self._record(scene.table(self._recorder.width if self._recorder else 0))
        self._header = False

    def table(self, rows: list[Row], width: int) -> Table:
        """Return the rows as a table; all tables of one width align."""
        table = Table(box=None, width=width, padding=(0, 1, 0, 0), show_header=self._header, header_style="dim")
        table.add_column("#", justify="right", width=2)
        table.add_column("tool", width=11, no_wrap=True)
        table.add_column("arguments", ratio=5, no_wrap=True)
        table.add_column("outcome", width=9)
        table.add_column("who and why, or result", ratio=9)
        table.add_column("asked ms", justify="right", width=8)
        table.add_column("ran ms", justify="right", width=6)
        for row in rows:
            cells = (Text(str(row.number)), Text(row.tool), Text(row.short_arguments), row.outcome, row.words)
            table.add_row(*cells, *row.times)
        return table

    @property
    def width(self) -> int:
        """Columns of a table on the user's console."""
        return self._width


class Scene:
    """The rows of calls that belong together."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._rows: list[Row] = []
        live = Live(console=view.console, auto_refresh=False) if view.console.is_terminal else None
        self._live = live

    def table(self, width: int = 0) -> Table:
        """Return the rows so far."""
        return self._view.table(self._rows, width or self._view.width)

    def add(self, row: Row) -> None:
        """Show a call that begins."""
        self._rows.append(row)
        self._refresh()

    def ended(self, row: Row) -> None:
        """Show how a call ended."""
        self._refresh()
        if self._live is None:
            self._view.console.print(row.line, highlight=False, soft_wrap=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()
