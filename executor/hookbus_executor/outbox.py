"""Events on their way to the stream. The caller appends and goes on; a background sender publishes until acknowledged.

Above it is `record`, which makes the events; below it the connection, and `journal`, which keeps them on disk.
"""

import asyncio
import contextlib
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_broker.log import say
from hookbus_executor.chain import Chain
from hookbus_executor.journal import Journal, JournalUnwritable, Kind, left_behind
from hookbus_executor.redaction import Redactor
from hookbus_schemas import (
    BusUnavailable,
    InvalidMessage,
    PayloadTooLarge,
    ToolAfterEvent,
    ToolDeniedEvent,
    decode_event,
    encode,
    subjects,
)

WINDOW = 1000
"""Events published and not yet acknowledged; more only fills the server's queue."""

ACK_TIMEOUT = 5.0
"""Seconds after which an event that was not acknowledged is sent again, under the same ``Nats-Msg-Id``."""

RETRY_AFTER = 0.5
"""Seconds after which an event is sent again that the stream would not take."""

HEADROOM = 2048
"""Bytes that the headers take of what the bus takes at most."""

MAX_TEXT = 16_384
"""Characters that are kept of a result and of arguments where the whole event is larger than the bus takes."""

_log = structlog.get_logger()
Event = ToolAfterEvent | ToolDeniedEvent


@dataclass(slots=True)
class _Entry:
    event: Event
    subject: str
    headers: dict[str, str]
    body: bytes
    due: float = 0.0


