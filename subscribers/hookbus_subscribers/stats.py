"""What a record comes to: outcomes, denials, and how long each hook took. Pure; it is fed event by event."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from hookbus_schemas import HookDecision, Outcome, ToolAfterEvent, ToolDeniedEvent, Verdict

BOUNDS_MS = tuple(10 ** (step / 20) / 100 for step in range(121))
"""Upper bounds of the classes in which times are counted, 0.01 ms to 10 s, each 12 % above the one before."""


@dataclass(slots=True)
class Latencies:
    """Times, counted in classes, so that a million cost no more than ten."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, elapsed_ms: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += 1

    def percentile(self, share: float) -> float:
        """Return the milliseconds that this share of the times did not exceed, rounded up; 0 without any."""
        wanted, seen = share * self.counts.total(), 0
        for place in sorted(self.counts):
            seen += self.counts[place]
            if seen >= wanted:
                return BOUNDS_MS[min(place, len(BOUNDS_MS) - 1)]
        return 0.0


@dataclass(slots=True)
class OfHook:
    """One hook: what it said, how often it was let pass without an answer, and how long it took."""

    decisions: Counter[Verdict] = field(default_factory=Counter)
    shadow_denials: int = 0
    failed_open: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def add(self, decision: HookDecision) -> None:
        """Count a decision."""
        self.decisions[decision.decision] += 1
        self.failed_open += decision.failed_open
        self.shadow_denials += decision.enforcement == "shadow" and decision.decision is Verdict.DENY
        self.latencies.add(decision.elapsed_ms)


@dataclass(slots=True)
class Stats:
    """A record.

    Attributes:
        outcomes: calls by how they ended.
        denials: stopped calls by who stopped them and the reason's code.
        hooks: by name.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    denials: Counter[tuple[str, str]] = field(default_factory=Counter)
    hooks: dict[str, OfHook] = field(default_factory=dict)

    def add(self, event: ToolAfterEvent | ToolDeniedEvent) -> None:
        """Count an event."""
        self.outcomes[event.outcome] += 1
        if isinstance(event, ToolDeniedEvent):
            self.denials[event.denied_by, event.reason_code] += 1
        for decision in event.decisions:
            self.hooks.setdefault(decision.hook, OfHook()).add(decision)
