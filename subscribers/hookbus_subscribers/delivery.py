"""What the server says of an event when it delivers it: the tokens of its ack subject. Pure (NATS ADR-15)."""

from typing import NamedTuple

from hookbus_schemas import InvalidMessage


class Delivery(NamedTuple):
    """Where a delivered message stands.

    Attributes:
        attempts: how often it has been delivered, this time included.
        sequence: of the message in its stream.
        consumer_sequence: of the delivery in its consumer; without gaps unless a delivery was lost.
        stored_at: when it was stored, in seconds since 1970 by the server's clock.
        pending: messages that the consumer has still to deliver after it.
    """

    attempts: int
    sequence: int
    consumer_sequence: int
    stored_at: float
    pending: int


def delivery(ack_subject: str) -> Delivery:
    """Read an ack subject: ``$JS.ACK``, maybe domain and account, stream, consumer, and the numbers.

    Raises:
        InvalidMessage: it is not the ack subject of a delivered message.
    """
    tokens = ack_subject.split(".")
    first = 4 if len(tokens) == 9 else 6
    try:
        attempts, sequence, consumer_sequence, stored_ns, pending = map(int, tokens[first : first + 5])
    except ValueError:
        raise InvalidMessage(f"{ack_subject[:200]!r} is not the ack subject of a delivered message") from None
    return Delivery(attempts, sequence, consumer_sequence, stored_ns / 1e9, pending)
