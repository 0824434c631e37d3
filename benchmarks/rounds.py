"""Measuring contestants in turn, so that whatever else the machine does hits all of them alike."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

Work = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Measured:
    """One contestant's figures.

    Attributes:
        name: what the table calls it.
        rounds: the median of each round: seconds a call, or calls a second.
        samples: seconds of every single call.
    """

    name: str
    rounds: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)

    def add(self, times: Sequence[float]) -> None:
        """Take the seconds of every call of one round."""
        self.samples += times
        self.rounds.append(statistics.median(times))

    def percentile(self, share: float) -> float:
        """Return the time, in seconds, that this share of the calls did not exceed."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def ratio(self, base: "Measured") -> float:
        """Return the median of this one's rounds over the other's, pair by pair."""
        return statistics.median(mine / other for mine, other in zip(self.rounds, base.rounds, strict=True))


async def latency(
    contestants: Sequence[tuple[str, Work, int]], rounds: int, settle: Work | None = None
) -> dict[str, Measured]:
    """Return how long one call of each takes; each round asks every contestant (name, work, calls a round).

    `settle` runs after each, untimed, so that what one left in the background burdens no other.
    """
    found = {name: Measured(name) for name, _, _ in contestants}
    for number in range(rounds + 1):
        for name, work, calls in contestants:
            times = [await _timed(work) for _ in range(calls)]
            if settle is not None:
                await settle()
            if number:  # the first round warms up
                found[name].add(times)
    return found


async def throughput(
    contestants: Sequence[tuple[str, Work]], *, at_once: int, each: int, rounds: int
) -> dict[str, Measured]:
    """Return calls a second with `at_once` callers that make `each` calls one after the other."""
    found = {name: Measured(name) for name, _ in contestants}

    async def caller(work: Work) -> None:
        for _ in range(each):
            await work()

    for number in range(rounds + 1):
        for name, work in contestants:
            began = time.perf_counter()
            await asyncio.gather(*(caller(work) for _ in range(at_once)))
            if number:
                found[name].rounds.append(at_once * each / (time.perf_counter() - began))
    return found


async def rates(contestants: Sequence[tuple[str, Work]], events: int, rounds: int) -> dict[str, Measured]:
    """Return events a second of each contestant, whose work is this many events."""
    found = {name: Measured(name) for name, _ in contestants}
    for number in range(rounds + 1):
        for name, work in contestants:
            seconds = await _timed(work)
            if number:
                found[name].rounds.append(events / seconds)
    return found


async def _timed(work: Work) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
