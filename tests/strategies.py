"""Messages of the contract as hypothesis draws them: any that can be made, wide values first."""

from hypothesis import strategies as st

from hookbus_schemas import (
    ChainLink,
    Decision,
    Enforcement,
    FailurePolicy,
    HookDecision,
    HookRegistration,
    Outcome,
    ResolvedPath,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    Verdict,
)

texts = st.text(max_size=40)
names = st.text(min_size=1, max_size=60)
int64s = st.integers(-(2**63), 2**63 - 1)
durations = st.floats(allow_nan=False, allow_infinity=False)
arguments = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | int64s | durations | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=8,
    ),
    max_size=4,
)
paths = st.builds(ResolvedPath, argument=texts, given=texts, real=st.none() | texts)
contexts = st.builds(
    ToolHookContext,
    session_id=texts,
    channel_id=texts,
    sender_id=texts,
    correlation_id=texts,
    tool_name=texts,
    arguments_json=texts,
    is_streaming=st.booleans(),
    call_id=names,
    executor_id=names,
    agent_id=texts,
    parent_call_id=texts,
    depth=st.integers(0, 2**63 - 1),
    sent_at_ms=int64s,
    deadline_ms=int64s,
    dry_run=st.booleans(),
    working_directory=texts,
    home_directory=texts,
    path_arguments=st.none() | st.lists(texts, max_size=2).map(tuple),
    command_arguments=st.none() | st.lists(texts, max_size=2).map(tuple),
    read_only=st.none() | st.booleans(),
    resolved_paths=st.lists(paths, max_size=3).map(tuple),
)

_said = {
    "reason": texts,
    "reason_code": texts,
    "warning": texts,
    "suggested_arguments": st.none() | arguments,
    "labels": st.dictionaries(texts, texts, max_size=4),
    "policy_revision": texts,
}
decisions = st.builds(
    Decision,
    decision=st.sampled_from([Verdict.ALLOW, Verdict.DENY, Verdict.ERROR]),
    request_digest=texts,
    **_said,
)
hook_decisions = st.builds(
    HookDecision,
    hook=names,
    decision=st.sampled_from(Verdict),
    enforcement=st.sampled_from(Enforcement),
    failed_open=st.booleans(),
    revision=int64s,
    elapsed_ms=durations,
    **_said,
)

_recorded = {
    "event_id": names,
    "at_ms": int64s,
    "context": contexts,
    "admission_ms": durations,
    "decisions": st.lists(hook_decisions, max_size=3).map(tuple),
    "unguarded_by": st.lists(texts, max_size=3).map(tuple),
    "link": st.none() | st.builds(ChainLink, chain=names, sequence=st.integers(1, 2**63 - 1), previous=texts),
}
after_events = st.builds(
    ToolAfterEvent,
    outcome=st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.DENIED]),
    duration_ms=durations,
    result=texts,
    told=st.lists(texts, max_size=3).map(tuple),
    **_recorded,
)
denied_events = st.builds(ToolDeniedEvent, denied_by=texts, reason=texts, reason_code=texts, **_recorded)
registrations = st.builds(
    HookRegistration,
    order=int64s,
    tools=st.lists(names.filter(str.strip), min_size=1, max_size=3).map(tuple),
    events=st.lists(st.sampled_from(["before", "after"]), min_size=1, max_size=2).map(tuple),
    failure_policy=st.sampled_from(FailurePolicy),
    timeout_ms=st.integers(1, 5000),
    enforcement=st.sampled_from(Enforcement),
    side_effects=st.sampled_from(["none", "some"]),
    owner=texts,
    description=texts,
)
