"""Trying a hook on recorded calls: what it would have stopped that ran, and let pass that it stopped. Nothing runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from hookbus_schemas import Decision, Hook, ToolAfterEvent, ToolDeniedEvent, ToolHookContext, Verdict
from hookbus_schemas.hook import Decide, decider
from hookbus_schemas.isolation import FAILURES, is_cancellation
from hookbus_schemas.registration import MAX_TIMEOUT_MS
from hookbus_schemas.threads import Threads
from hookbus_subscribers.replaying import StoredEvent

AT_ONCE = 64
"""Recorded calls that the hook is asked about at once."""

EXAMPLES = 5
"""Calls that are shown of each kind."""


@dataclass(frozen=True, slots=True)
class Example:
    """One call that would have ended in another way."""

    event_id: str
    at_ms: int
    tool: str
    session: str
    reason: str


@dataclass(slots=True)
class Group:
    """Calls that would have ended in the same other way: how many of each tool, and the first few."""

    tools: dict[str, int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)

    def add(self, event: ToolAfterEvent | ToolDeniedEvent, reason: str) -> None:
        """Count a call."""
        context = event.context
        self.tools[context.tool_name] = self.tools.get(context.tool_name, 0) + 1
        if len(self.examples) < EXAMPLES:
            example = Example(event.event_id, event.at_ms, context.tool_name, context.session_id, reason)
            self.examples.append(example)


@dataclass(slots=True)
class WhatIf:
    """What came of asking a hook about recorded calls.

    Attributes:
        asked: calls that it was asked about.
        denied: calls that ran and that it would have stopped.
        allowed: calls that a hook of its name stopped and that it would have let pass.
        unanswered: calls of which it said nothing usable, with what it raised.
    """

    asked: int = 0
    denied: Group = field(default_factory=Group)
    allowed: Group = field(default_factory=Group)
    unanswered: Group = field(default_factory=Group)

    def add(self, name: str, event: ToolAfterEvent | ToolDeniedEvent, answer: Decision) -> None:
        """Compare what the hook says now with how the call ended."""
        self.asked += 1
        if answer.decision is Verdict.ERROR:
            self.unanswered.add(event, answer.reason)
        elif isinstance(event, ToolAfterEvent) and answer.decision is Verdict.DENY:
            self.denied.add(event, answer.reason)
        elif isinstance(event, ToolDeniedEvent) and event.denied_by == name and answer.decision is Verdict.ALLOW:
            self.allowed.add(event, event.reason)


async def try_hook(hook: Hook, events: AsyncIterator[StoredEvent]) -> WhatIf:
    """Ask a hook, as a dry run, about each recorded call that reached the hooks.

    A hook that keeps what it knows on the bus must be attached to it.
    """
    found, decide = WhatIf(), decider(hook, Threads(AT_ONCE))
    places = asyncio.Semaphore(AT_ONCE)

    async def ask(event: ToolAfterEvent | ToolDeniedEvent) -> None:
        try:
            found.add(hook.name, event, await _answer(decide, event.context))
        finally:
            places.release()

    async with asyncio.TaskGroup() as group:
        async for stored in events:
            if isinstance(stored.event, ToolAfterEvent) or stored.event.decisions:
                await places.acquire()
                group.create_task(ask(stored.event))
    return found


async def _answer(decide: Decide, context: ToolHookContext) -> Decision:
    now = time.time_ns() // 1_000_000
    asked = {"dry_run": True, "sent_at_ms": now, "deadline_ms": now + MAX_TIMEOUT_MS}
    try:
        async with asyncio.timeout(MAX_TIMEOUT_MS / 1000):
            return await decide(context.model_copy(update=asked))
    except FAILURES as error:
        if is_cancellation(error):
            raise
        return Decision.error(f"it raised {type(error).__name__}")
