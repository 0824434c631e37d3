"""One question to the server and its answers, on a private inbox; every way to get no answer is an error, at once."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from nats.aio.msg import Msg

from hookbus_broker.connection import Connection
from hookbus_schemas.errors import BusUnavailable, HookbusError, PermissionRefused

T = TypeVar("T")


async def ask(
    connection: Connection,
    subject: str,
    payload: bytes,
    take: Callable[[Msg], T | None],
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
) -> T:
    """Publish a question and hand its answers to `take` until that returns a result.

    Args:
        connection: the bus.
        subject: what to ask.
        payload: the question.
        take: called with each answer; returns None as long as more must come, raises a `HookbusError` to end it.
        timeout: seconds for the whole.
        headers: of the question.

    Raises:
        BusUnavailable: nobody answers there, the bus was lost meanwhile, or the answer was not whole in time.
        PermissionRefused: this identity may not ask it.
    """
    result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    removals = [
        connection.on_disconnect(lambda: _fail(result, BusUnavailable(f"the bus was lost while asking {subject}"))),
        connection.on_publish_refused(lambda refused: _refuse(result, subject, refused)),
    ]
    inbox = connection.new_inbox()
    subscription = await connection.subscribe_direct(inbox, lambda msg: _receive(result, subject, msg, take))
    try:
        connection.publish_nowait(subject, payload, inbox, headers)
        async with asyncio.timeout(timeout):
            return await result
    except TimeoutError:
        raise BusUnavailable(f"no whole answer from {subject} within {timeout:g} s") from None
    finally:
        for remove in removals:
            remove()
        if not result.cancel() and not result.cancelled():
            result.exception()  # seen, also when the caller was cancelled just before
        await subscription.unsubscribe()


def _receive(result: asyncio.Future[T], subject: str, msg: Msg, take: Callable[[Msg], T | None]) -> None:
    if result.done():
        return
    if status(msg) == "503":
        _fail(result, BusUnavailable(f"nothing answers {subject}: no JetStream, or no such stream or bucket"))
        return
    try:
        taken = take(msg)
    except HookbusError as error:
        _fail(result, error)
    except (ValueError, LookupError, TypeError) as error:
        _fail(result, BusUnavailable(f"{subject} answered what cannot be read: {error!r:.200}"))
    else:
        if taken is not None:
            result.set_result(taken)


def _refuse(result: asyncio.Future[T], subject: str, refused: str) -> None:
    if refused == subject.lower():
        _fail(result, PermissionRefused(f"this credential may not publish to {subject}"))


def _fail(result: asyncio.Future[T], error: HookbusError) -> None:
    if not result.done():
        result.set_exception(error)


def status(msg: Msg) -> str:
    """Return the NATS status of a message, such as ``503``; empty for one that somebody sent."""
    return (msg.header or {}).get("Status", "")
