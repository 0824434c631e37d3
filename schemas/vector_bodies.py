"""What the golden vectors of the messages are made of."""

import json
from dataclasses import dataclass
from typing import Literal

import msgpack

Kind = Literal["context", "decision", "event", "registration"]
Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Vector:
    """One body, whether a reader takes it, and why; a context or a decision may be in JSON instead of msgpack."""

    name: str
    kind: Kind
    body: bytes
    valid: bool
    why: str
    json: bool = False


MAX_INT = 2**63 - 1
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

CONTEXT: Fields = {
    "v": 1,
    "tool_name": "read_file",
    "arguments_json": "{}",
    "call_id": "c-1",
    "executor_id": "agent-1",
    "sent_at_ms": 1_790_000_000_000,
    "deadline_ms": 1_790_000_005_000,
}
FULL_CONTEXT: Fields = CONTEXT | {
    "session_id": "session-1",
    "channel_id": "cli",
    "sender_id": "user-1",
    "correlation_id": "corr-1",
    "arguments_json": '{"path":"../etc/passwd"}',
    "is_streaming": True,
    "agent_id": "agent-1.2",
    "parent_call_id": "c-0",
    "depth": 2,
    "dry_run": True,
    "working_directory": "/srv/agent",
    "home_directory": "/home/agent",
    "path_arguments": ["path", "other"],
    "command_arguments": [],
    "read_only": True,
    "resolved_paths": [
        {"argument": "path", "given": "../etc/passwd", "real": "/srv/etc/passwd"},
        {"argument": "other", "given": "loop", "real": None},
    ],
}
FULL_DECISION: Fields = {
    "v": 1,
    "decision": "deny",
    "reason": "outside the workspace",
    "reason_code": "outside",
    "warning": "",
    "suggested_arguments": {"path": "a.txt", "lines": [1, -1, 2.5, None, True, {}]},
    "labels": {"risk": "high", "": ""},
    "policy_revision": "2026-01",
    "request_digest": DIGEST,
}
RECORDED: Fields = FULL_DECISION | {
    "hook": "no/drops",
    "enforcement": "shadow",
    "failed_open": False,
    "revision": 7,
    "elapsed_ms": 1.5,
}
AFTER: Fields = {
    "v": 1,
    "type": "tool:after",
    "event_id": "e-1",
    "at_ms": 1_790_000_000_123,
    "context": CONTEXT,
    "outcome": "completed",
}
FULL_AFTER: Fields = AFTER | {
    "context": FULL_CONTEXT,
    "duration_ms": 12.25,
    "admission_ms": 0.5,
    "result": "done\n",
    "decisions": [RECORDED, {"hook": "slow", "decision": "timeout", "failed_open": True}],
    "unguarded_by": ["slow"],
    "told": ["no/drops", "watcher"],
    "link": {"chain": "run-1", "sequence": 7, "previous": DIGEST},
}
DENIED: Fields = AFTER | {"type": "tool:denied", "outcome": "denied", "denied_by": "no/drops"}
FULL_DENIED: Fields = DENIED | {
    "context": FULL_CONTEXT,
    "decisions": [RECORDED],
    "reason": "no",
    "reason_code": "outside",
}


def pack(fields: Fields, *without: str, **more: object) -> bytes:
    """Return a msgpack map of the fields, some left out, some added or changed."""
    return msgpack.packb({name: value for name, value in {**fields, **more}.items() if name not in without})


def answer(decision: str, **more: object) -> bytes:
    """Return a hook's answer."""
    return pack({"decision": decision}, **more)


def as_json(**fields: object) -> bytes:
    """Return a JSON object, as the bucket ``HOOKS`` holds it."""
    return json.dumps(fields, ensure_ascii=False).encode()


def nested(depth: int, field: bytes) -> bytes:
    """Return a deny with a field that holds so many arrays, each in the one before."""
    return b"\x82\xa8decision\xa4deny" + field + b"\x91" * depth + b"\xc0"


def two_keys(first: bytes, second: bytes) -> bytes:
    """Return a map of ``decision`` under both values, packed by hand since no dict has a key twice."""
    return b"\x82\xa8decision" + first + b"\xa8decision" + second


ALLOW = b"\x81\xa8decision\xa5allow"
SUGGESTED = b"\xb3suggested_arguments\x81\xa1a"
UNKNOWN = b"\xa4more"
