"""Putting the large texts back into an event that were kept beside it."""

import asyncio
from typing import TypeAlias

import structlog

from hookbus_broker import TOOL_OBJECTS, Connection
from hookbus_broker.latest import Stored, read_first
from hookbus_broker.log import say
from hookbus_schemas import HookbusError, InvalidMessage, ToolAfterEvent, ToolDeniedEvent, subjects
from hookbus_schemas.stored_text import StoredText, join

TIMEOUT = 5.0
"""Seconds that reading one part may take."""

AT_ONCE = 8
"""Parts that are asked for at once: a megabyte, so that one reader does not fill the bus."""

_log = structlog.get_logger()
Event: TypeAlias = ToolAfterEvent | ToolDeniedEvent


class TextGone(HookbusError):
    """A text that an event refers to is not in the stream any more, or is not what was recorded."""


async def whole(connection: Connection, event: Event) -> Event:
    """Return the event with the texts in their places that were too large for it; most events need nothing.

    Raises:
        TextGone: a text has expired, or was altered.
        BusUnavailable, PermissionRefused: the texts cannot be read.
    """
    context = event.context
    if context.arguments_stored is not None:
        text = await _read(connection, context.executor_id, context.arguments_stored)
        context = context.model_copy(update={"arguments_json": text, "arguments_stored": None})
        event = event.model_copy(update={"context": context})
    if isinstance(event, ToolAfterEvent) and event.result_stored is not None:
        text = await _read(connection, context.executor_id, event.result_stored)
        event = event.model_copy(update={"result": text, "result_stored": None})
    return event


async def whole_if_stored(connection: Connection, event: Event) -> Event:
    """Return the event whole, or as it is where a text is gone, which is logged: a record that says less beats none.

    Raises:
        BusUnavailable, PermissionRefused: the texts cannot be read.
    """
    try:
        return await whole(connection, event)
    except TextGone as error:
        say(_log.error, "event.text_gone", event_id=event.event_id, problem=str(error))
        return event


async def _read(connection: Connection, executor: str, stored: StoredText) -> str:
    parts: list[bytes] = []
    for begin in range(0, stored.parts, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, stored.parts))
        wanted = [subjects.object_part(executor, stored.digest, number) for number in numbers]
        found = await asyncio.gather(*(read_first(connection, TOOL_OBJECTS, subject, TIMEOUT) for subject in wanted))
        parts += [_data(stored, part) for part in found]
        if sum(map(len, parts)) > stored.size_bytes:
            break
    try:
        return join(stored, parts)
    except InvalidMessage as error:
        raise TextGone(f"the text {stored.digest} of executor {executor} is not what was recorded: {error}") from error


def _data(stored: StoredText, part: Stored | None) -> bytes:
    if part is None:
        raise TextGone(f"the text {stored.digest} of {stored.size_bytes} bytes is not stored any more")
    return part.data
