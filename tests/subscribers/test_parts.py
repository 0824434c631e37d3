"""The small parts: what was asked, where a delivery stands, the built-in hooks, the public names."""

import pytest
from structlog.testing import capture_logs

import hookbus_subscribers
from hookbus_schemas import (
    Decision,
    FailurePolicy,
    InvalidMessage,
    ToolHookContext,
    ToolHookWithContext,
    decode,
    subjects,
)
from hookbus_subscribers import BUILT_IN, AuditLog
from hookbus_subscribers.asked import answer_body, caller
from hookbus_subscribers.delivery import Delivery, delivery

CALL = ToolHookContext(
    session_id="s",
    channel_id="ch",
    sender_id="me",
    tool_name="t",
    arguments_json='{"secret":"hunter2"}',
    call_id="c",
    executor_id="e",
    sent_at_ms=0,
    deadline_ms=0,
)
ABOUT = {"tool": "t", "session": "s", "channel": "ch", "sender": "me", "call_id": "c"}


@pytest.mark.parametrize("reply", ["reply.e=2E1.h.", "reply.e=2E1.h", "", "reply.e=2E1.h.a.b", "xreply.e=2E1.h.a"])
def test_a_caller_is_answered_only_where_its_answers_belong(reply: str) -> None:
    """One token after the prefix that follows from the subject of the request."""
    asking = caller(subjects.before("h", "e.1"))
    assert asking.executor_id == "e.1"
    assert asking.may_be_answered_on("reply.e=2E1.h.a")
    assert not asking.may_be_answered_on(reply)


@pytest.mark.parametrize("subject", ["tool.before.h", "tool.after.h.e", "tool.before.h.e.x", "tool.before.h.e=zz"])
def test_a_subject_that_asks_nothing_has_no_caller(subject: str) -> None:
    """Such a request is dropped."""
    with pytest.raises(InvalidMessage):
        caller(subject)


@pytest.mark.parametrize(
    "decision",
    [Decision.allow(), Decision.allow(warning="w"), Decision.deny("r", labels={"a": "b"}), Decision.error("e")],
)
def test_an_answer_holds_the_decision_and_the_digest(decision: Decision) -> None:
    """The shortcut for plain allows writes what the codec would."""
    answer = decode(Decision, answer_body(decision, "ab" * 32))
    assert answer == decision.model_copy(update={"request_digest": "ab" * 32})


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("$JS.ACK.S.c.2.30.4.1700000000000000000.5", id="short"),
        pytest.param("$JS.ACK.domain.hash.S.c.2.30.4.1700000000000000000.5", id="with a domain"),
        pytest.param("$JS.ACK._.hash.S.c.2.30.4.1700000000000000000.5.random", id="with a random end"),
    ],
)
def test_an_ack_subject_says_where_a_delivery_stands(subject: str) -> None:
    """Of both versions that servers write."""
    assert delivery(subject) == Delivery(attempts=2, sequence=30, consumer_sequence=4, stored_at=1.7e9, pending=5)


@pytest.mark.parametrize("subject", ["", "reply.e.h.t", "$JS.ACK.S.c.a.b.c.d.e", "$JS.ACK.S.c.1.2"])
def test_another_subject_is_none(subject: str) -> None:
    """It is refused, not guessed at."""
    with pytest.raises(InvalidMessage):
        delivery(subject)


async def test_the_audit_log_writes_lengths_and_never_contents() -> None:
    """Before and after; a failed call is a warning."""
    audit = AuditLog()
    with capture_logs() as logs:
        assert await audit.before_execute(CALL) is True
        await audit.after_execute(CALL, "result", 1.5, failed=False)
        await audit.after_execute(CALL, "oh", 0.25, failed=True)
    after = {"log_level": "info", "event": "tool_call.completed", "duration_ms": 1500.0, "result_length": 6}
    assert logs == [
        ABOUT | {"log_level": "info", "event": "tool_call.requested", "arguments_length": 20, "dry_run": False},
        ABOUT | after,
        ABOUT | {"log_level": "warning", "event": "tool_call.failed", "duration_ms": 250.0, "result_length": 2},
    ]


def test_the_built_in_hooks_are_named_as_they_are_registered() -> None:
    """They fail closed, and are reported in the order of the reference system."""
    for name, built_in in BUILT_IN.items():
        made = built_in.make(None)
        assert made.name == name
        assert isinstance(made, ToolHookWithContext)
        assert built_in.registration.failure_policy is FailurePolicy.DENY
    assert [built_in.registration.order for built_in in BUILT_IN.values()] == [0, 10, 20, 30]


def test_all_public_names_exist_and_are_in_order() -> None:
    """Nothing is public by accident."""
    names = hookbus_subscribers.__all__
    assert sorted(set(names), key=lambda name: (not name.isupper(), name[0].islower(), name)) == names
    assert all(hasattr(hookbus_subscribers, name) for name in names)
