"""One hook asked about one call, and the memory of such requests after they ended."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.poll import Poll
from hookbus_schemas import Encoding, ToolHookContext, digest, encode

HEDGE_AFTER = 1.0
"""Seconds after which a request goes out once more: queue groups pick replicas without regard to their health."""

DIGEST_HEADER = "Hookbus-Request-Digest"
"""Header of a request in JSON: what its answer must hold as ``request_digest``, for a person to copy."""

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
        headers: what went with it; None for a body in msgpack.
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
    headers: dict[str, str] | None = None
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


Body: TypeAlias = tuple[ToolHookContext, bytes, str]
"""A context, its body, and the digest of that."""


def body_of(context: ToolHookContext, timeout_ms: int, encoding: Encoding) -> Body:
    """Return what a hook of this timeout and encoding is asked: the context with its deadline."""
    deadline_ms = context.sent_at_ms + timeout_ms
    if context.deadline_ms != deadline_ms:
        context = context.model_copy(update={"deadline_ms": deadline_ms})
    body = encode(context, encoding)
    return context, body, digest(body)


def headers_of(encoding: Encoding, request_digest: str) -> dict[str, str] | None:
    """Return the headers of a request; one in msgpack, as most are, has none."""
    if encoding is Encoding.MSGPACK:
        return None
    return {"content-type": "application/json", DIGEST_HEADER: request_digest}
