"""Handing an event that was set aside to its consumer once more: both ends. Above it: `consumer`, and the command.

The operator reads the event and sends it, so a consumer needs no permission to read the record.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from enum import StrEnum

from nats import errors
from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_broker.latest import read_at
from hookbus_broker.tasks import end_tasks
from hookbus_schemas import BusUnavailable, HookbusError, subjects
from hookbus_subscribers.set_aside import SetAside, described, forget

MAX_WAITING = 64
"""Events that wait for a consumer to take them; what comes beyond gets no answer."""

READ_TIMEOUT = 5.0
"""Seconds to read one event."""


class Retried(StrEnum):
    """What came of a retry."""

    HANDLED = "handled"
    FAILED = "failed"
    GONE = "gone"


async def retry(connection: Connection, entry: SetAside, timeout: float = 60.0) -> tuple[Retried, str]:
    """Hand an event to its consumer; return what came of it, and the error if it failed.

    What is handled, or no longer in the stream, is set aside no longer.

    Args:
        connection: the bus.
        entry: which event.
        timeout: seconds that the consumer has.

    Raises:
        BusUnavailable: no process of the consumer runs, none answered in time, or the bus was lost. The event may have
            been handled all the same; it stays set aside.
        PermissionRefused: this identity may not read events.
    """
    stored = await read_at(connection, TOOL_EVENTS, entry.sequence, READ_TIMEOUT)
    if stored is None:
        await forget(connection, entry)
        return Retried.GONE, ""
    problem = await _ask(connection, f"{_prefix(entry.durable)}{stored.subject}", stored.data, entry, timeout)
    if problem:
        return Retried.FAILED, problem
    await forget(connection, entry)
    return Retried.HANDLED, ""


async def _ask(connection: Connection, subject: str, body: bytes, entry: SetAside, timeout: float) -> str:
    try:
        answer = await connection.request(subject, body, timeout)
        return str(json.loads(answer.data)["problem"])
    except errors.NoRespondersError:
        raise BusUnavailable(f"no process of consumer {entry.durable} is running: start one and try again") from None
    except errors.TimeoutError:
        what = f"consumer {entry.durable} did not answer about event {entry.sequence}"
        raise BusUnavailable(f"{what} within {timeout:g} s: it stays set aside") from None
    except (ValueError, LookupError, TypeError) as error:
        raise BusUnavailable(f"consumer {entry.durable} answered what cannot be read: {error!r:.200}") from None


class Retries:
    """A consumer's end: takes events that an operator hands back, one after the other, and says what came of each."""

    def __init__(
        self, connection: Connection, durable: str, handle: Callable[[bytes, str], Awaitable[BaseException | None]]
    ) -> None:
        """Prepare.

        Args:
            connection: the bus.
            durable: the consumer.
            handle: handles a body that was published on a subject; returns what went wrong.
        """
        self._connection = connection
        self._durable = durable
        self._handle = handle
        self._waiting: asyncio.Queue[Msg] = asyncio.Queue(MAX_WAITING)

    async def start(self) -> None:
        """Begin to take events."""
        subject, group = f"{_prefix(self._durable)}>", subjects.token(self._durable)
        self._subscription = await self._connection.subscribe_direct(subject, self._take, group)
        self._task = asyncio.create_task(self._handle_all(), name=f"retries-{self._durable}")

    async def stop(self) -> None:
        """Take no more; one that is being handled is not waited for, and stays set aside."""
        try:
            await self._subscription.unsubscribe()
        except BusUnavailable:
            pass  # the server has forgotten it with the connection
        finally:
            await end_tasks([self._task], 1.0)

    def _take(self, message: Msg) -> None:
        if message.reply.startswith("_INBOX") and not self._waiting.full():  # an answer goes to an inbox alone
            self._waiting.put_nowait(message)

    async def _handle_all(self) -> None:
        prefix = _prefix(self._durable)
        while True:
            message = await self._waiting.get()
            error = await self._handle(message.data, message.subject.removeprefix(prefix))
            problem = "" if error is None else described(error)
            try:
                self._connection.publish_nowait(message.reply, json.dumps({"problem": problem}).encode())
            except HookbusError:
                continue  # the operator gets no answer, and the event stays set aside


def _prefix(durable: str) -> str:
    return f"consumers.retry.{subjects.token(durable)}."
