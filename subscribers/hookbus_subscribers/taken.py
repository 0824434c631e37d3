"""Events that a consumer has taken, and what it tells the server of them. Above it is `consumer` (NATS ADR-15)."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_schemas import BusUnavailable, ToolAfterEvent, ToolDeniedEvent
from hookbus_subscribers.delivery import Delivery
from hookbus_subscribers.pull import Pull, nanoseconds

Event: TypeAlias = ToolAfterEvent | ToolDeniedEvent
Handler: TypeAlias = Callable[[Event], Awaitable[object]]

ACK, NAK, TERM, IN_PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


def nak_after(seconds: float) -> bytes:
    """Return what makes the server deliver an event again after a while."""
    return NAK + json.dumps({"delay": nanoseconds(seconds)}).encode()


@dataclass(slots=True)
class Consumed:
    """What a consumer has done since it started; each a number of events.

    Attributes:
        handled: acknowledged; those among them that were set aside before and handed back by an operator, too.
        passed_over: acknowledged, since they are not wanted.
        failed: given back, since the handler raised or was too slow, or they could not be set aside; they come again.
        set_aside: not handled, and kept for an operator: the handler failed `max_deliver` times, or they are no event.
        unreadable: of those, the ones that are no event.
        redelivered: of all, deliveries that were not the first.
    """

    handled: int = 0
    passed_over: int = 0
    failed: int = 0
    set_aside: int = 0
    unreadable: int = 0
    redelivered: int = 0


@dataclass(slots=True, eq=False)
class Taken:
    """One delivered event, from its delivery to its acknowledgement."""

    connection: Connection
    message: Msg
    delivery: Delivery
    pull: Pull

    def say(self, what: bytes) -> None:
        """Tell the server of the event; without a bus the event comes again."""
        try:
            self.connection.publish_nowait(self.message.reply, what)
        except BusUnavailable:
            return
