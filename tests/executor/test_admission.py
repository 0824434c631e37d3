"""Admission over a real bus: what each kind of hook does to a call."""

import asyncio

import pytest
from nats.aio.msg import Msg

from executor.conftest import Answer, World
from hookbus_broker import ensure_streams
from hookbus_executor import Executor, Session
from hookbus_schemas import Decision, Outcome, ToolDeniedEvent, ToolHookContext, Verdict, digest, encode, subjects
from support import until

ALLOW, DENY = Decision.allow(), Decision.deny("not on a Tuesday", reason_code="tuesday")


async def denial(executor: Executor) -> str:
    """Return what the model reads of a call that is denied."""
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
    assert result.outcome is Outcome.DENIED
    return result.text


async def test_a_call_that_every_hook_allows_runs(world: World) -> None:
    """Each decision is in the result, in the order of registration."""
    await world.hook("second", ALLOW, order=2)
    await world.hook("first", ALLOW, order=1)
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
    assert (result.text, result.outcome) == ("ran", Outcome.COMPLETED)
    assert [(one.hook, one.decision) for one in result.decisions] == [
        ("first", Verdict.ALLOW),
        ("second", Verdict.ALLOW),
    ]


async def test_a_deny_stops_the_call_and_says_who_and_why(world: World) -> None:
    """The model reads the hook's name and its reason."""
    await world.hook("lenient", ALLOW)
    await world.hook("strict", DENY)
    executor = await world.started()
    assert await denial(executor) == "Tool execution denied by hook: strict: not on a Tuesday"


async def test_a_deny_without_a_reason_names_the_hook_alone(world: World) -> None:
    """The text of the reference system."""
    await world.hook("strict", Decision.deny(""))
    assert await denial(await world.started()) == "Tool execution denied by hook: strict"


async def test_arguments_that_would_pass_are_shown_and_not_applied(world: World) -> None:
    """A hook may suggest; the model decides."""
    await world.hook("strict", Decision.deny("too long", suggested_arguments={"text": "short"}))
    assert await denial(await world.started()) == (
        'Tool execution denied by hook: strict: too long\nArguments that would pass: {"text": "short"}'
    )


async def test_an_allow_may_carry_a_word_to_the_model(world: World) -> None:
    """It stands behind the result."""
    await world.hook("mild", Decision.allow(warning="costs money"))
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
    assert result.text == "ran\n[warning of hook mild: costs money]"


UNUSABLE = [
    pytest.param(b"garbage", "error: its answer is no decision", id="garbage"),
    pytest.param(b"", "error: its answer is no decision", id="empty"),
    pytest.param(b"\x81\xa8decision\xa5maybe", "error: its answer is no decision", id="unknown decision"),
    pytest.param(encode(ALLOW), "error: its answer is for another request", id="no digest"),
    pytest.param(
        encode(Decision.allow(request_digest="0" * 64)), "error: its answer is for another request", id="other digest"
    ),
    pytest.param(Decision.error("KeyError"), "error: KeyError", id="error answer"),
    pytest.param(None, "timeout: it did not answer within 0.2 s", id="silence"),
]


@pytest.mark.parametrize(("answer", "says"), UNUSABLE)
async def test_an_answer_that_is_no_decision_is_never_an_allow(world: World, answer: Answer, says: str) -> None:
    """Fail closed: it counts as a deny that says what happened."""
    await world.hook("odd", answer, timeout_ms=200)
    assert (await denial(await world.started())).startswith(f"Tool execution denied by hook: odd: {says}")


@pytest.mark.parametrize(("answer", "says"), UNUSABLE)
async def test_a_hook_that_fails_open_lets_pass_and_leaves_three_marks(world: World, answer: Answer, says: str) -> None:
    """An operator chose so for this hook: the decision, the event and a counter say it."""
    await world.hook("odd", answer, timeout_ms=200, failure_policy="allow")
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
        await executor.flush()
    assert result.outcome is Outcome.COMPLETED
    assert result.decisions[0].failed_open
    assert (await world.events())[0].unguarded_by == ("odd",)
    assert executor.counters["odd"].failed_open == 1
    assert f"{result.decisions[0].decision}: {result.decisions[0].reason}".startswith(says)


async def test_a_hook_without_a_replica_is_unavailable_at_once(world: World) -> None:
    """Nobody waits for the deadline: NATS says that there are no responders."""
    await world.register("absent", timeout_ms=5000)
    executor = await world.started()
    result = await executor.execute("echo", {})
    assert result.text == "Tool execution denied by hook: absent: unavailable: no replica of it is running"
    assert result.decisions[0].elapsed_ms < 4000


