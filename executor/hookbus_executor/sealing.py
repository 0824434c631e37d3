"""From an event to what is published of it: without secrets, in its place in the chain, its large texts apart.

Above it is `outbox`, which keeps and sends what is made here.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import structlog

from hookbus_broker.log import say
from hookbus_executor.chain import Chain
from hookbus_executor.journal import Kind
from hookbus_executor.redaction import Redactor
from hookbus_schemas import ToolAfterEvent, ToolDeniedEvent, decode_event, encode, subjects
from hookbus_schemas.stored_text import MAX_TEXT_BYTES, PART_BYTES, StoredText, divide

HEADROOM = 2048
"""Bytes that the headers take of what the bus takes at most."""

MAX_TEXT = 16_384
"""Characters that are kept of each text where the whole event is larger than the bus takes all the same."""

_log = structlog.get_logger()
Event: TypeAlias = ToolAfterEvent | ToolDeniedEvent


@dataclass(slots=True)
class Sealed:
    """One message on its way to a stream: an event, or a part of a text that was too large for it.

    Attributes:
        entry_id: names it in the outbox's file; of an event its ``event_id``.
        subject, headers, body: as they are published.
        kind: whether it is an event or a part.
        refers: it is an event with parts, which are to be there before it.
    """

    entry_id: str
    subject: str
    headers: dict[str, str]
    body: bytes
    kind: Kind = Kind.ENDED
    refers: bool = False


class Sealer:
    """Seals the events of one run of an executor."""

    def __init__(self, redactor: Redactor, *, inline_limit: int) -> None:
        """Begin a chain.

        Args:
            redactor: takes out what is not to be recorded.
            inline_limit: bytes of arguments, or of a result, above which they are kept apart.
        """
        self._redactor = redactor
        self._inline_limit = inline_limit
        self._chain = Chain()

    def draft(self, event: Event) -> Event:
        """Return an event without secrets, still to be sealed: to be kept should the process die."""
        return self._redactor.event(event)

    def sealed(self, event: Event, max_payload: int) -> list[Sealed]:
        """Return the messages of an event, sent in this order: its parts, then itself, in the chain's next place.

        Args:
            event: as it came about.
            max_payload: bytes that the bus takes, headers included.
        """
        event = self._redactor.event(event)
        event, parts = self._divided(event, max_payload)
        event = event.model_copy(update={"link": self._chain.next_link()})
        body = encode(event)
        for shorten in (_without_long_texts, _without_decisions):
            if len(body) + HEADROOM <= max_payload:
                break
            say(_log.warning, "event.shortened", event_id=event.event_id, size_bytes=len(body))
            event = shorten(event)
            body = encode(event)
        return [*parts, of_event(event, body)]

    def extend(self, messages: Sequence[Sealed]) -> None:
        """Extend the chain by an event that was sealed last: it is kept, so its place is taken."""
        self._chain.extend(messages[-1].body)

    def _divided(self, event: Event, max_payload: int) -> tuple[Event, list[Sealed]]:
        """Return the event without its large texts, and the parts of those."""
        limit = min(self._inline_limit, max_payload // 4)
        context = event.context
        parts: list[Sealed] = []
        update: dict[str, object] = {}
        if _is_longer(context.arguments_json, limit):
            stored, parts = _apart(event, context.arguments_json, max_payload)
            update["context"] = context.model_copy(update={"arguments_json": "", "arguments_stored": stored})
        if isinstance(event, ToolAfterEvent) and _is_longer(event.result, limit):
            stored, more = _apart(event, event.result, max_payload)
            update |= {"result": "", "result_stored": stored}
            parts += more
        return (event.model_copy(update=update), parts) if update else (event, parts)


def of_event(event: Event, body: bytes) -> Sealed:
    """Return the message of an event whose body is made."""
    context = event.context
    subject = subjects.after if isinstance(event, ToolAfterEvent) else subjects.denied
    refers = bool(context.arguments_stored or (isinstance(event, ToolAfterEvent) and event.result_stored))
    where = subject(context.executor_id, context.tool_name)
    return Sealed(event.event_id, where, _headers(event), body, refers=refers)


def of_part(entry_id: str, body: bytes) -> Sealed:
    """Return the message of a part that the outbox's file holds."""
    subject, _, message_id = entry_id.partition("#")
    return Sealed(entry_id, subject, {"Nats-Msg-Id": message_id}, body, Kind.PART)


def shortened(sealed: Sealed) -> bytes:
    """Return the body of an event as short as it can be: the bus takes less than when it was sealed.

    Raises:
        InvalidMessage: it is no event, but a part.
    """
    return encode(_without_decisions(_without_long_texts(decode_event(sealed.body))))


def _apart(event: Event, text: str, max_payload: int) -> tuple[StoredText, list[Sealed]]:
    cut = text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")
    if len(cut) < len(text):
        say(_log.warning, "event.shortened", event_id=event.event_id, size_bytes=len(text))
    stored, parts = divide(cut, max(1, min(PART_BYTES, max_payload - HEADROOM)))
    executor, run = event.context.executor_id, secrets.token_hex(16)
    subject = [subjects.object_part(executor, stored.digest, number) for number in range(len(parts))]
    return stored, [of_part(f"{subject[number]}#{run}.{number}", part) for number, part in enumerate(parts)]


def _is_longer(text: str, limit: int) -> bool:
    """Tell whether a text takes more bytes than that; a character takes at most four."""
    return len(text) * 4 > limit and len(text.encode()) > limit


def _headers(event: Event) -> dict[str, str]:
    """Return the headers of CloudEvents 1.0 in the binary mode of its NATS binding, and the id that makes it exact."""
    return {
        "Nats-Msg-Id": event.event_id,
        "ce-specversion": "1.0",
        "ce-id": event.event_id,
        "ce-type": f"hookbus.{event.type}",
        "ce-source": f"/executors/{subjects.token(event.context.executor_id)}",
        "ce-time": datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "content-type": "application/msgpack",
    }


def _without_long_texts(event: Event) -> Event:
    """Return the event with its long texts cut, since a record that says less beats none."""
    texts = {name: _cut(text) for name, text in event.context if isinstance(text, str)}
    context = event.context.model_copy(update=texts)
    update: dict[str, object] = {"context": context}
    if isinstance(event, ToolAfterEvent):
        update["result"] = _cut(event.result)
    return event.model_copy(update=update)


def _without_decisions(event: Event) -> Event:
    """Return the event with nothing left that hooks or paths can make large; the outcome and who denied stay."""
    context = event.context.model_copy(update={"resolved_paths": ()})
    return event.model_copy(update={"context": context, "decisions": ()})


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… [{len(text)} characters in all]"
