"""A recorded call as one flat row, for tables: the columns of an export to CSV and Parquet. Pure."""

import json
from typing import TypeAlias

from pydantic import TypeAdapter

from hookbus_cli.times import utc_time
from hookbus_schemas import HookDecision, ToolAfterEvent, ToolDeniedEvent

Value: TypeAlias = str | int | float | None

COLUMNS: dict[str, type] = {
    "time": str,
    "event_id": str,
    "type": str,
    "executor": str,
    "session": str,
    "sender": str,
    "channel": str,
    "call_id": str,
    "tool": str,
    "outcome": str,
    "denied_by": str,
    "reason": str,
    "reason_code": str,
    "duration_ms": float,
    "admission_ms": float,
    "arguments_json": str,
    "result": str,
    "unguarded_by": str,
    "decisions": str,
    "chain": str,
    "sequence": int,
}
"""The columns in their order, and what each holds; what a call has not is None."""

_DECISIONS: TypeAdapter[tuple[HookDecision, ...]] = TypeAdapter(tuple[HookDecision, ...])


def row(event: ToolAfterEvent | ToolDeniedEvent) -> dict[str, Value]:
    """Return the row of one call; lists in it are JSON, the time is ISO 8601 in UTC."""
    context, link = event.context, event.link
    return {
        "time": utc_time(event.at_ms),
        "event_id": event.event_id,
        "type": event.type,
        "executor": context.executor_id,
        "session": context.session_id,
        "sender": context.sender_id,
        "channel": context.channel_id,
        "call_id": context.call_id,
        "tool": context.tool_name,
        "outcome": event.outcome.value,
        **_ending(event),
        "admission_ms": event.admission_ms,
        "arguments_json": context.arguments_json,
        "unguarded_by": json.dumps(event.unguarded_by, ensure_ascii=False),
        "decisions": _DECISIONS.dump_json(event.decisions).decode(),
        "chain": None if link is None else link.chain,
        "sequence": None if link is None else link.sequence,
    }


def _ending(event: ToolAfterEvent | ToolDeniedEvent) -> dict[str, Value]:
    found: dict[str, Value] = dict.fromkeys(("denied_by", "reason", "reason_code", "duration_ms", "result"))
    if isinstance(event, ToolAfterEvent):
        return found | {"duration_ms": event.duration_ms, "result": event.result}
    return found | {"denied_by": event.denied_by, "reason": event.reason, "reason_code": event.reason_code}
