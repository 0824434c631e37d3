"""One hook asked about one call, and the memory of such requests after they ended."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.poll import Poll

HEDGE_AFTER = 1.0
"""Seconds after which a request goes out once more: queue groups pick replicas without regard to their health."""

MAX_RETIRED = 10_000
"""Reply subjects remembered after their request ended, to tell a late answer from one that nobody asked for."""


@dataclass(slots=True, eq=False)
class Request:
    """One hook asked about one call.

    Attributes:
        hook, poll: who is asked, and where the decision goes.
        asked_at: by `time.monotonic`, in seconds; uvloop's own clock counts in milliseconds.
        timeout: seconds that it waits.
        reply, subject, body, digest: what went over the bus; empty for a hook in this process.
        hedged: the request went out twice.
        task: at work for a hook in this process.
    """

    hook: RegisteredHook
    poll: Poll
    asked_at: float
    timeout: float
    reply: str = ""
    subject: str = ""
    body: bytes = b""
    digest: str = ""
    hedged: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether its decision is still wanted."""
        return self.poll.wants(self.hook)

    @property
    def ends_at(self) -> float:
        """When waiting for it ends, by the same clock."""
        return self.asked_at + self.timeout

    @property
    def due(self) -> float:
        """When something is to be done about it: to send it once more, or to end it."""
        return self.ends_at if self.hedged else self.asked_at + min(HEDGE_AFTER, self.timeout)


@dataclass(frozen=True, slots=True)
class Ended:
    """What is remembered of a request whose answer may still come."""

    hook: str
    call_id: str
    deadline: float
    timed_out: bool


class Retired:
    """The last requests that ended before every answer to them had come."""

    def __init__(self) -> None:
        self._by_reply: OrderedDict[str, Ended] = OrderedDict()

    def add(self, request: Request, *, timed_out: bool) -> None:
        """Remember a request that went over the bus."""
        if not request.reply:
            return
        ended = Ended(request.hook.name, request.poll.context.call_id, request.ends_at, timed_out)
        self._by_reply[request.reply] = ended
        if len(self._by_reply) > MAX_RETIRED:
            self._by_reply.popitem(last=False)

    def take(self, reply: str) -> Ended | None:
        """Return, and forget, the request with this reply subject."""
        return self._by_reply.pop(reply, None)
