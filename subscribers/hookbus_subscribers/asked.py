"""What one request or event says and what one answer holds. Pure: no bus, no clock. Above it: `server`, `consumer`."""

from dataclasses import dataclass
from functools import lru_cache

from hookbus_schemas import (
    Decision,
    Encoding,
    InvalidMessage,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    Verdict,
    decode,
    decode_event,
    digest,
    encode,
    encode_plain_allow,
    encoding_of,
    subjects,
)
from hookbus_schemas.decision import PLAIN_ALLOW

_ANSWERS = (Verdict.ALLOW, Verdict.DENY, Verdict.ERROR)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, told from the subject alone: permissions vouch for it, for a body nobody does.

    Attributes:
        executor_id: the executor.
        reply_prefix: how a reply subject begins on which it may be answered.
    """

    executor_id: str
    reply_prefix: str

    def may_be_answered_on(self, reply: str) -> bool:
        """Tell whether the reply subject is this caller's for this hook, and one token long after the prefix."""
        return reply.startswith(self.reply_prefix) and len(reply) > reply.rindex(".") + 1 == len(self.reply_prefix)


@lru_cache(maxsize=4096)
def caller(subject: str) -> Caller:
    """Return who asks on this subject.

    Raises:
        InvalidMessage: it is not the subject of a request.
    """
    prefix = subjects.reply_prefix_for(subject)
    return Caller(subjects.name(subject.rpartition(".")[2]), prefix)


def read_request(body: bytes, asking: Caller) -> ToolHookContext:
    """Return what the hook is asked about.

    Raises:
        InvalidMessage: it cannot be read, or names another executor than the one that asks.
    """
    context = decode(ToolHookContext, body, encoding_of(body))
    if context.executor_id != asking.executor_id:
        raise InvalidMessage(f"executor_id is {context.executor_id!r:.80}, but {asking.executor_id!r:.80} asks")
    return context


def read_event(body: bytes, subject: str) -> ToolAfterEvent | ToolDeniedEvent:
    """Return the event that was published on this subject.

    Raises:
        InvalidMessage: it cannot be read, or is about a call of another executor than the one that published it.
    """
    event = decode_event(body)
    executor = event.context.executor_id
    if subjects.token(executor) not in subject.split(".")[2:3]:
        raise InvalidMessage(f"executor_id is {executor!r:.80}, but it was published on {subject:.200}")
    return event


def call_key(context: ToolHookContext) -> str:
    """Return what names a call among those of all executors: of its own ids alone an executor can speak."""
    return digest(f"{subjects.token(context.executor_id)}.{context.call_id}".encode(errors="surrogatepass"))


def answer_body(decision: Decision, request_digest: str, encoding: Encoding = Encoding.MSGPACK) -> bytes:
    """Return the body of the answer to the request with this digest, in the encoding of the request.

    Raises:
        InvalidMessage: the decision is none, or holds what cannot be encoded.
    """
    is_plain = decision is PLAIN_ALLOW or decision == PLAIN_ALLOW
    if is_plain and encoding is Encoding.MSGPACK:  # most answers, at a tenth of the cost
        return encode_plain_allow(request_digest)
    if getattr(decision, "decision", None) not in _ANSWERS:  # made around the model's checks
        raise InvalidMessage("the decision is none of allow, deny and error")
    try:
        return encode(decision.model_copy(update={"request_digest": request_digest}), encoding)
    except RecursionError as error:
        raise InvalidMessage("the decision is too deep to be encoded") from error
