"""One admission in progress: what each hook came to, and when that decides the call. Pure: no bus, no clock.

Above it `asking` sends the requests and brings the answers; below it are only the models of the contract.
"""

import asyncio
from collections.abc import Sequence

from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.result import Admission
from hookbus_schemas import Decision, HookDecision, ToolHookContext, Verdict
from hookbus_schemas.times import to_ms


def judge(hook: RegisteredHook, answer: Decision, elapsed: float) -> HookDecision:
    """Return a hook's own answer as the record holds it."""
    return HookDecision(
        hook=hook.name,
        decision=answer.decision,
        reason=answer.reason,
        reason_code=answer.reason_code or ("hook_error" if answer.decision is Verdict.ERROR else ""),
        warning=answer.warning,
        suggested_arguments=answer.suggested_arguments,
        labels=answer.labels,
        policy_revision=answer.policy_revision,
        enforcement=hook.registration.enforcement,
        failed_open=answer.decision is Verdict.ERROR and hook.fails_open,
        revision=hook.revision,
        elapsed_ms=to_ms(elapsed),
    )


def stand_in(hook: RegisteredHook, verdict: Verdict, reason: str, code: str, elapsed: float) -> HookDecision:
    """Return what stands in the record for an answer that did not come, or was none."""
    return HookDecision(
        hook=hook.name,
        decision=verdict,
        reason=reason,
        reason_code=code,
        enforcement=hook.registration.enforcement,
        failed_open=hook.fails_open,
        revision=hook.revision,
        elapsed_ms=to_ms(elapsed),
    )


class Poll:
    """One call's decisions.

    The call is decided by the first enforced deny (or failure that counts as one), or when every enforced hook has let
    it pass. Shadow hooks never delay it; `complete` is done when they too have come in. A `patient` poll waits for all.
    """

    def __init__(self, context: ToolHookContext, hooks: Sequence[RegisteredHook], *, patient: bool = False) -> None:
        self.context = context
        self._order = {hook.name: place for place, hook in enumerate(hooks)}
        self._waiting = {hook.name: hook for hook in hooks}
        self._blocking = sum(hook.enforced or patient for hook in hooks)
        self._patient = patient
        self._decisions: list[HookDecision] = []
        self._denial: HookDecision | None = None
        self._loop = asyncio.get_running_loop()
        self.decided: asyncio.Future[None] = self._loop.create_future()
        self._complete: asyncio.Future[None] | None = None
        if not self._blocking:
            self.decided.set_result(None)

    @property
    def is_complete(self) -> bool:
        """Whether no decision is still to come."""
        return not self._waiting

    @property
    def complete(self) -> "asyncio.Future[None]":
        """Done when no decision is still to come; few polls are waited for so long, so it is made when asked for."""
        if self._complete is None:
            self._complete = self._loop.create_future()
            if not self._waiting:
                self._complete.set_result(None)
        return self._complete

    def wants(self, hook: RegisteredHook) -> bool:
        """Tell whether this hook's decision is still to come and would be recorded."""
        return hook.name in self._waiting

    def record(self, hook: RegisteredHook, decision: HookDecision) -> None:
        """Take one hook's decision; a second one of the same hook changes nothing."""
        if self._waiting.pop(hook.name, None) is None:
            return
        self._decisions.append(decision)
        if hook.enforced or self._patient:
            self._blocking -= 1
            if self._denial is None and _denies(hook, decision):
                self._denial = decision
        if not self.decided.done() and (not self._blocking or (self._denial is not None and not self._patient)):
            self._decide()
        if not self._waiting and self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    def _decide(self) -> None:
        if self._denial is not None:  # the rest is not waited for; shadow hooks are recorded all the same
            self._waiting = {name: hook for name, hook in self._waiting.items() if not hook.enforced}
        self.decided.set_result(None)

    def decisions(self) -> tuple[HookDecision, ...]:
        """Return what has come in so far, in the order of registration."""
        if len(self._decisions) < 2:
            return tuple(self._decisions)
        return tuple(sorted(self._decisions, key=lambda decision: self._order[decision.hook]))

    def admission(self, *, skipped: tuple[str, ...], elapsed: float) -> Admission:
        """Return what the poll came to."""
        decisions = self.decisions()
        denial = self._denial
        return Admission(
            allowed=denial is None,
            context=self.context,
            denied_by=denial.hook if denial else "",
            reason=denial_words(denial) if denial else "",
            reason_code=denial.reason_code if denial else "",
            decisions=decisions,
            unguarded_by=unguarded_by(decisions),
            skipped=skipped,
            elapsed=elapsed,
            suggested_arguments=denial.suggested_arguments if denial else None,
        )


def unguarded_by(decisions: Sequence[HookDecision]) -> tuple[str, ...]:
    """Return the enforced hooks that gave no usable answer and were let pass."""
    return tuple(decision.hook for decision in decisions if decision.failed_open and decision.enforcement == "enforce")


def denial_words(denial: HookDecision) -> str:
    """Return a denial's reason; for one that stands in for an answer it begins with what happened."""
    return denial.reason if denial.decision is Verdict.DENY else f"{denial.decision}: {denial.reason}".rstrip(": ")


def _denies(hook: RegisteredHook, decision: HookDecision) -> bool:
    return hook.enforced and decision.decision is not Verdict.ALLOW and not decision.failed_open
