"""Events that a consumer could not handle, kept for an operator. Above it: `consumer`, `retrying`."""

import traceback
from collections.abc import AsyncIterator

from pydantic import ValidationError

from hookbus_broker import SET_ASIDE, Connection, put, read_key
from hookbus_broker.keys import each_key, remove_key
from hookbus_schemas import InvalidMessage, subjects
from hookbus_schemas.message import MAX_WORDS, Int64, Message, Words
from hookbus_schemas.times import now_ms


class SetAside(Message):
    """Why an event was set aside; the event itself stays where it is, in ``TOOL_EVENTS``.

    Attributes:
        durable: the consumer.
        sequence: the event's place in the stream.
        event_id: the event; empty for a body that is none.
        attempts: how often it has been delivered.
        error: what the handler raised last, or what is wrong with the body.
        at_ms: when, in milliseconds since 1970 by the consumer's clock.
    """

    durable: str
    sequence: Int64
    event_id: str = ""
    attempts: Int64 = 0
    error: Words = ""
    at_ms: Int64 = 0


def described(error: BaseException) -> str:
    """Return an error in one line, whatever it does when it is asked for its text."""
    text = str(error) if isinstance(error, InvalidMessage) else traceback.format_exception_only(error)[-1]
    line = " ".join(text.split()) or type(error).__name__
    return line[:MAX_WORDS].encode("utf-8", "backslashreplace").decode()


async def set_aside(connection: Connection, durable: str, sequence: int, **about: object) -> None:
    """Keep it; an event that is set aside again replaces what was kept of it.

    Raises:
        BusUnavailable, PermissionRefused: it is not kept, so the event must not be given up.
    """
    entry = SetAside.model_validate({"durable": durable, "sequence": sequence, "at_ms": now_ms()} | about)
    await put(connection, SET_ASIDE, _key(durable, sequence), entry.model_dump_json().encode())


async def is_set_aside(connection: Connection, durable: str, sequence: int) -> bool:
    """Tell whether it is kept; raises as `set_aside` does."""
    return await read_key(connection, SET_ASIDE, _key(durable, sequence)) is not None


async def all_set_aside(connection: Connection, durable: str | None = None) -> AsyncIterator[SetAside]:
    """Yield what is kept, of one consumer or of all, the oldest first; raises as `set_aside` does."""
    keys = ">" if durable is None else f"{subjects.token(durable)}.*"
    async for key, stored in each_key(connection, SET_ASIDE, keys):
        yield _entry(key, stored.data)


async def forget(connection: Connection, entry: SetAside) -> None:
    """Keep it no longer; raises as `set_aside` does."""
    await remove_key(connection, SET_ASIDE, _key(entry.durable, entry.sequence))


def _key(durable: str, sequence: int) -> str:
    return f"{subjects.token(durable)}.{sequence}"


def _entry(key: str, body: bytes) -> SetAside:
    """Return what is kept under a key; which event it is the key says, also where somebody else wrote the rest."""
    escaped, _, place = key.rpartition(".")
    try:
        named = {"durable": subjects.name(escaped), "sequence": int(place)}
    except ValueError:
        return SetAside(durable=key, sequence=0, error="not a key that a consumer writes")
    try:
        return SetAside.model_validate_json(body).model_copy(update=named)
    except ValidationError:
        return SetAside.model_validate(named | {"error": "why it was set aside cannot be read"})
