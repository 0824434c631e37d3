"""Sending answers, and counting them. Above it is `server`, below it `asked`."""

import asyncio
import time
from dataclasses import dataclass, field

import structlog

from hookbus_broker import Connection
from hookbus_broker.log import say
from hookbus_schemas import Decision, HookbusError, InvalidMessage, PayloadTooLarge, Verdict, encoding_of
from hookbus_schemas.decision import in_its_place
from hookbus_subscribers.asked import Caller, answer_body

log = structlog.get_logger()


@dataclass(slots=True)
class Served:
    """What a server has done since it started; each a number of requests.

    Attributes:
        answered: got an answer, of any kind.
        denied: of those, denies.
        errors: of those, errors: the hook failed, was too slow or busy, or the request could not be read.
        late: of those, given after the deadline of the request.
        busy: of the errors, requests that found no place.
        joined: came again while the first was worked on, and shared its answer.
        expired: dropped, since they came more than `GRACE` seconds past their deadline.
        refused: dropped, since their subjects were not those of the contract.
        lost: had an answer that the bus did not take.
    """

    answered: int = 0
    denied: int = 0
    errors: int = 0
    late: int = 0
    busy: int = 0
    joined: int = 0
    expired: int = 0
    refused: int = 0
    lost: int = 0


@dataclass(slots=True, eq=False)
class Request:
    """One request, from its arrival to its answer."""

    caller: Caller
    body: bytes
    digest: str
    replies: list[str]
    deadline: float = field(default=float("inf"))
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What a request that is sent again has in common with the first: who asks, and every byte."""
        return self.caller.executor_id, self.digest


class Answers:
    """The answers of one hook.

    Attributes:
        served: counters.
    """

    def __init__(self, hook: str, connection: Connection) -> None:
        self.served = Served()
        self._hook = hook
        self._connection = connection

    def give(self, request: Request, decision: Decision) -> None:
        """Answer a request on each of its reply subjects, unless it is answered already."""
        if not request.replies:
            return
        try:
            given = self._send(request, decision)
        except HookbusError as error:
            self.served.lost += 1
            say(log.warning, "answer.lost", hook=self._hook, executor=request.caller.executor_id, problem=str(error))
        else:
            self._count(request, given)
        request.replies.clear()

    def _send(self, request: Request, decision: Decision) -> Decision:
        """Publish the decision, or what `in_its_place` says if the bus cannot carry it; return what was published."""
        try:
            self._publish(request, decision)
        except (PayloadTooLarge, InvalidMessage) as error:
            say(log.error, "answer.replaced", hook=self._hook, executor=request.caller.executor_id, problem=str(error))
            decision = in_its_place(decision)
            self._publish(request, decision)
        return decision

    def _publish(self, request: Request, decision: Decision) -> None:
        body = answer_body(decision, request.digest, encoding_of(request.body))
        for reply in request.replies:
            self._connection.publish_nowait(reply, body)

    def _count(self, request: Request, decision: Decision) -> None:
        self.served.answered += 1
        self.served.denied += decision.decision is Verdict.DENY
        self.served.errors += decision.decision is Verdict.ERROR
        self.served.late += time.time() > request.deadline
