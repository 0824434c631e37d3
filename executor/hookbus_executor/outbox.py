"""Events on their way to the stream. The caller appends and goes on; a background sender publishes until acknowledged.

Above it is `record`, which makes the events; below it `sealing`, which makes messages of them, `journal`, which keeps
those on disk, and the connection.
"""

import asyncio
import contextlib
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import structlog
from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, TOOL_OBJECTS, Connection
from hookbus_broker.log import say
from hookbus_broker.tasks import end_tasks
from hookbus_executor.journal import Journal, JournalUnwritable, Kind, left_behind
from hookbus_executor.redaction import Redactor
from hookbus_executor.sealing import Event, Sealed, Sealer, of_event, of_part, shortened
from hookbus_executor.settings import ExecutorSettings
from hookbus_executor.syncing import Syncer
from hookbus_schemas import (
    BusUnavailable,
    InvalidMessage,
    PayloadTooLarge,
    ToolAfterEvent,
    ToolDeniedEvent,
    decode_event,
    encode,
)

WINDOW = 1000
"""Messages published and not yet acknowledged; more only fills the server's queue."""

ACK_TIMEOUT = 5.0
"""Seconds after which a message that was not acknowledged is sent again, under the same ``Nats-Msg-Id``."""

RETRY_AFTER = 0.5
"""Seconds after which a message is sent again that the stream would not take."""

_log = structlog.get_logger()


class _Sending:
    """A message that is out, and when it is due to go out again."""

    __slots__ = ("due", "sealed")

    def __init__(self, sealed: Sealed, due: float) -> None:
        self.sealed = sealed
        self.due = due


