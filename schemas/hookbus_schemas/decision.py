"""What a hook answers, and what stood in for an answer that did not come."""

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue

from hookbus_schemas.message import Int64, Message, Milliseconds, Name, Text, Words
from hookbus_schemas.registration import Enforcement


class Verdict(StrEnum):
    """The five things that a hook can come to in one admission."""

    ALLOW = "allow"
    DENY = "deny"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    ERROR = "error"


MAX_DEPTH = 64
"""Deepest nesting of suggested arguments: what every reader and writer of JSON can take, an event round it."""


def _portable(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse what JSON has not, NaN and infinity, and what is too deep; the rest `encode` refuses."""
    json.dumps(arguments, allow_nan=False)
    level: list[Iterable[JsonValue]] = [arguments.values()]
    for _ in range(MAX_DEPTH):
        inner = [value for values in level for value in values]
        level = [
            value.values() if isinstance(value, dict) else value for value in inner if isinstance(value, dict | list)
        ]
        if not level:
            return arguments
    raise ValueError(f"must not be nested more than {MAX_DEPTH} deep")


class _Said(Message):
    """The words that go with a decision, on the wire and in the record.

    Attributes:
        reason: words for the model; what is longer than 4,096 characters is cut by the reader.
        reason_code: one of few values, for counting.
        warning: with an allow, a word to the model; cut as the reason is.
        suggested_arguments: with a deny, arguments that would pass, at most 64 deep; shown, never applied.
        labels: kept in the record.
        policy_revision: which version of the hook's policy decided.
    """

    reason: Words = ""
    reason_code: str = Field(default="", max_length=64)
    warning: Words = ""
    suggested_arguments: Annotated[dict[str, JsonValue], AfterValidator(_portable)] | None = None
    labels: dict[Text, Text] = Field(default_factory=dict, max_length=32, json_schema_extra={"default": {}})
    policy_revision: str = Field(default="", max_length=256)


class Decision(_Said):
    """One hook's answer. An allow means "no objection": it widens nothing and skips no other hook.

    Attributes:
        decision: ``allow``, ``deny``, or ``error`` from a hook that could not decide; the set is closed.
        request_digest: SHA-256, in hexadecimal, of the body that this answers; the kit fills it in.
    """

    decision: Literal[Verdict.ALLOW, Verdict.DENY, Verdict.ERROR]
    request_digest: str = ""

    @classmethod
    def allow(cls, *, warning: str = "", **said: Any) -> Self:
        """Return an answer that does not object, with an optional word to the model."""
        return cls(decision=Verdict.ALLOW, warning=warning, **said)

    @classmethod
    def deny(cls, reason: str, **said: Any) -> Self:
        """Return an answer that stops the call and tells the model why."""
        return cls(decision=Verdict.DENY, reason=reason, **said)

    @classmethod
    def error(cls, reason: str, **said: Any) -> Self:
        """Return an answer that says that the hook could not decide; its failure policy then does."""
        return cls(decision=Verdict.ERROR, reason=reason, **said)


PLAIN_ALLOW = Decision.allow()
"""The allow that says nothing else: most answers, so it is made once."""


def in_its_place(decision: Decision) -> Decision:
    """Return what to send for a decision that cannot be sent as it is: a deny stays a deny, all else is an error."""
    if getattr(decision, "decision", None) is Verdict.DENY:
        return Decision.deny(decision.reason, reason_code="shortened_deny")
    return Decision.error("the hook's answer is too large or cannot be encoded", reason_code="bad_answer")


class HookDecision(_Said):
    """A decision as admission recorded it.

    Attributes:
        hook: whose it is.
        decision: what the hook answered, or what stood in for its answer.
        enforcement: in ``shadow`` the decision was recorded and could not block.
        failed_open: no usable answer came and the hook's failure policy let the call pass.
        revision: of the registration by which the hook was asked; 0 for a hook in the agent's own process.
        elapsed_ms: milliseconds from asking to deciding.
    """

    hook: Name
    decision: Verdict = Field(strict=False)
    enforcement: Enforcement = Field(default=Enforcement.ENFORCE, strict=False)
    failed_open: bool = False
    revision: Int64 = 0
    elapsed_ms: Milliseconds = 0.0
