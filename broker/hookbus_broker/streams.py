"""The streams and the buckets that hookbus needs: made if missing, their limits raised if too low, never cut back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from nats.aio.msg import Msg

from hookbus_broker.ask import ask
from hookbus_broker.bucket import CONTRACTS, CONTRACTS_CHANGED, HOOKS, SET_ASIDE
from hookbus_broker.connection import Connection
from hookbus_broker.counts import TOOL_COUNTS, TOOL_COUNTS_MINUTE
from hookbus_broker.log import say
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable, ConfigError, HookbusError
from hookbus_schemas.subjects import EVENT_SUBJECTS, HOOKS_CHANGED, OBJECT_SUBJECTS

TOOL_EVENTS = "TOOL_EVENTS"
"""The stream of events."""

TOOL_OBJECTS = "TOOL_OBJECTS"
"""The stream of texts that are too large for an event."""

API_TIMEOUT = 5.0
"""Seconds for one request to JetStream."""

HISTORY = 10
"""Revisions kept of each registration and contract: enough to see what changed."""

TOTALS = 10_000
"""Totals kept of each count: an addition that comes twice is answered with the total it had the first time."""

MOST_SET_ASIDE = 100_000
"""Events that are set aside at once; beyond it none is, so they come again to their consumers instead."""

MINUTE_KEPT = 180.0
"""Seconds a count of one minute is kept after its last addition: clocks may differ by more than a minute."""

TRIES = 3
"""Readings of a stream that others change at the same time."""

NOT_FOUND = 10059
NAME_IN_USE = 10058
NO_ROOM = 10047
# Refusals of the server that are a setting's fault.
FAULTS = {
    10065: "another stream has subjects that only this one may have: remove that stream",
    10074: "bus.replicas is more than this server has: give a single server 1",
}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit in the server's unit, the value that means no limit, and the setting it comes from."""

    value: int
    none: int | None
    setting: str

    def exceeds(self, other: int) -> bool:
        """Tell whether this keeps more than the other."""
        return other != self.none and (self.value == self.none or self.value > other)


@dataclass(frozen=True, slots=True)
class _Spec:
    """A stream: what must hold of it, and its limits, which may be raised."""

    name: str
    fixed: Mapping[str, object]
    limits: Mapping[str, _Limit]

    @property
    def config(self) -> dict[str, object]:
        """The configuration of a new one, leaving out what is the server's own default."""
        fixed = {key: value for key, value in self.fixed.items() if value is not None}
        return {"name": self.name} | fixed | {key: limit.value for key, limit in self.limits.items()}


