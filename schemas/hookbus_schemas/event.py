"""What consumers receive: `ToolAfterEvent` for a call that ran, `ToolDeniedEvent` for one that did not."""

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from hookbus_schemas.context import ToolHookContext
from hookbus_schemas.decision import HookDecision
from hookbus_schemas.message import Int64, Message, Milliseconds, Words
from hookbus_schemas.stored_text import StoredText


class Outcome(StrEnum):
    """How a call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DENIED = "denied"
    INTERRUPTED = "interrupted"


AfterOutcome: TypeAlias = Literal[Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED]
"""How a call that was admitted can end."""


class ChainLink(BaseModel):
    """Ties an event to the one before it, so that gaps, changes and forks can be proved.

    Attributes:
        chain: one run of one executor; random.
        sequence: 1 for the first event of the chain.
        previous: SHA-256 of the body of the event before, as it was published, in hexadecimal; empty for the first.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    chain: str = Field(min_length=1)
    sequence: int = Field(ge=1, le=2**63 - 1)
    previous: str = ""


class _Event(Message):
    """What is recorded of every call.

    Attributes:
        event_id: random, the same in every copy; also ``Nats-Msg-Id`` and ``ce-id``.
        at_ms: when the call ended or was stopped, in milliseconds since 1970 by the executor's clock.
        context: what the hooks were asked.
        admission_ms: milliseconds that asking the hooks took.
        decisions: every hook's, in the order of registration.
        unguarded_by: enforced hooks that gave no usable answer and were let pass by an open failure policy.
        link: its place in its executor's chain; None in an event that was not published yet.
    """

    event_id: str = Field(min_length=1)
    at_ms: Int64
    context: ToolHookContext
    admission_ms: Milliseconds = 0.0
    decisions: tuple[HookDecision, ...] = Field(default=(), strict=False)
    unguarded_by: tuple[str, ...] = Field(default=(), strict=False)
    link: ChainLink | None = None


class ToolAfterEvent(_Event):
    """A call that was admitted, and how it ended.

    Attributes:
        type: tells the events apart.
        outcome: how the call ended.
        duration_ms: milliseconds that the tool alone took.
        result: the text that the model reads; empty where it is kept apart.
        result_stored: the result that was too large for the message.
        told: the hooks that are to be told: those whose registrations have ``after`` and match the tool.
    """

    type: Literal["tool:after"] = "tool:after"
    outcome: AfterOutcome
    duration_ms: Milliseconds = 0.0
    result: str = ""
    result_stored: StoredText | None = None
    told: tuple[str, ...] = Field(default=(), strict=False)


class ToolDeniedEvent(_Event):
    """A call that was stopped before it ran.

    Attributes:
        type: tells the events apart.
        outcome: always ``denied``.
        denied_by: the hook that decided, or ``executor`` for a call that reached no hook.
        reason: its words, or what was wrong.
        reason_code: one of few values, for counting.
    """

    type: Literal["tool:denied"] = "tool:denied"
    outcome: Literal[Outcome.DENIED] = Outcome.DENIED
    denied_by: str
    reason: Words = ""
    reason_code: str = ""


ToolEvent = Annotated[ToolAfterEvent | ToolDeniedEvent, Field(discriminator="type")]
"""Either event, told apart by ``type``."""
