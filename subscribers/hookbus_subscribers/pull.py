"""Overlapping pull requests on a JetStream consumer. Above it `consumer` and `reading` (NATS ADR-13).

A pull is asked for before the one in front of it is used up, so the server never waits for us; nats-py's `fetch` waits
a round trip for each batch. A pull is lost with its connection, and nobody says so: whoever pulls is told here.
"""

import asyncio
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_broker.ask import ask, status
from hookbus_schemas import BusUnavailable, ConfigError, HookbusError

EXPIRES = 5.0
"""Seconds after which the server ends a pull, and tells so; it bounds how long a silent loss goes unnoticed."""

SILENCE = EXPIRES + 2.0
"""Seconds without a word of the server, while a pull is out, after which the pull counts as lost."""

API_TIMEOUT = 5.0
NOT_FOUND = 404
HEARTBEAT, EXPIRED = "100", "408"


class JetStreamRefusal(HookbusError):
    """JetStream refused a request.

    Attributes:
        code: as in HTTP: 404 for a stream or consumer that does not exist.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"JetStream: {description}")
        self.code = code


async def request(connection: Connection, action: str, body: dict[str, object] | None = None) -> dict[str, Any]:
    """Return JetStream's answer to one request of its API.

    Raises:
        JetStreamRefusal: it would not.
        BusUnavailable, PermissionRefused: it could not be asked.
    """

    def take(message: Msg) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            raise JetStreamRefusal(int(error.get("code", 0)), f"{action}: {error.get('description', 'no reason')}")
        return answer

    payload = json.dumps(body).encode() if body else b""
    return await ask(connection, f"$JS.API.{action}", payload, take, timeout=API_TIMEOUT)


def nanoseconds(seconds: float) -> int:
    """Return the unit in which JetStream counts time."""
    return round(seconds * 1_000_000_000)


MAX_TIME = 2**63 / 1e9
"""The last second since 1970 that the server can count in nanoseconds: beyond it, it would begin anywhere."""


def from_time(since: float | None) -> dict[str, object]:
    """Return the part of a consumer's configuration that says where to begin: then, or with the first event.

    Raises:
        ConfigError: `since` is no time in seconds since 1970.
    """
    if since is None:
        return {"deliver_policy": "all"}
    if abs(since) > MAX_TIME:
        raise ConfigError(f"since {since} should be seconds since 1970, before the year 2262")
    try:
        return {"deliver_policy": "by_start_time", "opt_start_time": datetime.fromtimestamp(since, UTC).isoformat()}
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"since {since} should be seconds since 1970: {error}") from None


class Pull:
    """Keeps pulls out on one consumer of ``TOOL_EVENTS``, for one link of the connection.

    At most `limit` messages are asked for or held: delivered, and not yet given back by `release`.
    """

    def __init__(
        self, connection: Connection, consumer: str, on_message: Callable[[Msg], object], *, limit: int
    ) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{TOOL_EVENTS}.{consumer}"
        self._on_message = on_message
        self._limit = limit
        self._enough = max(1, limit // 2)
        self._held = self._out = 0
        self._numbers = itertools.count()
        self._inbox = connection.new_inbox()
        self._heard_at = 0.0
        self._over = asyncio.Event()
        self._closed = False
        self.problem = ""

    async def start(self) -> None:
        """Ask for the first messages."""
        self._subscription = await self._connection.subscribe_direct(
            f"{self._inbox}.*", self._on_delivery, with_headers=False
        )
        self._forget_bus = self._connection.on_disconnect(lambda: self._end("the bus was lost"))
        self._ask()

    def release(self, count: int = 1) -> None:
        """Give back the places of messages."""
        self._held -= count
        if self._limit - self._held - self._out >= self._enough:
            self._ask()

    async def wait_over(self) -> None:
        """Return when these pulls bring nothing more; `problem` says why. A new `Pull` is the remedy."""
        loop = asyncio.get_running_loop()
        while not self._over.is_set():
            try:
                async with asyncio.timeout(SILENCE):
                    await self._over.wait()
            except TimeoutError:
                if self._out and loop.time() - self._heard_at >= SILENCE:
                    self._end("the server is silent")

    async def close(self) -> None:
        """Ask for nothing more, and take what is on its way."""
        self._closed = True
        self._forget_bus()
        try:
            await self._subscription.drain()
        except BusUnavailable:
            return  # what was on its way is delivered again

    def _ask(self) -> None:
        room = self._limit - self._held - self._out
        if self._closed or self._over.is_set() or room < self._enough:
            return
        pull = json.dumps({"batch": room, "expires": nanoseconds(EXPIRES)}).encode()
        try:
            self._connection.publish_nowait(self._subject, pull, f"{self._inbox}.{next(self._numbers)}")
        except BusUnavailable as error:
            self._end(str(error))
            return
        self._out += room
        self._heard_at = asyncio.get_running_loop().time()

    def _on_delivery(self, message: Msg) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if message.headers and (code := status(message)):
            self._on_status(code, message.headers)
            return
        self._on_message(message)  # first: a message that cannot be taken is not held
        if self._out:
            self._out -= 1
        self._held += 1

    def _on_status(self, code: str, headers: dict[str, str]) -> None:
        if code == EXPIRED:
            left = headers.get("Nats-Pending-Messages", "")
            self._out = max(0, self._out - int(left)) if left.isdigit() else 0
            self._ask()
        elif code != HEARTBEAT:
            self._end(headers.get("Description") or "no such consumer")

    def _end(self, problem: str) -> None:
        if not self._over.is_set():
            self.problem = problem
            self._over.set()