class _ApiError(HookbusError):
    """JetStream refused a request."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.number = int(error.get("err_code", 0))
        self.status = int(error.get("code", 0))
        super().__init__(f"{error.get('description', 'no reason')} (JetStream error {self.number})")


async def ensure_streams(connection: Connection, settings: BusSettings) -> None:
    """Make sure of the streams and the buckets that hookbus needs. May be called at any time, by many at once.

    Limits are raised to those of the settings, never lowered, since that would remove what is stored; a lower setting
    is logged as ``stream.limit_kept``.

    Raises:
        ConfigError: one exists that does not hold what hookbus relies on, or a setting is more than the server allows.
        BusUnavailable: JetStream is not there, or did not answer in time.
        PermissionRefused: this identity may not manage streams.
    """
    for make in (_events, _objects, _hooks, _contracts, _set_aside, _counts, _minute_counts):
        await _ensure(connection, make(settings))


def _events(settings: BusSettings) -> _Spec:
    max_bytes = _Limit(settings.events_max_bytes or -1, -1, "bus.events_max_bytes")
    return _recorded(TOOL_EVENTS, EVENT_SUBJECTS, settings, max_bytes)


def _objects(settings: BusSettings) -> _Spec:
    # A text is stored just before its event, so both expire together.
    max_bytes = _Limit(settings.objects_max_bytes or -1, -1, "bus.objects_max_bytes")
    return _recorded(TOOL_OBJECTS, OBJECT_SUBJECTS, settings, max_bytes)


def _recorded(name: str, subjects: Sequence[str], settings: BusSettings, max_bytes: _Limit) -> _Spec:
    limits = {
        "max_age": _Limit(_nanoseconds(settings.events_max_age), 0, "bus.events_max_age"),
        "max_bytes": max_bytes,
        "duplicate_window": _Limit(_nanoseconds(settings.duplicate_window), None, "bus.duplicate_window"),
        "num_replicas": _Limit(settings.replicas, None, "bus.replicas"),
    }
    fixed = _COMMON | {
        "subjects": list(subjects),
        "discard": "old",
        "max_msgs_per_subject": -1,
        "deny_purge": True,
        # With either, one who may publish an event could remove others or make it vanish.
        "allow_rollup_hdrs": False,
        "allow_msg_ttl": False,
        "republish": None,
    }
    return _Spec(name, fixed, limits)


def _hooks(settings: BusSettings) -> _Spec:
    # A registration that expired would be a hook that no longer guards.
    return _bucket(HOOKS, settings, HOOKS_CHANGED)


def _contracts(settings: BusSettings) -> _Spec:
    return _bucket(CONTRACTS, settings, CONTRACTS_CHANGED)


def _bucket(name: str, settings: BusSettings, changed: str) -> _Spec:
    limits = {
        "max_msgs_per_subject": _Limit(HISTORY, -1, "history"),
        "num_replicas": _Limit(settings.replicas, None, "bus.replicas"),
    }
    # As NATS ADR-8 says of a bucket: writes beyond a limit are refused, `purge` rolls a key up.
    fixed = _COMMON | {
        "subjects": [f"$KV.{name}.>"],
        "discard": "new",
        "max_age": 0,
        "deny_purge": False,
        "allow_rollup_hdrs": True,
        "republish": {"src": f"$KV.{name}.>", "dest": f"{changed}.>"},
    }
    return _Spec(f"KV_{name}", fixed, limits)


def _set_aside(settings: BusSettings) -> _Spec:
    limits = {
        "max_age": _Limit(_nanoseconds(settings.events_max_age), 0, "bus.events_max_age"),
        "num_replicas": _Limit(settings.replicas, None, "bus.replicas"),
    }
    fixed = _COMMON | {
        "subjects": [f"$KV.{SET_ASIDE}.>"],
        "discard": "new",
        "max_msgs": MOST_SET_ASIDE,
        "max_msgs_per_subject": 1,
        "deny_purge": False,
        "allow_rollup_hdrs": False,  # with it a consumer could remove what others have set aside
        "republish": None,
    }
    return _Spec(f"KV_{SET_ASIDE}", fixed, limits)


def _counts(settings: BusSettings) -> _Spec:
    limits = {
        "max_msgs_per_subject": _Limit(TOTALS, -1, "totals"),
        "duplicate_window": _Limit(_nanoseconds(settings.duplicate_window), None, "bus.duplicate_window"),
        "num_replicas": _Limit(settings.replicas, None, "bus.replicas"),
    }
    # A count that expired would start again at 0, and allow a call too many.
    fixed = _COUNTING | {"subjects": ["counts.lasting.>"], "max_age": 0, "deny_purge": False}
    return _Spec(TOOL_COUNTS, fixed, limits)


def _minute_counts(settings: BusSettings) -> _Spec:
    limits = {
        "max_age": _Limit(_nanoseconds(MINUTE_KEPT), 0, "minute_kept"),
        "max_msgs_per_subject": _Limit(TOTALS, -1, "totals"),
        "duplicate_window": _Limit(_nanoseconds(MINUTE_KEPT), None, "minute_kept"),
        "num_replicas": _Limit(settings.replicas, None, "bus.replicas"),
    }
    return _Spec(TOOL_COUNTS_MINUTE, _COUNTING | {"subjects": ["counts.minute.>"], "deny_purge": True}, limits)


_COMMON: dict[str, object] = {
    "retention": "limits",
    "storage": "file",
    "max_msgs": -1,
    "deny_delete": True,
    "allow_direct": True,
    "no_ack": False,
    "sealed": False,
    "mirror": None,
    "sources": None,
    "subject_transform": None,
}
_COUNTING: dict[str, object] = _COMMON | {
    "allow_msg_counter": True,
    "discard": "old",
    "max_bytes": -1,  # beyond it the oldest count would start again at 0
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "republish": None,
}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


async def _ensure(connection: Connection, spec: _Spec) -> None:
    try:
        for _ in range(TRIES):
            existing = await _info(connection, spec)
            if existing is None and await _created(connection, spec):
                return
            if existing is not None:
                await _adjust(connection, spec, existing)
                return
    except _ApiError as error:
        raise _explained(spec, error) from error
    raise BusUnavailable(f"stream {spec.name} was made and removed by others {TRIES} times: try again")


async def _info(connection: Connection, spec: _Spec) -> dict[str, Any] | None:
    try:
        answer = await _request(connection, f"STREAM.INFO.{spec.name}", b"")
    except _ApiError as error:
        if error.number == NOT_FOUND:
            return None
        raise
    return dict(answer["config"])


async def _created(connection: Connection, spec: _Spec) -> bool:
    """Create the stream; False when another has just created it in another way."""
    try:
        answer = await _request(connection, f"STREAM.CREATE.{spec.name}", json.dumps(spec.config).encode())
    except _ApiError as error:
        if error.number == NAME_IN_USE:
            return False
        raise
    if answer.get("did_create"):
        say(log.info, "stream.created", stream=spec.name)
    return True


async def _adjust(connection: Connection, spec: _Spec, existing: dict[str, Any]) -> None:
    _check_fixed(spec, existing)
    raised = {key: limit.value for key, limit in spec.limits.items() if limit.exceeds(existing.get(key, 0))}
    for key, limit in spec.limits.items():
        if key not in raised and existing.get(key, 0) != limit.value:
            say(
                log.info,
                "stream.limit_kept",
                stream=spec.name,
                setting=limit.setting,
                kept=existing.get(key),
                set=limit.value,
            )
    if raised:
        await _request(connection, f"STREAM.UPDATE.{spec.name}", json.dumps(existing | raised).encode())
        say(log.info, "stream.limits_raised", stream=spec.name, **raised)


def _check_fixed(spec: _Spec, existing: Mapping[str, Any]) -> None:
    """Refuse a stream without what hookbus relies on; an older server leaves out what is false."""
    for key, needed in spec.fixed.items():
        found = existing.get(key)
        if (found or None) != (needed or None):
            raise ConfigError(
                f"stream {spec.name} exists with {key} {json.dumps(found)}, hookbus needs {json.dumps(needed)}: "
                f"change it with `nats stream edit {spec.name}`, or move its messages to another stream"
            )


async def _request(connection: Connection, action: str, body: bytes) -> dict[str, Any]:
    def take(msg: Msg) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(msg.data)
        if "error" in answer:
            raise _ApiError(answer["error"])
        return answer

    return await ask(connection, f"$JS.API.{action}", body, take, timeout=API_TIMEOUT)


def _explained(spec: _Spec, error: _ApiError) -> HookbusError:
    if error.number == NO_ROOM:
        return ConfigError(
            f"stream {spec.name}: {spec.limits['max_bytes'].setting} is more than the server may store: {error}"
        )
    if error.number in FAULTS:
        return ConfigError(f"stream {spec.name}: {FAULTS[error.number]}: {error}")
    kind = ConfigError if 400 <= error.status < 500 else BusUnavailable
    return kind(f"stream {spec.name}: {error}")
