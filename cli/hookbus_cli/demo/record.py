"""The record, replayed from the stream and compared with what the agent saw."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hookbus_broker import Connection
from hookbus_cli.demo.view import Row
from hookbus_schemas import Outcome, ToolAfterEvent, ToolDeniedEvent
from hookbus_subscribers import replay as replay_events

Event = ToolAfterEvent | ToolDeniedEvent


@dataclass(frozen=True, slots=True)
class Replay:
    """What the stream holds, and the seconds that reading it took."""

    events: tuple[Event, ...]
    duration: float

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many calls ended in each way."""
        return Counter(Outcome(event.outcome) for event in self.events)

    def of(self, call_id: str) -> Event | None:
        """Return the event of a call."""
        return next((event for event in self.events if event.context.call_id == call_id), None)


async def replay(connection: Connection) -> Replay:
    """Read the whole stream."""
    began = time.perf_counter()
    events = [stored.event async for stored in replay_events(connection)]
    return Replay(tuple(events), time.perf_counter() - began)


def differences(replayed: Replay, seen: Sequence[Row]) -> list[str]:
    """Return, in words, where the record and what the agent saw differ; every call must be there exactly once."""
    times = Counter(event.context.call_id for event in replayed.events)
    known = {row.result.call_id for row in seen if row.result}
    found = [f"the record holds a call that the agent did not make: {call}" for call in times.keys() - known]
    for row in seen:
        found.extend(_of_call(row, replayed, times))
    return found


def _of_call(row: Row, replayed: Replay, times: Counter[str]) -> list[str]:
    if row.result is None:
        return [f"call {row.number} has no result"]
    event = replayed.of(row.result.call_id)
    if event is None or times[row.result.call_id] != 1:
        return [f"call {row.number} is {times[row.result.call_id]} times in the record"]
    recorded = (event.context.tool_name, event.outcome, *_ending(event))
    told = (row.tool, row.result.outcome, *_told(row))
    return [] if recorded == told else [f"call {row.number} is recorded as {recorded}, and the agent saw {told}"]


def _ending(event: Event) -> tuple[str, str]:
    return ("", event.result) if isinstance(event, ToolAfterEvent) else (event.denied_by, event.reason)


def _told(row: Row) -> tuple[str, str]:
    result = row.result
    assert result is not None  # noqa: S101 - asked before
    return (result.denied_by, result.reason) if result.outcome is Outcome.DENIED else ("", result.text)
