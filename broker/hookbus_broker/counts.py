"""Counts that all replicas share: each addition is one message to a counter stream, and its answer the new total.

The server adds, so no two additions see the same total. NATS ADR-49.
"""

import json
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from hookbus_broker.ask import ask
from hookbus_broker.connection import Connection
from hookbus_broker.latest import Stored, read_at, read_last
from hookbus_schemas.errors import BusUnavailable
from hookbus_schemas.subjects import token

TOOL_COUNTS = "TOOL_COUNTS"
"""The counter stream of counts that last until they are forgotten."""

TOOL_COUNTS_MINUTE = "TOOL_COUNTS_MINUTE"
"""The counter stream of one minute's counts: they expire by its age, since a counter takes no TTL of its own."""

TIMEOUT = 5.0
"""Seconds for one exchange with the server, when the caller does not say."""

MINUTE = 60
"""Seconds of a fixed minute."""


@dataclass(frozen=True, slots=True)
class Count:
    """Where one count is kept; made by `lasting` or `in_minute`."""

    stream: str
    subject: str


def lasting(*names: str) -> Count:
    """Return the count of these names, which lasts until `forget`.

    Raises:
        ConfigError: a name cannot be a subject token.
    """
    return Count(TOOL_COUNTS, _subject("lasting", *names))


def in_minute(*names: str, now: float) -> Count:
    """Return the count of these names in the fixed minute of `now`, seconds since the epoch; it expires by itself.

    Raises:
        ConfigError: a name cannot be a subject token.
    """
    return Count(TOOL_COUNTS_MINUTE, _subject("minute", *names, str(int(now // MINUTE))))


def _subject(*names: str) -> str:
    return ".".join(("counts", *map(token, names)))


async def add(connection: Connection, count: Count, by: int, *, message_id: str, timeout: float = TIMEOUT) -> int:
    """Add to a count and return its total after that, once for each message id: again gives the same answer.

    Args:
        connection: the bus.
        count: what to add to.
        by: how much, negative to give back.
        message_id: names this addition to this count, such as a call id; it is known for the stream's duplicate window.
        timeout: seconds for each of the two exchanges that it may take.

    Raises:
        BusUnavailable: the total is not certain; the addition may have happened or not, the same message id tells.
        PermissionRefused: this identity may not count.
        ConfigError: the message id is longer than a name may be.
    """
    # With the subject in it, an id that was used for another count does not silence this addition.
    headers = {"Nats-Incr": f"{by:+d}", "Nats-Msg-Id": f"{token(message_id)}:{count.subject}"}
    answer = await _ask(connection, count.subject, b"", timeout, headers)
    if answer["stream"] != count.stream:
        raise BusUnavailable(f"{count.subject} was counted by stream {answer['stream']!r:.80}, not {count.stream}")
    if answer.get("duplicate"):
        return await _total_at(connection, count, int(answer["seq"]), timeout)
    return int(answer["val"])


async def read(connection: Connection, count: Count, *, timeout: float = TIMEOUT) -> int:
    """Return a count's total, 0 if nothing was ever added.

    Raises:
        BusUnavailable: no such stream, the bus was lost, or no answer within `timeout` seconds.
        PermissionRefused: this identity may not read it.
    """
    stored = await read_last(connection, count.stream, count.subject, timeout)
    return 0 if stored is None else _total(count, stored)


async def forget(connection: Connection, count: Count, *, timeout: float = TIMEOUT) -> None:
    """Remove a lasting count that nobody will ask for again.

    Raises:
        BusUnavailable: it was not removed: no such stream, one that expires by itself, or no answer in time.
        PermissionRefused: this identity may not remove it.
    """
    question = json.dumps({"filter": count.subject}).encode()
    await _ask(connection, f"$JS.API.STREAM.PURGE.{count.stream}", question, timeout)


async def _total_at(connection: Connection, count: Count, sequence: int, timeout: float) -> int:
    stored = await read_at(connection, count.stream, sequence, timeout)
    if stored is None:
        raise BusUnavailable(f"{count.subject} was added to before, at {sequence}, and that is no longer kept")
    return _total(count, stored)


def _total(count: Count, stored: Stored) -> int:
    try:
        if stored.subject == count.subject:
            return int(json.loads(stored.data)["val"])
    except (ValueError, LookupError, TypeError):
        pass
    raise BusUnavailable(f"{count.subject} holds what is no total: {str(stored)[:200]}")


async def _ask(
    connection: Connection, subject: str, body: bytes, timeout: float, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    def take(msg: Msg) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(msg.data)
        error = answer.get("error")
        if error is not None:
            raise BusUnavailable(f"{subject}: {error.get('description')} (JetStream error {error.get('err_code')})")
        return answer

    return await ask(connection, subject, body, take, timeout=timeout, headers=headers)
