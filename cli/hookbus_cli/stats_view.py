"""How ``hookbus events stats`` shows what a record comes to."""

from rich.table import Column, Table

from hookbus_cli.command import out, plain
from hookbus_schemas import Verdict
from hookbus_subscribers.stats import BOUNDS_MS, Latencies, Stats

BARS = " ▁▂▃▄▅▆▇█"
CHART_MS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""Upper bounds of the columns of a chart, in milliseconds."""


def as_json(stats: Stats) -> dict[str, object]:
    """Return it for programs; times in milliseconds."""
    return {
        "calls": stats.outcomes.total(),
        "outcomes": {outcome.value: count for outcome, count in stats.outcomes.items()},
        "denials": [
            {"denied_by": by, "reason_code": code, "count": count} for (by, code), count in stats.denials.most_common()
        ],
        "hooks": {name: _hook(stats, name) for name in stats.hooks},
    }


def show(stats: Stats) -> None:
    """Show it to people."""
    outcomes = ", ".join(f"{count} {outcome.value}" for outcome, count in stats.outcomes.most_common())
    out.print(f"{stats.outcomes.total()} calls: {outcomes or 'none'}", soft_wrap=True)
    if stats.denials:
        table = Table("denied by", "reason code", Column("calls", justify="right"))
        for (by, code), count in stats.denials.most_common():
            table.add_row(plain(by), plain(code), str(count))
        out.print(table)
    if stats.hooks:
        heads = ("allowed", "denied", "no answer", "failed open", "shadow denials", "p50 ms", "p95 ms", "p99 ms")
        table = Table(
            Column("hook", overflow="fold"), *(Column(head, justify="right") for head in heads), "0.1 ms to 10 s"
        )
        for name in stats.hooks:
            table.add_row(plain(name), *map(str, _hook(stats, name).values()), _chart(stats.hooks[name].latencies))
        out.print(table)


def _hook(stats: Stats, name: str) -> dict[str, float]:
    hook = stats.hooks[name]
    allowed, denied = hook.decisions[Verdict.ALLOW], hook.decisions[Verdict.DENY]
    counts = {"allowed": allowed, "denied": denied, "no_answer": hook.decisions.total() - allowed - denied}
    times = {f"p{share}_ms": round(hook.latencies.percentile(share / 100), 2) for share in (50, 95, 99)}
    return counts | {"failed_open": hook.failed_open, "shadow_denials": hook.shadow_denials} | times


def _chart(latencies: Latencies) -> str:
    """Return a bar for each column of times; the highest is full."""
    columns = [0] * len(CHART_MS)
    for place, count in latencies.counts.items():
        bound = BOUNDS_MS[min(place, len(BOUNDS_MS) - 1)]
        columns[next((n for n, most in enumerate(CHART_MS) if bound <= most * 1.001), -1)] += count
    most = max(columns, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in columns)
