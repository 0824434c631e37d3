"""From how a call ended to its event, and what the agent gets of it."""

import asyncio
import secrets
import time
from collections.abc import Coroutine, Sequence

import structlog

from hookbus_broker.callbacks import say
from hookbus_executor.outbox import Event, Outbox
from hookbus_executor.poll import Poll, unguarded_by
from hookbus_executor.registrations import Registrations
from hookbus_executor.result import Admission, ToolResult
from hookbus_schemas import Hook, HookDecision, Outcome, ToolAfterEvent, ToolDeniedEvent
from hookbus_schemas.event import AfterOutcome
from hookbus_schemas.hook import Observe, observer, observes
from hookbus_schemas.isolation import FAILURES, is_cancellation
from hookbus_schemas.threads import Threads

AFTER_TIMEOUT = 5.0
"""Seconds that a hook in this process has for what it does after a call; nobody waits for it."""

MAX_BACKGROUND = 10_000
"""Tasks of this kind at once; more means that something hangs, and is logged."""

_log = structlog.get_logger()


class Recorder:
    """Writes one event for each call, and the line in the log that says it all."""

    def __init__(
        self, outbox: Outbox, registrations: Registrations, in_process: Sequence[Hook], threads: Threads
    ) -> None:
        self._outbox = outbox
        self._registrations = registrations
        self._observers = {hook.name: observer(hook, threads) for hook in in_process if observes(hook)}
        self._background: set[asyncio.Task[None]] = set()

    async def settle(self) -> None:
        """Wait until every event so far is in the outbox; each has its own deadline."""
        while self._background:
            await asyncio.wait(self._background)

    def denied(self, admission: Admission, poll: Poll | None = None) -> ToolResult:
        """Record a call that was stopped."""
        context = admission.context
        event = ToolDeniedEvent(
            event_id=secrets.token_hex(16),
            at_ms=_now(),
            context=context,
            admission_ms=_ms(admission.elapsed),
            decisions=admission.decisions,
            unguarded_by=admission.unguarded_by,
            denied_by=admission.denied_by,
            reason=admission.reason,
            reason_code=admission.reason_code,
        )
        say(
            _log.warning,
            "tool_call.denied",
            tool=context.tool_name,
            call_id=context.call_id,
            session=context.session_id,
            denied_by=admission.denied_by,
            reason=event.reason,
            reason_code=admission.reason_code,
            admission_ms=event.admission_ms,
        )
        if self._outbox.is_full:  # a flood of refused calls must not fill the memory: the line above is their trace
            self._outbox.dropped += 1
        else:
            self._append(event, poll)
        return ToolResult(
            text=admission.denial,
            outcome=Outcome.DENIED,
            call_id=context.call_id,
            denied_by=admission.denied_by,
            reason=admission.reason,
            decisions=admission.decisions,
            admission_duration=admission.elapsed,
        )

    def ran(
        self, admission: Admission, poll: Poll | None, outcome: AfterOutcome, text: str, duration: float
    ) -> ToolResult:
        """Record a call that was admitted."""
        context = admission.context
        told = self._registrations.table.told_of(context.tool_name)
        event = ToolAfterEvent(
            event_id=secrets.token_hex(16),
            at_ms=_now(),
            context=context,
            admission_ms=_ms(admission.elapsed),
            decisions=admission.decisions,
            unguarded_by=admission.unguarded_by,
            outcome=outcome,
            duration_ms=_ms(duration),
            result=text,
            told=tuple(hook.name for hook in told),
        )
        say(
            _log.info,
            "tool_call.ended",
            tool=context.tool_name,
            call_id=context.call_id,
            session=context.session_id,
            outcome=outcome.value,
            duration_ms=event.duration_ms,
            admission_ms=event.admission_ms,
            unguarded_by=list(admission.unguarded_by),
        )
        self._append(event, poll)
        for hook in told:
            if hook.decide is not None and hook.name in self._observers:
                self._start(self._tell(hook.name, self._observers[hook.name], event))
        return ToolResult(
            text=_with_warnings(text, admission.decisions),
            outcome=outcome,
            call_id=context.call_id,
            decisions=admission.decisions,
            duration=duration,
            admission_duration=admission.elapsed,
        )

    def _append(self, event: Event, poll: Poll | None) -> None:
        if poll is None or poll.is_complete:
            self._outbox.append(_with_decisions(event, poll))
        else:
            self._start(self._append_when_complete(event, poll))

    async def _append_when_complete(self, event: Event, poll: Poll) -> None:
        """Wait for shadow hooks, which nobody else waits for; each ends by its own deadline."""
        await asyncio.wait((poll.complete,))
        self._outbox.append(_with_decisions(event, poll))

    async def _tell(self, hook: str, observe: Observe, event: ToolAfterEvent) -> None:
        failed = event.outcome is not Outcome.COMPLETED
        try:
            async with asyncio.timeout(AFTER_TIMEOUT):
                await observe(event.context, event.result, event.duration_ms / 1000, failed)
        except FAILURES as error:  # what a hook does after a call never reaches the caller
            if is_cancellation(error):
                raise
            say(_log.warning, "hook.after_failed", hook=hook, call_id=event.context.call_id, exc_info=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        if len(self._background) >= MAX_BACKGROUND:
            say(_log.error, "record.overloaded", tasks=len(self._background))
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _with_decisions(event: Event, poll: Poll | None) -> Event:
    """Return the event with the decisions of shadow hooks that came after the call was decided."""
    decisions = poll.decisions() if poll is not None else event.decisions
    if len(decisions) == len(event.decisions):
        return event
    return event.model_copy(update={"decisions": decisions, "unguarded_by": unguarded_by(decisions)})


def _with_warnings(text: str, decisions: Sequence[HookDecision]) -> str:
    """Return what the model reads: the tool's text, then each hook's word to it."""
    warnings = [f"[warning of hook {decision.hook}: {decision.warning}]" for decision in decisions if decision.warning]
    return "\n".join([text, *warnings]) if warnings else text


def _now() -> int:
    return time.time_ns() // 1_000_000


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
