"""What each hook came to, counted."""

from collections import defaultdict
from dataclasses import dataclass

from hookbus_schemas import HookDecision, Verdict


@dataclass(slots=True)
class HookCounters:
    """What one hook came to since the executor started; each a number of calls."""

    allowed: int = 0
    denied: int = 0
    timed_out: int = 0
    unavailable: int = 0
    errors: int = 0
    failed_open: int = 0
    late: int = 0

    def count(self, decision: HookDecision) -> None:
        """Count one decision, and whether it was let pass without one."""
        match decision.decision:
            case Verdict.ALLOW:
                self.allowed += 1
            case Verdict.DENY:
                self.denied += 1
            case Verdict.TIMEOUT:
                self.timed_out += 1
            case Verdict.UNAVAILABLE:
                self.unavailable += 1
            case Verdict.ERROR:
                self.errors += 1
        self.failed_open += decision.failed_open


class Counters(defaultdict[str, HookCounters]):
    """The counters of every hook, by name."""

    def __init__(self) -> None:
        super().__init__(HookCounters)
