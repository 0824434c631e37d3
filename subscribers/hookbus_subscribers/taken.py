"""Events that a consumer has taken, and what it tells the server of them. Above it is `consumer` (NATS ADR-15)."""

import json
from dataclasses import dataclass

from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_schemas import BusUnavailable
from hookbus_subscribers.delivery import Delivery
from hookbus_subscribers.pull import Pull, nanoseconds

ACK, NAK, TERM, IN_PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


def nak_after(seconds: float) -> bytes:
    """Return what makes the server deliver an event again after a while."""
    return NAK + json.dumps({"delay": nanoseconds(seconds)}).encode()


@dataclass(slots=True)
class Consumed:
    """What a consumer has done since it started; each a number of events.

    Attributes:
        handled: acknowledged.
        failed: given back, since the handler raised or was too slow; they come again.
        terminated: given up, since the handler failed `max_deliver` times.
        unreadable: given up, since they are no event.
        redelivered: of all, deliveries that were not the first.
    """

    handled: int = 0
    failed: int = 0
    terminated: int = 0
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
