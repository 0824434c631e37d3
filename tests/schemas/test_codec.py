"""Bodies: what is written is read again, and what others write never does harm."""

from collections.abc import Callable
from hashlib import sha256

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas import (
    Decision,
    InvalidMessage,
    Outcome,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    Verdict,
    decode,
    decode_event,
    digest,
    encode,
)
from hookbus_schemas.message import MAX_WORDS
from strategies import after_events, contexts, decisions, denied_events

Reader = Callable[[bytes], object]
CONTEXT = ToolHookContext(
    tool_name="t", arguments_json="{}", call_id="c", executor_id="e", sent_at_ms=1, deadline_ms=2, session_id="s"
)
AFTER = ToolAfterEvent(event_id="e", at_ms=1, context=CONTEXT, outcome=Outcome.COMPLETED)
BODIES = (encode(Decision.deny("no", labels={"a": "b"})), encode(CONTEXT), encode(AFTER))


def _read_decision(body: bytes) -> object:
    return decode(Decision, body)


def _read_context(body: bytes) -> object:
    return decode(ToolHookContext, body)


READERS = (_read_decision, _read_context, decode_event)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
known = st.sampled_from(
    sorted(
        {name for model in (Decision, ToolHookContext, ToolAfterEvent, ToolDeniedEvent) for name in model.model_fields}
    )
)


def _is_taken_or_refused(body: bytes) -> bool:
    """Read with every reader; tell whether each refusal is one line that a log can take."""
    return all("\n" not in problem and len(problem) < 600 for problem in map(_problem, READERS, [body] * len(READERS)))


def _problem(read: Callable[[bytes], object], body: bytes) -> str:
    try:
        read(body)
    except InvalidMessage as error:
        return str(error)
    return ""


@given(contexts)
def test_a_context_is_read_as_it_was_written(context: ToolHookContext) -> None:
    """Every field, whatever is in it."""
    assert decode(ToolHookContext, encode(context)) == context


@given(decisions)
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    """Every field, whatever is in it."""
    assert decode(Decision, encode(decision)) == decision


@given(after_events | denied_events)
def test_an_event_is_read_as_it_was_written(event: ToolAfterEvent | ToolDeniedEvent) -> None:
    """As the type that it was, with the context and the decisions that it holds."""
    assert decode_event(encode(event)) == event
    assert decode(type(event), encode(event)) == event


@given(after_events | denied_events)
def test_a_message_is_the_same_in_json(event: ToolAfterEvent | ToolDeniedEvent) -> None:
    """The JSON of an event, as people export it, holds all that the body held."""
    assert type(event).model_validate_json(event.model_dump_json()) == event


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing but `InvalidMessage` comes out of a body that somebody else wrote."""
    assert _is_taken_or_refused(body)


@given(st.sampled_from(BODIES), st.data())
def test_a_damaged_body_is_read_or_refused(body: bytes, data: st.DataObject) -> None:
    """Some bytes of a good body are replaced by others, more or fewer."""
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 4)))
    assert _is_taken_or_refused(body[:start] + data.draw(st.binary(max_size=4)) + body[end:])


@given(anything)
def test_any_msgpack_is_read_or_refused(value: object) -> None:
    """Well-formed, but anything at all."""
    assert _is_taken_or_refused(msgpack.packb(value))


@given(st.sampled_from(BODIES), st.dictionaries(known, anything, max_size=3))
def test_any_value_in_a_known_field_is_read_or_refused(body: bytes, changed: dict[str, object]) -> None:
    """A good message, with anything at all in some of its fields."""
    assert _is_taken_or_refused(msgpack.packb(msgpack.unpackb(body) | changed))


@given(
    decisions,
    st.dictionaries(st.text(max_size=9).filter(lambda name: name not in Decision.model_fields), anything, max_size=3),
)
def test_fields_of_a_newer_writer_are_ignored(decision: Decision, added: dict[str, object]) -> None:
    """Both sides upgrade on their own."""
    assert decode(Decision, msgpack.packb(decision.model_dump() | added)) == decision


@pytest.mark.parametrize("depth", [64, 600, 1023, 1024, 1025, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["arrays", "maps"])
@pytest.mark.parametrize("field", ["added_later", "suggested_arguments", "labels", "v"])
def test_a_deep_body_is_read_or_refused(field: str, opening: bytes, depth: int) -> None:
    """However deep, in a field that is known or not: no recursion error, no crash."""
    start = msgpack.packb({"decision": "deny", "type": "tool:after"}).replace(b"\x82", b"\x83", 1)
    assert _is_taken_or_refused(start + msgpack.packb(field) + opening * depth + b"\xc0")


@pytest.mark.parametrize("depth", [63, 64])
def test_suggested_arguments_are_at_most_64_deep(depth: int) -> None:
    """The object itself is the first level."""
    value: object = None
    for _ in range(depth):
        value = [value]
    body = msgpack.packb({"decision": "deny", "suggested_arguments": {"a": value}})
    if depth == 63:
        assert decode(Decision, encode(decode(Decision, body))).suggested_arguments == {"a": value}
    else:
        with pytest.raises(InvalidMessage, match=r"suggested_arguments.*64 deep"):
            decode(Decision, body)


def test_a_body_of_many_megabytes_is_read() -> None:
    """What is too large for the bus is the bus's business."""
    context = CONTEXT.model_copy(update={"arguments_json": "x" * 20_000_000})
    assert decode(ToolHookContext, encode(context)) == context


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    """A message of an error goes to a log: it holds neither megabytes nor the arguments."""
    body = msgpack.packb(CONTEXT.model_dump() | {"arguments_json": 5, "tool_name": ["secret" * 1000]})
    with pytest.raises(InvalidMessage, match="ToolHookContext does not fit the contract: tool_name:") as refusal:
        decode(ToolHookContext, body)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "field", [name for name, info in ToolHookContext.model_fields.items() if info.annotation is str]
)
def test_half_a_surrogate_pair_is_never_sent(field: str) -> None:
    """It has no UTF-8: either the message cannot be made, or it cannot be encoded."""
    with pytest.raises(ValueError, match=r"surrogates not allowed|unicode string"):
        encode(ToolHookContext.model_validate(CONTEXT.model_dump() | {field: "a\ud800"}))


@pytest.mark.parametrize("field", ["reason", "warning"])
def test_words_with_half_a_surrogate_pair_are_still_words(field: str) -> None:
    """A deny stays a deny: what cannot be written is written as its escape."""
    decision = Decision.model_validate({"decision": Verdict.DENY, field: "no \ud800!"})
    assert getattr(decode(Decision, encode(decision)), field) == "no \\ud800!"


def test_long_words_are_cut_and_the_deny_stands() -> None:
    """Too many words are no reason to let a call pass."""
    decision = decode(Decision, msgpack.packb({"decision": "deny", "reason": "x" * 100_000}))
    assert decision.decision is Verdict.DENY
    assert decision.reason == "x" * (MAX_WORDS - 1) + "…"


def test_the_digest_is_the_sha256_of_the_very_bytes() -> None:
    """Of the body as it was sent, not of what it means."""
    body = encode(CONTEXT)
    assert digest(body) == sha256(body).hexdigest()
    assert digest(body) != digest(body.replace(b"\xa1t", b"\xd9\x01t", 1))


def test_an_event_is_not_read_as_the_other() -> None:
    """A denied call is not one that ran, whatever a reader hoped for."""
    with pytest.raises(InvalidMessage, match="type"):
        decode(ToolDeniedEvent, encode(AFTER))
