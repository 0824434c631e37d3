"""One message of a stream, read from its leader: another replica may lag. Above it are buckets, counts and texts."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nats.aio.msg import Msg

from hookbus_broker.ask import ask
from hookbus_broker.connection import Connection
from hookbus_schemas.errors import BusUnavailable

NO_MESSAGE = 10037


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a stream keeps it.

    Attributes:
        subject: on which it was published.
        sequence: its place in the stream.
        data: its body.
        headers: as text, each on a line of its own.
        written_at: seconds since 1970 by the server's clock.
    """

    subject: str
    sequence: int
    data: bytes
    headers: str
    written_at: float


async def read_last(connection: Connection, stream: str, subject: str, timeout: float) -> Stored | None:
    """Return the last message on a subject, None if there is none.

    Raises:
        BusUnavailable: there is no such stream, the bus was lost, or no answer came within `timeout` seconds.
        PermissionRefused: this identity may not read it.
    """
    return await _read(connection, stream, {"last_by_subj": subject}, timeout)


async def read_first(connection: Connection, stream: str, subject: str, timeout: float) -> Stored | None:
    """Return the first message on a subject, None if there is none; raises what `read_last` raises."""
    return await _read(connection, stream, {"seq": 1, "next_by_subj": subject}, timeout)


async def read_at(connection: Connection, stream: str, sequence: int, timeout: float) -> Stored | None:
    """Return the message at a place, None if it is not kept any more; raises what `read_last` raises."""
    return await _read(connection, stream, {"seq": sequence}, timeout)


async def read_next(connection: Connection, stream: str, subject: str, sequence: int, timeout: float) -> Stored | None:
    """Return the first message on a subject at a place or after it, None if there is none; raises as `read_last`."""
    return await _read(connection, stream, {"seq": sequence, "next_by_subj": subject}, timeout)


async def _read(connection: Connection, stream: str, what: dict[str, object], timeout: float) -> Stored | None:
    subject = f"$JS.API.STREAM.MSG.GET.{stream}"

    def take(msg: Msg) -> tuple[Stored | None]:
        answer = json.loads(msg.data)
        error = answer.get("error")
        if error is None:
            return (_stored(answer["message"]),)
        if error.get("err_code") == NO_MESSAGE:
            return (None,)
        raise BusUnavailable(f"{subject}: {error.get('description')} (JetStream error {error.get('err_code')})")

    (found,) = await ask(connection, subject, json.dumps(what).encode(), take, timeout=timeout)
    return found


def _stored(message: dict[str, Any]) -> Stored:
    data, headers = (base64.b64decode(message.get(part, "")) for part in ("data", "hdrs"))
    written_at = datetime.fromisoformat(message["time"]).timestamp()
    return Stored(message["subject"], int(message["seq"]), data, headers.decode(), written_at)
