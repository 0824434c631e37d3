"""Key-value buckets without watches: a whole snapshot by one direct get, changes by republish, optimistic writes.

A watch of nats-py needs a consumer for each reader and is blind for some 15 seconds after a server restart. Here a
reader subscribes to what the server republishes, and reads the whole again on every reconnection. NATS ADR-8, ADR-31.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime

from nats.aio.msg import Msg

from hookbus_broker.ask import ask, status
from hookbus_broker.connection import Connection
from hookbus_broker.latest import read_last
from hookbus_schemas.errors import BusUnavailable, ConfigError, HookbusError, InvalidMessage
from hookbus_schemas.subjects import HOOKS_CHANGED

HOOKS = "HOOKS"
"""The bucket of hook registrations."""

CONTRACTS = "CONTRACTS"
"""The bucket of contracts, one for each session that has one."""

SET_ASIDE = "SET_ASIDE"
"""The bucket of events that a consumer could not handle: key ``<consumer>.<sequence>``, both escaped."""

CONTRACTS_CHANGED = "contracts.changed"
"""Where the server republishes changes of the bucket ``CONTRACTS``, followed by the escaped session."""

TIMEOUT = 5.0
"""Seconds for one read or write, when the caller does not say."""

WRONG_LAST_SEQUENCE = (10071, 10164)
"""The server's error codes for a write that expected another revision."""

_KEY = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")
_DELETED = ("DEL", "PURGE")


