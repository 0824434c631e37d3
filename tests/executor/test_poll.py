"""Which decisions decide a call, as a table."""

import asyncio
from dataclasses import dataclass

import pytest

from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.poll import Poll, judge, stand_in
from hookbus_schemas import Decision, Enforcement, FailurePolicy, HookRegistration, ToolHookContext, Verdict

CONTEXT = ToolHookContext(
    tool_name="t", arguments_json="{}", call_id="c", executor_id="e", sent_at_ms=0, deadline_ms=5000
)


def hook(name: str, *, order: int = 0, fails: str = "deny", enforcement: str = "enforce") -> RegisteredHook:
    """Return a hook of revision 7."""
    registration = HookRegistration(
        order=order, failure_policy=FailurePolicy(fails), enforcement=Enforcement(enforcement)
    )
    return RegisteredHook(name, registration, revision=7)


@dataclass
class Case:
    """One hook's failure policy and enforcement, what came of it, and what the call then is."""

    fails: str
    enforcement: str
    verdict: Verdict
    denied_by: str
    unguarded: bool = False


CASES = [
    pytest.param(Case("deny", "enforce", Verdict.ALLOW, ""), id="allow"),
    pytest.param(Case("deny", "enforce", Verdict.DENY, "h"), id="deny"),
    pytest.param(Case("allow", "enforce", Verdict.DENY, "h"), id="deny of a fail-open hook"),
    pytest.param(Case("deny", "shadow", Verdict.DENY, ""), id="deny of a shadow hook"),
    *(
        pytest.param(Case("deny", "enforce", verdict, "h"), id=f"{verdict}, fail closed")
        for verdict in (Verdict.TIMEOUT, Verdict.UNAVAILABLE, Verdict.ERROR)
    ),
    *(
        pytest.param(Case("allow", "enforce", verdict, "", unguarded=True), id=f"{verdict}, fail open")
        for verdict in (Verdict.TIMEOUT, Verdict.UNAVAILABLE, Verdict.ERROR)
    ),
    *(
        pytest.param(Case("deny", "shadow", verdict, ""), id=f"{verdict}, shadow")
        for verdict in (Verdict.TIMEOUT, Verdict.UNAVAILABLE, Verdict.ERROR)
    ),
]


@pytest.mark.parametrize("case", CASES)
async def test_one_hook_decides_as_its_registration_says(case: Case) -> None:
    """Every kind of decision under every failure policy and enforcement."""
    asked = hook("h", fails=case.fails, enforcement=case.enforcement)
    poll = Poll(CONTEXT, [asked])
    if case.verdict in (Verdict.ALLOW, Verdict.DENY):
        poll.record(asked, judge(asked, Decision(decision=case.verdict, reason="why"), 0.001))
    else:
        poll.record(asked, stand_in(asked, case.verdict, "why", "code", 0.001))
    admission = poll.admission(skipped=(), elapsed=0.002)
    assert poll.decided.done()
    assert admission.denied_by == case.denied_by
    assert admission.allowed is (case.denied_by == "")
    assert admission.unguarded_by == (("h",) if case.unguarded else ())
    assert [decision.decision for decision in admission.decisions] == [case.verdict]
    assert admission.decisions[0].revision == 7


async def test_the_first_deny_decides_and_the_rest_is_not_waited_for() -> None:
    """A deny that comes before others answers ends the wait."""
    first, second, third = hook("a", order=1), hook("b", order=2), hook("c", order=3)
    poll = Poll(CONTEXT, [first, second, third])
    poll.record(third, judge(third, Decision.allow(), 0.0))
    assert not poll.decided.done()
    poll.record(second, judge(second, Decision.deny("no"), 0.0))
    assert poll.decided.done()
    assert poll.complete.done()
    admission = poll.admission(skipped=(), elapsed=0.0)
    assert (admission.denied_by, admission.reason) == ("b", "no")
    assert [decision.hook for decision in admission.decisions] == ["b", "c"]
    poll.record(first, judge(first, Decision.deny("late"), 0.0))
    assert poll.admission(skipped=(), elapsed=0.0) == admission


async def test_a_shadow_hook_delays_nothing_and_is_recorded_all_the_same() -> None:
    """The call is decided without it; `complete` waits for it, also after a deny."""
    shadow, enforced = hook("s", enforcement="shadow"), hook("e")
    for answer, allowed in ((Decision.allow(), True), (Decision.deny("no"), False)):
        poll = Poll(CONTEXT, [shadow, enforced])
        poll.record(enforced, judge(enforced, answer, 0.0))
        assert poll.decided.done()
        assert not poll.complete.done()
        poll.record(shadow, judge(shadow, Decision.deny("would deny"), 0.0))
        assert poll.complete.done()
        assert poll.admission(skipped=(), elapsed=0.0).allowed is allowed
        assert [decision.decision for decision in poll.decisions()] == [Verdict.DENY, answer.decision]


async def test_a_patient_poll_waits_for_all_and_keeps_the_first_deny() -> None:
    """What `hookbus check` shows: every hook's decision, and who would have decided."""
    hooks = [hook("a"), hook("b"), hook("s", enforcement="shadow")]
    poll = Poll(CONTEXT, hooks, patient=True)
    for asked in reversed(hooks):
        assert not poll.decided.done()
        poll.record(asked, judge(asked, Decision.deny(asked.name), 0.0))
    assert poll.decided.done()
    assert poll.admission(skipped=(), elapsed=0.0).denied_by == "b"


async def test_no_hooks_is_no_objection() -> None:
    """Nothing is waited for when nobody is to be asked; who must be there is `required_hooks`' matter."""
    poll = Poll(CONTEXT, [])
    async with asyncio.timeout(1):
        await poll.decided
        await poll.complete
    assert poll.admission(skipped=(), elapsed=0.0).allowed