class Outbox:
    """Publishes events to the stream ``TOOL_EVENTS``, each until it is acknowledged.

    Attributes:
        dropped: events of stopped calls that found no room, and events that cannot be sent; each has a line in the log.
    """

    def __init__(self, connection: Connection, folder: Path, redactor: Redactor, *, limit: int) -> None:
        """Prepare to send.

        Args:
            connection: the bus.
            folder: where this executor, and others that may be left behind, keep their events.
            redactor: takes out of an event what is not to be recorded.
            limit: events that may wait.
        """
        self.dropped = 0
        self._folder = folder
        self._journal: Journal | None = None
        self._chain = Chain()
        self._redactor = redactor
        self._promised = 0
        self._connection = connection
        self._limit = limit
        self._unkept: deque[Event] = deque()
        self._waiting: deque[_Entry] = deque()
        self._unacknowledged: dict[str, _Entry] = {}
        self._tokens = itertools.count()
        self._inbox = connection.new_inbox()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._undo: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._unkept) + len(self._waiting) + len(self._unacknowledged)

    @property
    def is_overbooked(self) -> bool:
        """Whether more is promised than there is room for: a call would leave no trace, and must not run."""
        return len(self) + self._promised > self._limit

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Keep room for the event of one call, from its beginning to its end."""
        self.promise()
        try:
            yield
        finally:
            self.release()

    def promise(self) -> None:
        """Keep room for one more event, until `release`: what is admitted now is recorded later."""
        self._promised += 1

    def release(self) -> None:
        """End a promise: its event was appended, or will not come."""
        self._promised -= 1

    async def start(self) -> None:
        """Begin to send.

        Raises:
            BusUnavailable, PermissionRefused: acknowledgements cannot be received.
            JournalUnwritable: events cannot be kept.
        """
        self._journal = Journal.open(self._folder)
        self._take_over(self._journal)
        await self._connection.subscribe_direct(f"{self._inbox}.*", self._on_ack)
        await self._connection.barrier()
        self._undo = self._connection.on_reconnect(self._send_again)
        self._task = asyncio.get_running_loop().create_task(self._send())

    def admit(self, event: ToolAfterEvent) -> None:
        """Keep the event of a call that is about to run, should this process die before `append` has its end.

        Raises:
            JournalUnwritable: it cannot be kept, so the call must not run.
        """
        if self._journal is not None:
            self._journal.append(Kind.ADMITTED, event.event_id, encode(self._redactor.event(event)))

    def append(self, event: Event) -> None:
        """Take an event that room was promised for; it is sent in the background, in order of arrival.

        Where there is no room, an event of a stopped call is dropped: a flood of them must not fill the memory.
        """
        if isinstance(event, ToolDeniedEvent) and self.is_overbooked:
            self.dropped += 1
            return
        self._unkept.append(event)
        self._idle.clear()
        self._keep_all()
        self._wake.set()

    async def flush(self, timeout: float) -> None:
        """Wait until the stream has acknowledged all.

        Raises:
            TimeoutError: it has not, within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._idle.wait()

    async def close(self, timeout: float = 5.0) -> None:
        """Send what is left, for at most `timeout` seconds, and end."""
        with contextlib.suppress(TimeoutError):
            await self.flush(timeout)
        self._undo()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._unkept:
            self.dropped += len(self._unkept)
            why = "they could not be written: the next executor here records those of calls that ran as interrupted"
            say(_log.error, "events.dropped", count=len(self._unkept), folder=str(self._folder), why=why)
            self._unkept.clear()
        if len(self):
            why = "the stream did not acknowledge them; the next executor here sends them"
            say(_log.error, "events.left", count=len(self), folder=str(self._folder), why=why)
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _take_over(self, journal: Journal) -> None:
        """Send what executors that died have left, as their own: a call without an end was interrupted."""
        for entries in left_behind(self._folder):
            for kind, event_id, body in entries:
                try:
                    event = decode_event(body)
                except InvalidMessage:
                    self.dropped += 1
                    say(_log.error, "event.dropped", event_id=event_id, exc_info=True)
                    continue
                # One that ended has its place in the chain of the executor that died, and stays as it is.
                entry = _entry(event, body) if kind is Kind.ENDED else self._sealed(event)
                journal.append(Kind.ENDED, event_id, entry.body)
                if kind is Kind.ADMITTED:
                    self._chain.extend(entry.body)
                self._waiting.append(entry)
                self._idle.clear()
            say(_log.warning, "events.taken_over", count=len(entries))

    def _sealed(self, event: Event) -> _Entry:
        """Give an event the next place in the chain; it is shortened before that if the bus would not take it."""
        event = self._redactor.event(event).model_copy(update={"link": self._chain.next_link()})
        body = encode(event)
        for shorten in (_without_long_texts, _without_decisions):
            if len(body) + HEADROOM <= self._connection.max_payload:
                break
            say(_log.warning, "event.shortened", event_id=event.event_id, size_bytes=len(body))
            event = shorten(event)
            body = encode(event)
        return _entry(event, body)

    def _keep_all(self) -> None:
        """Write events to the file, and only then give them to the sender, in their order.

        One that cannot be written waits: sent, it would be there twice should this process die, as itself and as
        `interrupted`; and with it would die its place in the chain, a gap.
        """
        while self._unkept:
            event = self._unkept[0]
            entry = self._sealed(event)
            try:
                if self._journal is not None:
                    self._journal.append(Kind.ENDED, event.event_id, entry.body)
            except JournalUnwritable:
                if len(self._unkept) == 1:  # the others wait for the same reason
                    say(_log.error, "event.not_kept", event_id=event.event_id, exc_info=True)
                return
            self._unkept.popleft()
            self._chain.extend(entry.body)
            self._waiting.append(entry)

    def _done(self, event_id: str) -> None:
        """Forget an event; where that cannot be written the next executor sends it once more, which harms nobody."""
        try:
            if self._journal is not None:
                self._journal.append(Kind.DONE, event_id)
        except JournalUnwritable as error:
            say(_log.warning, "event.not_forgotten", event_id=event_id, problem=str(error))

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._keep_all()
            try:
                self._resend(loop.time())
                self._send_waiting(loop.time())
                due = min((entry.due for entry in self._unacknowledged.values()), default=None)
            except BusUnavailable:
                due = loop.time() + RETRY_AFTER
            if self._unkept:
                due = min(due or math.inf, loop.time() + RETRY_AFTER)
            self._tell_if_idle()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()

    def _send_again(self) -> None:
        """Send all again that was not acknowledged before the bus was lost: what was lost with it nobody says."""
        for entry in self._unacknowledged.values():
            entry.due = 0.0
        self._wake.set()

    def _resend(self, now: float) -> None:
        overdue = [token for token, entry in self._unacknowledged.items() if entry.due <= now]
        for token in overdue:
            entry = self._unacknowledged[token]
            if self._publish(token, entry):
                entry.due = now + ACK_TIMEOUT
            else:
                del self._unacknowledged[token]

    def _send_waiting(self, now: float) -> None:
        while self._waiting and len(self._unacknowledged) < WINDOW:
            entry, token = self._waiting[0], str(next(self._tokens))
            entry.due = now + ACK_TIMEOUT
            sent = self._publish(token, entry)
            self._waiting.popleft()
            if sent:
                self._unacknowledged[token] = entry

    def _publish(self, token: str, entry: _Entry) -> bool:
        """Publish an event; one that cannot be sent is dropped, so that it does not hold up those behind it.

        Raises:
            BusUnavailable: it has to wait.
        """
        try:
            self._publish_shortened(entry, f"{self._inbox}.{token}")
        except BusUnavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever it was, the events behind it are to be sent
            self.dropped += 1
            self._done(entry.event.event_id)
            say(_log.error, "event.dropped", event_id=entry.event.event_id, exc_info=True)
            return False
        return True

    def _publish_shortened(self, entry: _Entry, reply: str) -> None:
        """Publish an event, shortened where the bus takes none so large."""
        for shorten in (_without_long_texts, _without_decisions):
            try:
                self._connection.publish_nowait(entry.subject, entry.body, reply, entry.headers)
            except PayloadTooLarge as error:
                say(_log.warning, "event.shortened", event_id=entry.event.event_id, size_bytes=error.size_bytes)
                entry.event = shorten(entry.event)
                entry.body = encode(entry.event)
            else:
                return
        self._connection.publish_nowait(entry.subject, entry.body, reply, entry.headers)

    def _on_ack(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        entry = self._unacknowledged.get(token)
        if entry is None:
            return
        problem = _refusal(message)
        if problem:
            say(
                _log.warning, "event.refused", event_id=entry.event.event_id, problem=problem, retry_after_s=RETRY_AFTER
            )
            entry.due = asyncio.get_running_loop().time() + RETRY_AFTER
            self._wake.set()
            return
        del self._unacknowledged[token]
        self._done(entry.event.event_id)
        self._wake.set()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not len(self):
            self._idle.set()


def _entry(event: Event, body: bytes) -> _Entry:
    context = event.context
    subject = subjects.after if isinstance(event, ToolAfterEvent) else subjects.denied
    return _Entry(event, subject(context.executor_id, context.tool_name), _headers(event), body)


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


def _refusal(message: Msg) -> str:
    """Return why the stream did not take an event; empty if it did."""
    if (message.headers or {}).get("Status"):
        return "no stream takes it: create TOOL_EVENTS with `hookbus up`"
    try:
        acknowledgement = json.loads(message.data)
        error, stream = acknowledgement.get("error"), acknowledgement.get("stream")
        return str(error.get("description", error)) if error else "" if stream == TOOL_EVENTS else f"stream {stream!r}"
    except (ValueError, AttributeError, RecursionError) as error:
        return f"its acknowledgement cannot be read: {error}"


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