async def test_the_first_deny_is_not_kept_waiting_by_a_hook_that_hangs(world: World) -> None:
    """One hung hook does not delay another's no."""
    await world.hook("hung", None, timeout_ms=5000)
    await world.hook("strict", DENY)
    executor = await world.started()
    result = await executor.execute("echo", {})
    assert result.denied_by == "strict"
    assert [one.hook for one in result.decisions] == ["strict"]


async def test_a_shadow_hook_never_blocks_and_is_recorded(world: World) -> None:
    """Its deny, which comes after the tool has run, is in the event."""
    release = asyncio.Event()

    async def late_deny(_: Msg, __: ToolHookContext) -> Answer:
        await release.wait()
        return DENY

    await world.serve("careful", late_deny)
    await world.register("careful", enforcement="shadow")
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
        assert result.text == "ran"
        release.set()
        await executor.flush()
    (event,) = await world.events()
    assert [(one.hook, one.decision, one.enforcement) for one in event.decisions] == [("careful", "deny", "shadow")]


async def test_three_timeouts_in_a_row_open_the_breaker(world: World) -> None:
    """The fourth call does not wait."""
    await world.hook("hung", None, timeout_ms=50)
    executor = await world.started()
    said = [await denial(executor) for _ in range(4)]
    assert ["timeout" in text for text in said] == [True, True, True, False]
    assert "unavailable: it timed out several times in a row" in said[3]


async def test_a_decision_that_comes_too_late_changes_nothing_and_is_counted(world: World) -> None:
    """The call was denied by the timeout; the late allow is not lost."""
    release = asyncio.Event()

    async def late(_: Msg, __: ToolHookContext) -> Answer:
        await release.wait()
        return ALLOW

    await world.serve("slow", late)
    await world.register("slow", timeout_ms=50)
    executor = await world.started()
    assert "timeout" in await denial(executor)
    release.set()
    await until(lambda: executor.counters["slow"].late == 1)
    assert executor.counters["slow"].allowed == 0


async def test_a_request_goes_out_once_more_when_a_replica_hangs(world: World) -> None:
    """The same request, with the same call id, finds another replica in the end."""
    seen: list[tuple[str, str]] = []

    async def only_the_second(message: Msg, context: ToolHookContext) -> Answer:
        seen.append((message.reply, context.call_id))
        return ALLOW if len(seen) == 2 else None

    await world.serve("hook", only_the_second)
    await world.register("hook")
    executor = await world.started()
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "ran"})
    assert result.text == "ran"
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_a_busy_second_replica_does_not_end_what_the_first_is_at(world: World) -> None:
    """Of a request that went out twice, the error of a replica that never began counts for nothing."""
    requests = 0

    async def busy_then_allow(message: Msg, _: ToolHookContext) -> Answer:
        nonlocal requests
        requests += 1
        if requests == 1:
            return None
        busy = Decision.error("no room", reason_code="busy", request_digest=digest(message.data))
        await world.client.publish(message.reply, encode(busy))
        return ALLOW

    await world.serve("hook", busy_then_allow)
    await world.register("hook")
    executor = await world.started()
    async with asyncio.timeout(5):
        assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
    assert requests == 2


async def test_a_required_hook_that_is_not_registered_denies_and_says_what_to_do(world: World) -> None:
    """An executor on a bus that nobody has set up says no."""
    executor = await world.started(required_hooks=("AuditLog",))
    assert await denial(executor) == (
        "Tool execution denied by hook: AuditLog: it is required and not registered; "
        "`hookbus up` serves the built-in ones, `hookbus hooks add AuditLog` registers it"
    )
    await world.hook("AuditLog", ALLOW)
    await until(lambda: executor.hooks)
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param(
            {"enforcement": "shadow"},
            "only a shadow, which never blocks; `hookbus hooks enforce guard` lets it",
            id="shadow",
        ),
        pytest.param(
            {"events": ["after"]},
            "only told after calls; register it anew with `before` among its events",
            id="only after",
        ),
        pytest.param(
            {"tools": ["db_*", "sql"]},
            "not asked about this tool; register it anew with tools that match (now db_*, sql)",
            id="other tools",
        ),
    ],
)
async def test_a_required_hook_that_is_registered_and_does_not_guard_denies(
    world: World, fields: dict[str, object], says: str
) -> None:
    """A name in the bucket is no guard: whoever edits the registration cannot quietly take the requirement away."""
    await world.hook("guard", ALLOW, **fields)
    executor = await world.started(required_hooks=("guard",))
    assert await denial(executor) == f"Tool execution denied by hook: guard: it is required and {says}"
    await world.register("guard")
    await until(lambda: executor.hooks[0].revision == 2)
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"


