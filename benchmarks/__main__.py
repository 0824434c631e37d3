"""``make bench``: tables of what asking hooks, plugins and the record cost, as ratios in one run."""

import argparse
import asyncio
import contextlib
import json
import logging
from pathlib import Path

import structlog
import uvloop
from rich.console import Console

from benchmarks import admission, events, plugins
from benchmarks.report import circumstances, figures, table

QUICK = 6


async def run(rounds: int, output: Path | None, loop: str) -> None:
    """Measure and print."""
    console = Console(width=120)
    console.print(", ".join(circumstances(loop).values()), highlight=False)
    async with admission.stage() as asking:
        rows, rates = await admission.measure(asking, rounds)
    console.print(table("asking", rows, rates))
    async with plugins.stage() as admit:
        bridged, bridged_rates = await plugins.measure(admit, max(2, rounds // 2))
    console.print(table("plugins", bridged, bridged_rates))
    async with events.stage() as recording:
        more, more_rates = await events.measure(recording, max(2, rounds // 4))
    console.print(table("recording", more, more_rates))
    if output is not None:
        found = figures(rows + bridged + more, rates + bridged_rates + more_rates, loop)
        output.write_text(json.dumps(found, indent=2) + "\n")  # noqa: ASYNC240 - nothing else runs any more


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--rounds", type=int, default=20, help="paired rounds; the ratio is the median of them")
    options.add_argument("--quick", action="store_true", help=f"{QUICK} rounds")
    options.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    options.add_argument("--json", type=Path, help="write the figures to this file too")
    said = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    factory = uvloop.new_event_loop if said.loop == "uvloop" else None
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(QUICK if said.quick else said.rounds, said.json, said.loop))


if __name__ == "__main__":
    main()
