"""Reading what arrives on a reply subject: nothing is believed before it is verified. Pure."""

from nats.aio.msg import Msg

from hookbus_schemas import Decision, Encoding, InvalidMessage, Verdict, decode, encode, encode_plain_allow
from hookbus_schemas.decision import PLAIN_ALLOW, in_its_place


def made_by_server(message: Msg) -> bool:
    """Tell whether the server wrote this itself: it can be made to deliver other bytes on any subject."""
    if not message.headers:
        return False
    return any(name.lower().startswith(("nats-", "status")) for name in message.headers)


def says_no_responders(message: Msg) -> bool:
    """Tell whether the server says that nobody is subscribed to the request's subject."""
    return not message.data and (message.headers or {}).get("Status") == "503"


def read_answer(body: bytes, request_digest: str, encoding: Encoding = Encoding.MSGPACK) -> Decision:
    """Return the decision in an answer to the request of this digest.

    Raises:
        InvalidMessage: it is none, or it answers another request; never to be taken for an allow.
    """
    # Most answers are plain allows; reading them field by field costs ten times as much.
    if encoding is Encoding.MSGPACK and body == encode_plain_allow(request_digest):
        return PLAIN_ALLOW
    try:
        answer = decode(Decision, body, encoding)
    except InvalidMessage as error:
        raise InvalidMessage(f"its answer is no decision: {error}") from error
    if answer.request_digest != request_digest:
        raise InvalidMessage("its answer is for another request")
    return answer


def as_sent(answer: Decision) -> Decision:
    """Return the answer of a hook in this process as it would have come over the bus: what cannot be sent is no answer.

    Raises:
        InvalidMessage: it is none.
    """
    if answer is PLAIN_ALLOW or answer == PLAIN_ALLOW:
        return PLAIN_ALLOW
    try:
        return decode(Decision, encode(answer))
    except InvalidMessage:
        return decode(Decision, encode(in_its_place(answer)))


def says_another_may_answer(answer: Decision) -> bool:
    """Tell an error of a replica that never began: of two that were asked, the other may be at work."""
    return answer.decision is Verdict.ERROR and answer.reason_code in ("busy", "draining")