async def test_a_registration_that_cannot_be_read_denies(world: World) -> None:
    """A hook that nobody can tell how to ask still guards."""
    stream = world.operator.jetstream()
    bucket = await stream.key_value("HOOKS")
    await bucket.put("broken", b'{"timeout_ms": 0}')
    text = await denial(await world.started())
    assert text.startswith("Tool execution denied by hook: broken: error: registration cannot be read: timeout_ms")


async def test_a_hook_with_side_effects_is_not_asked_on_a_dry_run(world: World) -> None:
    """Nothing is counted or spent, and the admission says who was left out."""
    await world.hook("counter", DENY, side_effects="some")
    await world.hook("plain", ALLOW)
    executor = await world.started()
    async with asyncio.timeout(5):
        admission = await executor.admit("any_tool", {}, dry_run=True)
        counted = await executor.admit("any_tool", {})
    assert (admission.allowed, admission.skipped) == (True, ("counter",))
    assert admission.context.dry_run
    assert (counted.allowed, counted.denied_by) == (False, "counter")


async def test_hooks_are_asked_about_their_tools_only(world: World) -> None:
    """The registration's globs choose."""
    await world.hook("databases", DENY, tools=["db_*"])
    executor = await world.started()
    assert not (await executor.admit("db_drop", {})).allowed
    assert (await executor.admit("shell", {})).allowed


async def test_the_context_holds_who_what_and_where(world: World) -> None:
    """What the executor knows of a call reaches the hook."""
    contexts: list[ToolHookContext] = []

    async def keep(_: Msg, context: ToolHookContext) -> Answer:
        contexts.append(context)
        return ALLOW

    await world.serve("hook", keep)
    await world.register("hook", timeout_ms=700)
    executor = await world.started("agent: 1")
    session = Session("s", channel_id="c", sender_id="p", correlation_id="k", agent_id="a")
    async with asyncio.timeout(5):
        await executor.admit("cat", {"path": "/tmp/../tmp/x", "n": 1}, session=session)  # noqa: S108
    (context,) = contexts
    assert (context.session_id, context.channel_id, context.sender_id) == ("s", "c", "p")
    assert (context.correlation_id, context.agent_id, context.executor_id) == ("k", "a", "agent: 1")
    assert (context.tool_name, context.arguments_json) == ("cat", '{"path":"/tmp/../tmp/x","n":1}')
    assert context.deadline_ms - context.sent_at_ms == 700
    assert [(one.argument, one.given, one.real) for one in context.resolved_paths] == [
        ("path", "/tmp/../tmp/x", "/tmp/x")  # noqa: S108
    ]


async def test_a_call_too_large_for_the_bus_is_denied_and_not_failed_open(world: World) -> None:
    """A hook that fails open is no way round for whoever writes long arguments."""
    await world.hook("open", ALLOW, failure_policy="allow")
    executor = await world.started()
    size = world.operator.max_payload
    async with asyncio.timeout(5):
        result = await executor.execute("echo", {"text": "x" * size})
        await executor.flush()
    assert result.denied_by == "executor"
    assert "over the server's limit" in result.text
    (event,) = await world.events()
    assert isinstance(event, ToolDeniedEvent)


async def test_any_text_is_a_name(world: World) -> None:
    """A hook name is any text; so is an executor's."""
    await world.hook("pluginä:x y", ALLOW)
    executor = await world.started("e.*>ü")
    assert (await executor.execute("echo", {"text": "ran"})).text == "ran"
    assert subjects.token("e.*>ü") == "e=2E=2A=3E=C3=BC"


async def test_a_bucket_made_anew_is_followed_although_its_revisions_begin_again(world: World) -> None:
    """An older revision is a replica that lags, once; the second reading is the truth."""
    for _ in range(5):
        await world.register("rule", enforcement="shadow")
    executor = await world.started()
    assert [hook.revision for hook in executor.hooks] == [5]
    await world.operator.jetstream().delete_stream("KV_HOOKS")
    await ensure_streams(world.operator, world.bus)
    await world.register("rule", description="anew")
    await until(lambda: [hook.revision for hook in executor.hooks] == [1])
    assert executor.hooks[0].registration.description == "anew"