class Outbox:
    """Publishes events to the stream ``TOOL_EVENTS``, each until it is acknowledged.

    Attributes:
        dropped: events that found no room, and those that cannot be sent; each has a line in the log.
    """

    def __init__(self, connection: Connection, folder: Path, settings: ExecutorSettings) -> None:
        """Prepare to send.

        Args:
            connection: the bus.
            folder: where this executor, and others that may be left behind, keep their events.
            settings: what is redacted, how much may wait, and what happens then.
        """
        self.dropped = 0
        self._folder = folder
        self._settings = settings
        self._journal: Journal | None = None
        self._syncer: Syncer | None = None
        redactor = Redactor(settings.redact_fields, settings.redact_patterns)
        self._sealer = Sealer(redactor, inline_limit=settings.inline_limit)
        self._promised = 0
        self._size = 0
        self._connection = connection
        self._unkept: deque[Event] = deque()
        self._waiting: deque[Sealed] = deque()
        self._unacknowledged: dict[str, _Sending] = {}
        self._tokens = itertools.count()
        self._inbox = connection.new_inbox()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._undo: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._unkept) + len(self._waiting) + len(self._unacknowledged)

    @property
    def is_full(self) -> bool:
        """Whether a call must not run: more is promised than there is room for, so it would leave no trace."""
        return self._settings.outbox_full == "refuse" and self._is_beyond(self._promised)

    def _is_beyond(self, promised: int = 0) -> bool:
        limits = self._settings
        return len(self) + promised > limits.outbox_limit or self._size > limits.outbox_limit_bytes

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
        fsync = self._settings.outbox_fsync
        self._journal = Journal.open(self._folder, synced=fsync != "never")
        self._take_over(self._journal)
        await self._connection.subscribe_direct(f"{self._inbox}.*", self._on_ack)
        await self._connection.barrier()
        self._undo = self._connection.on_reconnect(self._send_again)
        start = asyncio.get_running_loop().create_task
        self._tasks.append(start(self._send()))
        if fsync != "never":
            self._syncer = Syncer(self._journal)
            self._tasks.append(start(self._syncer.keep_synced()))

    def admit(self, event: ToolAfterEvent) -> None:
        """Keep the event of a call that is about to run, should this process die before `append` has its end.

        Raises:
            JournalUnwritable: it cannot be kept, so the call must not run.
        """
        if self._journal is not None:
            self._journal.append(Kind.ADMITTED, event.event_id, encode(self._sealer.draft(event)))

    async def safe(self) -> None:
        """Wait until what was admitted is as safe as `outbox_fsync` wants it before the tool runs.

        Raises:
            JournalUnwritable: the disk does not take it, so the call must not run.
        """
        if self._syncer is not None and self._settings.outbox_fsync == "always":
            await self._syncer.synced()

    def withdraw(self, event_id: str) -> None:
        """Forget what was admitted: the call is not going to run."""
        self._done(event_id)

    def append(self, event: Event) -> None:
        """Take an event that room was promised for; it is sent in the background, in order of arrival.

        Where there is no room, an event of a stopped call is dropped: a flood of them must not fill the memory.
        """
        if isinstance(event, ToolDeniedEvent) and self.is_full:
            self.dropped += 1
            return
        self._unkept.append(event)
        self._idle.clear()
        self._keep_all()
        while self._settings.outbox_full == "drop" and self._waiting and self._is_beyond():
            self._drop_oldest()
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
        await end_tasks(self._tasks, 1.0)
        if self._unkept:
            self.dropped += len(self._unkept)
            why = "they could not be written: the next executor here records those of calls that ran as interrupted"
            say(_log.error, "events.dropped", count=len(self._unkept), folder=str(self._folder), why=why)
            self._unkept.clear()
        if len(self):
            why = "the stream did not acknowledge them; the next executor here sends them"
            say(_log.error, "events.left", count=len(self), folder=str(self._folder), why=why)
        if self._syncer is not None:
            await self._syncer.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _take_over(self, journal: Journal) -> None:
        """Send what executors that died have left, as their own: a call without an end was interrupted."""
        for entries in left_behind(self._folder):
            for kind, entry_id, body in sorted(entries, key=lambda entry: entry[0] is not Kind.PART):
                try:
                    messages = self._taken_over(kind, entry_id, body)
                except InvalidMessage:
                    self.dropped += 1
                    say(_log.error, "event.dropped", event_id=entry_id, exc_info=True)
                    continue
                for sealed in messages:
                    journal.append(sealed.kind, sealed.entry_id, sealed.body)
                if kind is Kind.ADMITTED:
                    self._sealer.extend(messages)
                self._queue(messages)
            say(_log.warning, "events.taken_over", count=len(entries))

    def _taken_over(self, kind: Kind, entry_id: str, body: bytes) -> list[Sealed]:
        """Return what is to be sent; what had ended has its place in the chain of the executor that died, and stays."""
        if kind is Kind.PART:
            return [of_part(entry_id, body)]
        event = decode_event(body)
        return (
            [of_event(event, body)] if kind is Kind.ENDED else self._sealer.sealed(event, self._connection.max_payload)
        )

    def _queue(self, messages: Iterable[Sealed]) -> None:
        for sealed in messages:
            self._waiting.append(sealed)
            self._size += len(sealed.body)
        self._idle.clear()

    def _drop_oldest(self) -> None:
        """Drop the oldest event that is not on its way, with its parts, which stand before it."""
        while self._waiting:
            sealed = self._waiting.popleft()
            self._forget(sealed)
            if sealed.kind is Kind.ENDED:
                self.dropped += 1
                say(_log.error, "event.dropped", event_id=sealed.entry_id, why="the outbox is full")
                return

    def _forget(self, sealed: Sealed) -> None:
        self._size -= len(sealed.body)
        self._done(sealed.entry_id)

    def _keep_all(self) -> None:
        """Write events to the file, and only then give them to the sender, in their order.

        One that cannot be written waits: sent, it would be there twice should this process die, as itself and as
        `interrupted`; and with it would die its place in the chain, a gap.
        """
        while self._unkept:
            messages = self._sealer.sealed(self._unkept[0], self._connection.max_payload)
            if not self._keep(messages):
                return
            self._unkept.popleft()
            self._sealer.extend(messages)
            self._queue(messages)

    def _keep(self, messages: Sequence[Sealed]) -> bool:
        """Write the messages of an event; True if all of them could be."""
        if self._journal is None:
            return True
        for number, sealed in enumerate(messages):
            try:
                self._journal.append(sealed.kind, sealed.entry_id, sealed.body)
            except JournalUnwritable:
                for part in messages[:number]:
                    self._done(part.entry_id)
                if len(self._unkept) == 1:  # the others wait for the same reason
                    say(_log.error, "event.not_kept", event_id=messages[-1].entry_id, exc_info=True)
                return False
        return True

    def _done(self, entry_id: str) -> None:
        """Forget a message; where that cannot be written the next executor sends it once more, which harms nobody."""
        try:
            if self._journal is not None:
                self._journal.append(Kind.DONE, entry_id)
        except JournalUnwritable as error:
            say(_log.warning, "event.not_forgotten", event_id=entry_id, problem=str(error))

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._keep_all()
            try:
                self._resend(loop.time())
                self._send_waiting(loop.time())
                due = min((sending.due for sending in self._unacknowledged.values()), default=None)
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
        for sending in self._unacknowledged.values():
            sending.due = 0.0
        self._wake.set()

    def _resend(self, now: float) -> None:
        overdue = [token for token, sending in self._unacknowledged.items() if sending.due <= now]
        for token in overdue:
            sending = self._unacknowledged[token]
            if self._publish(token, sending.sealed):
                sending.due = now + ACK_TIMEOUT
            else:
                del self._unacknowledged[token]

    def _send_waiting(self, now: float) -> None:
        while self._waiting and len(self._unacknowledged) < WINDOW:
            sealed, token = self._waiting[0], str(next(self._tokens))
            if sealed.refers and self._unacknowledged:
                return  # who reads an event finds its parts
            sent = self._publish(token, sealed)
            self._waiting.popleft()
            if sent:
                self._unacknowledged[token] = _Sending(sealed, now + ACK_TIMEOUT)

    def _publish(self, token: str, sealed: Sealed) -> bool:
        """Publish a message; one that cannot be sent is dropped, so that it does not hold up those behind it.

        Raises:
            BusUnavailable: it has to wait.
        """
        reply = f"{self._inbox}.{token}"
        try:
            try:
                self._connection.publish_nowait(sealed.subject, sealed.body, reply, sealed.headers)
            except PayloadTooLarge:  # the bus takes less than when it was sealed
                body = shortened(sealed)
                self._connection.publish_nowait(sealed.subject, body, reply, sealed.headers)
        except BusUnavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever it was, the messages behind it are to be sent
            self.dropped += 1
            self._forget(sealed)
            say(_log.error, "event.dropped", event_id=sealed.entry_id, exc_info=True)
            return False
        return True

    def _on_ack(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        sending = self._unacknowledged.get(token)
        if sending is None:
            return
        event_id = sending.sealed.entry_id
        problem = _refusal(message, TOOL_EVENTS if sending.sealed.kind is Kind.ENDED else TOOL_OBJECTS)
        if problem:
            say(_log.warning, "event.refused", event_id=event_id, problem=problem, retry_after_s=RETRY_AFTER)
            sending.due = asyncio.get_running_loop().time() + RETRY_AFTER
            self._wake.set()
            return
        del self._unacknowledged[token]
        self._forget(sending.sealed)
        self._wake.set()
        self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not len(self):
            self._idle.set()


def _refusal(message: Msg, wanted: str) -> str:
    """Return why the stream did not take a message; empty if the wanted one did."""
    if (message.headers or {}).get("Status"):
        return f"no stream takes it: create {wanted} with `hookbus up`"
    try:
        acknowledgement = json.loads(message.data)
        error, stream = acknowledgement.get("error"), acknowledgement.get("stream")
        return str(error.get("description", error)) if error else "" if stream == wanted else f"stream {stream!r}"
    except (ValueError, AttributeError, RecursionError) as error:
        return f"its acknowledgement cannot be read: {error}"
