"""What an agent gets back: the admission of a call, and the result of one that was to run."""

import json
from dataclasses import dataclass, field

from pydantic import JsonValue

from hookbus_schemas import HookDecision, Outcome, ToolHookContext

EXECUTOR = "executor"
"""What `denied_by` says where no hook denied: the call never reached them."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What asking all hooks about one call came to.

    Attributes:
        allowed: whether the call may run.
        denied_by: the hook that decided against it, or ``executor``; empty when allowed.
        reason, reason_code: why; for the model, and for counting.
        decisions: all that came in time, in the order of registration; in-process hooks among them.
        unguarded_by: enforced hooks that gave no usable answer and were let pass by an open failure policy.
        skipped: hooks with side effects, which a dry run does not ask.
        elapsed: seconds that it took.
        suggested_arguments: with a deny, what the hook would let pass; shown, never applied.
        context: what the hooks were asked.
    """

    allowed: bool
    context: ToolHookContext
    denied_by: str = ""
    reason: str = ""
    reason_code: str = ""
    decisions: tuple[HookDecision, ...] = ()
    unguarded_by: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    elapsed: float = 0.0
    suggested_arguments: dict[str, JsonValue] | None = None

    @property
    def denial(self) -> str:
        """What the model reads of a denied call."""
        if self.denied_by == EXECUTOR:
            return f"Error: {self.reason}"
        text = f"Tool execution denied by hook: {self.denied_by}"
        if self.reason:
            text += f": {self.reason}"
        if self.suggested_arguments is not None:
            text += f"\nArguments that would pass: {json.dumps(self.suggested_arguments, ensure_ascii=False)}"
        return text


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended.

    Attributes:
        text: what the model reads: the tool's result, an error, or who denied and why.
        outcome: how the call ended.
        call_id: the call, as in the record.
        denied_by, reason: the hook that denied, and its words; empty otherwise.
        decisions: every hook's decision.
        duration: seconds that the tool alone took.
        admission_duration: seconds that asking the hooks took.
    """

    text: str
    outcome: Outcome
    call_id: str
    denied_by: str = ""
    reason: str = ""
    decisions: tuple[HookDecision, ...] = field(default=(), repr=False)
    duration: float = 0.0
    admission_duration: float = 0.0
