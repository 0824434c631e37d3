"""From how a call ended to its event, and what the agent gets of it."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import structlog

from hookbus_broker.log import say
from hookbus_executor.outbox import Outbox
from hookbus_executor.poll import Poll, unguarded_by
from hookbus_executor.registrations import Registrations
from hookbus_executor.result import Admission, ToolResult
from hookbus_executor.running import Ran
from hookbus_executor.sealing import Event
from hookbus_schemas import Hook, HookDecision, Outcome, ToolAfterEvent, ToolDeniedEvent
from hookbus_schemas.hook import observer, observes
from hookbus_schemas.isolation import FAILURES, is_cancellation
from hookbus_schemas.threads import Threads
from hookbus_schemas.times import now_ms, to_ms

AFTER_TIMEOUT = 5.0
"""Seconds that a hook in this process has for what it does after a call; nobody waits for it."""

MAX_TELLING = 10_000
"""Hooks that are being told at once; beyond that, which means that one hangs, they are told of nothing."""

_log = structlog.get_logger()


class Recorder:
    """Writes one event for each call, and the line in the log that says it all."""

    def __init__(
        self, outbox: Outbox, registrations: Registrations, in_process: Sequence[Hook], threads: Threads
    ) -> None:
        self._outbox = outbox
        self._registrations = registrations
        self._observers = {hook.name: observer(hook, threads) for hook in in_process if observes(hook)}
        self._incomplete: set[asyncio.Future[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()

    async def settle(self) -> None:
        """Wait until every event so far is in the outbox, and told; each has its own deadline."""
        while waiting := self._incomplete | self._telling:
            await asyncio.wait(waiting)

    def denied(self, admission: Admission, poll: Poll | None = None) -> ToolResult:
        """Record a call that was stopped."""
        context = admission.context
        event = ToolDeniedEvent(
            **_recorded(admission),
            denied_by=admission.denied_by,
            reason=admission.reason,
            reason_code=admission.reason_code,
        )
        say(
            _log.warning,
            "tool_call.denied",
            **_logged(event),
            denied_by=admission.denied_by,
            reason=event.reason,
            reason_code=admission.reason_code,
        )
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

    def admitted(self, admission: Admission) -> ToolAfterEvent:
        """Keep what is to be recorded should this process die while the tool runs, and return it.

        Raises:
            JournalUnwritable: it cannot be kept, so the tool must not run.
        """
        told = self._registrations.table.told_of(admission.context.tool_name)
        names = tuple(hook.name for hook in told)
        event = ToolAfterEvent(**_recorded(admission), outcome=Outcome.INTERRUPTED, told=names)
        self._outbox.admit(event)
        return event

    def ran(self, admitted: ToolAfterEvent, admission: Admission, poll: Poll | None, ran: Ran) -> ToolResult:
        """Record how a call ended that was admitted."""
        context, outcome = admission.context, ran.outcome
        told = self._registrations.table.told_of(context.tool_name)
        ended = {
            "at_ms": now_ms(),
            "outcome": outcome,
            "duration_ms": to_ms(ran.duration),
            "result": ran.text,
            "told": tuple(hook.name for hook in told),
        }
        event = admitted.model_copy(update=ended)
        say(
            _log.info,
            "tool_call.ended",
            **_logged(event),
            outcome=outcome.value,
            duration_ms=event.duration_ms,
            unguarded_by=list(admission.unguarded_by),
        )
        self._append(event, poll)
        for hook in told:
            if hook.decide is not None and hook.name in self._observers:
                self._start_telling(hook.name, event)
        return ToolResult(
            text=_with_warnings(ran.text, admission.decisions),
            outcome=outcome,
            call_id=context.call_id,
            decisions=admission.decisions,
            duration=ran.duration,
            admission_duration=admission.elapsed,
        )

    def _append(self, event: Event, poll: Poll | None) -> None:
        if poll is None or poll.is_complete:
            self._outbox.append(_with_decisions(event, poll))
        else:
            self._append_when_complete(event, poll)

    def _append_when_complete(self, event: Event, poll: Poll) -> None:
        """Wait for shadow hooks, which nobody else waits for; each ends by its own deadline."""
        self._outbox.promise()
        self._incomplete.add(poll.complete)

        def append(_: object) -> None:
            self._incomplete.discard(poll.complete)
            self._outbox.release()
            self._outbox.append(_with_decisions(event, poll))

        poll.complete.add_done_callback(append)

    def _start_telling(self, hook: str, event: ToolAfterEvent) -> None:
        if len(self._telling) >= MAX_TELLING:
            say(_log.error, "hook.not_told", hook=hook, call_id=event.context.call_id, telling=len(self._telling))
            return
        task = asyncio.get_running_loop().create_task(self._tell(hook, event))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, hook: str, event: ToolAfterEvent) -> None:
        observe, failed = self._observers[hook], event.outcome is not Outcome.COMPLETED
        try:
            async with asyncio.timeout(AFTER_TIMEOUT):
                await observe(event.context, event.result, event.duration_ms / 1000, failed)
        except FAILURES as error:  # what a hook does after a call never reaches the caller
            if is_cancellation(error):
                raise
            say(_log.warning, "hook.after_failed", hook=hook, call_id=event.context.call_id, exc_info=True)


def _recorded(admission: Admission) -> dict[str, Any]:
    """Return what the event of any call says."""
    return {
        "event_id": secrets.token_hex(16),
        "at_ms": now_ms(),
        "context": admission.context,
        "admission_ms": to_ms(admission.elapsed),
        "decisions": admission.decisions,
        "unguarded_by": admission.unguarded_by,
    }


def _logged(event: Event) -> dict[str, object]:
    """Return what the line in the log of any call says."""
    context = event.context
    about = {"tool": context.tool_name, "call_id": context.call_id, "session": context.session_id}
    return about | {"admission_ms": event.admission_ms}


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