class RevisionConflict(HookbusError):
    """Somebody else wrote the key meanwhile: read it again, decide again.

    Attributes:
        key: the key.
        expected_revision: what the writer believed to be the latest.
    """

    def __init__(self, key: str, expected_revision: int) -> None:
        super().__init__(f"key {key} is no longer at revision {expected_revision}: read it again and decide again")
        self.key = key
        self.expected_revision = expected_revision


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value, and the revision that a write may expect.

    Attributes:
        value: what is kept.
        revision: grows with every write to the bucket.
        written_at: seconds since 1970 by the server's clock.
    """

    value: bytes
    revision: int
    written_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class BucketSnapshot:
    """A bucket at one moment: everything up to `revision`, nothing after it; 0 for a bucket that holds nothing."""

    entries: dict[str, Entry]
    revision: int


@dataclass(frozen=True, slots=True)
class Change:
    """A key was written, or deleted where `value` is None."""

    key: str
    value: bytes | None
    revision: int


async def read_bucket(connection: Connection, bucket: str, timeout: float = TIMEOUT) -> BucketSnapshot:
    """Read all of a bucket, or nothing: never a part of it, never an empty one for one that is not there.

    One answer holds at most 1,024 keys and 64 MB. It may come from any replica, which may lag a moment behind a write.

    Raises:
        BusUnavailable: there is no such bucket, the bus was lost, or the answer was not whole within `timeout` seconds.
        PermissionRefused: this identity may not read it.
        ConfigError: the bucket holds more than one answer can.
    """
    reading = _Reading(bucket)
    question = json.dumps({"multi_last": [f"{reading.prefix}>"]}).encode()
    return await ask(connection, f"$JS.API.DIRECT.GET.{_stream(bucket)}", question, reading.take, timeout=timeout)


@dataclass(slots=True)
class _Reading:
    """Collects the answers to one direct get and checks that none is missing."""

    bucket: str
    entries: dict[str, Entry] = field(default_factory=dict)
    pending: int | None = None
    """Answers still to come, as the last one said."""

    @property
    def prefix(self) -> str:
        return f"$KV.{self.bucket}."

    def take(self, msg: Msg) -> BucketSnapshot | None:
        match status(msg):
            case "":
                self._add(msg)
                return None
            case "204":
                return self._whole(msg)
            case "404" if self.pending is None and "No Results" in msg.headers["Description"]:  # type: ignore[index]
                return BucketSnapshot({}, 0)
            case "413":
                raise ConfigError(f"bucket {self.bucket} holds more than 1,024 keys: remove some")
        raise BusUnavailable(f"bucket {self.bucket} was not read: {status(msg)} {msg.headers}")

    def _add(self, msg: Msg) -> None:
        headers = msg.headers or {}
        subject, pending = headers["Nats-Subject"], int(headers["Nats-Num-Pending"])
        if headers["Nats-Stream"] != _stream(self.bucket) or not subject.startswith(self.prefix):
            raise BusUnavailable(f"bucket {self.bucket} was not read: an answer about {subject[:200]!r}")
        if self.pending not in (None, pending + 1):
            raise BusUnavailable(f"bucket {self.bucket} was not read whole: {self.pending} to come, then {pending}")
        self.pending = pending
        if not _is_deletion(headers):
            self.entries[subject.removeprefix(self.prefix)] = _entry(msg)

    def _whole(self, msg: Msg) -> BucketSnapshot:
        headers = msg.headers or {}
        if self.pending != 0 or headers["Nats-Num-Pending"] != "0":
            raise BusUnavailable(f"bucket {self.bucket} was not read whole: {headers['Nats-Num-Pending']} keys to come")
        return BucketSnapshot(self.entries, int(headers["Nats-UpTo-Sequence"]))


async def read_key(connection: Connection, bucket: str, key: str, timeout: float = TIMEOUT) -> Entry | None:
    """Read the latest of one key of a bucket of any size; None if it is not there.

    Raises:
        BusUnavailable: there is no such bucket, the bus was lost, or no answer came within `timeout` seconds.
        PermissionRefused: this identity may not read it.
        ConfigError: the key can be none.
    """
    stored = await read_last(connection, _stream(bucket), _subject(bucket, key), timeout)
    if stored is None or _is_deletion(_named(stored.headers)):
        return None
    return Entry(stored.data, stored.sequence, stored.written_at)


def _named(headers: str) -> dict[str, str]:
    parted = (line.partition(":") for line in headers.splitlines()[1:] if line)
    return {name: value.strip() for name, _, value in parted}


def _entry(msg: Msg) -> Entry:
    headers = msg.headers or {}
    written_at = datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp()
    return Entry(msg.data, int(headers["Nats-Sequence"]), written_at)


def parse_change(msg: Msg) -> Change:
    """Return the change that the server republished on ``hooks.changed.<key>``.

    The headers are checked, which a mistake would not pass; they are no proof. Only permissions keep others from
    publishing on ``hooks.changed.>``: no role of hookbus may.

    Raises:
        InvalidMessage: it is not what the server republishes for the bucket ``HOOKS``.
    """
    headers = msg.headers or {}
    key = msg.subject.removeprefix(f"{HOOKS_CHANGED}.")
    revision = headers.get("Nats-Sequence", "")
    expected = (_stream(HOOKS), f"$KV.{HOOKS}.{key}")
    if (headers.get("Nats-Stream"), headers.get("Nats-Subject")) != expected or not revision.isdecimal():
        raise InvalidMessage(f"message on {msg.subject[:200]} is not a change of bucket {HOOKS}")
    return Change(key, None if _is_deletion(headers) else msg.data, int(revision))


async def put(
    connection: Connection,
    bucket: str,
    key: str,
    value: bytes,
    expected_revision: int | None = None,
    *,
    timeout: float = TIMEOUT,
) -> int:
    """Write a key and return its new revision.

    Args:
        connection: the bus.
        bucket: its name.
        key: tokens of letters, digits and ``-/_=``; see `hookbus_schemas.subjects.token`.
        value: what to keep.
        expected_revision: write only if this is the key's latest revision, 0 for a key that must not exist; None
            writes whatever it holds.
        timeout: seconds for each of the two exchanges that it may take.

    Raises:
        RevisionConflict: the key is at another revision.
        BusUnavailable: no such bucket, or the bus was lost; without an answer the write may have happened or not.
        PermissionRefused: this identity may not write it.
        PayloadTooLarge: the value is over the server's limit.
    """
    subject = _subject(bucket, key)
    try:
        return await _write(connection, subject, key, value, _expecting(expected_revision), timeout)
    except RevisionConflict:
        deleted = await _deletion(connection, bucket, subject, timeout) if expected_revision == 0 else None
        if deleted is None:
            raise
        return await _write(connection, subject, key, value, _expecting(deleted), timeout)


async def delete(
    connection: Connection, bucket: str, key: str, expected_revision: int | None = None, *, timeout: float = TIMEOUT
) -> int:
    """Delete any key that there is, its history kept, and return the revision of that; raises what `put` raises."""
    headers = {"KV-Operation": "DEL"} | _expecting(expected_revision)
    return await _write(connection, f"$KV.{bucket}.{key}", key, b"", headers, timeout)


async def _write(
    connection: Connection, subject: str, key: str, value: bytes, headers: dict[str, str], timeout: float
) -> int:
    def take(msg: Msg) -> int:
        answer = json.loads(msg.data)
        error = answer.get("error")
        if error is None:
            return int(answer["seq"])
        if error.get("err_code") in WRONG_LAST_SEQUENCE:
            raise RevisionConflict(key, int(headers[_EXPECTED]))
        raise BusUnavailable(f"{subject} was not written: {error.get('description')} ({error.get('err_code')})")

    return await ask(connection, subject, value, take, timeout=timeout, headers=headers)


_EXPECTED = "Nats-Expected-Last-Subject-Sequence"


def _expecting(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {_EXPECTED: str(revision)}


async def _deletion(connection: Connection, bucket: str, subject: str, timeout: float) -> int | None:
    """Return the revision at which the key was deleted, None if it was not."""

    def take(msg: Msg) -> tuple[int, bool]:
        headers = msg.headers or {}
        return (0, False) if status(msg) else (int(headers["Nats-Sequence"]), _is_deletion(headers))

    question = json.dumps({"last_by_subj": subject}).encode()
    stream = f"$JS.API.DIRECT.GET.{_stream(bucket)}"
    revision, deleted = await ask(connection, stream, question, take, timeout=timeout)
    return revision if deleted else None


def _is_deletion(headers: dict[str, str]) -> bool:
    """Tell a delete marker; the server writes ones of its own when a key's time is up (NATS ADR-43)."""
    return headers.get("KV-Operation") in _DELETED or "Nats-Marker-Reason" in headers


def _stream(bucket: str) -> str:
    return f"KV_{bucket}"


def _subject(bucket: str, key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ConfigError(f"bucket key {key[:80]!r} should be letters, digits, dots and -/_=")
    return f"$KV.{bucket}.{key}"
