"""One hook on a real bus: what it answers, and what it does not."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from threading import Event as ThreadEvent
from threading import current_thread, main_thread

import msgpack
import pytest
from structlog.testing import capture_logs

from hookbus_schemas import (
    Answer,
    ConfigError,
    Decision,
    PermissionRefused,
    ToolHook,
    ToolHookContext,
    ToolHookWithContext,
    Verdict,
    decode,
    digest,
    encode,
    subjects,
)
from hookbus_subscribers import HookServer, Served
from hooking import Bus
from support import NatsServer, until

Decider = Callable[[ToolHookContext], Awaitable[Answer]]


def _unchecked(**fields: str) -> Decision:
    """Return a decision made around the model's checks."""
    make: Callable[..., Decision] = Decision.model_construct
    return make(**fields)


class Asked(ToolHookWithContext):
    """A hook that does what a test says, and keeps what it was asked."""

    def __init__(self, decide: Decider | None = None, name: str = "h") -> None:
        self.name = name
        self.calls: list[ToolHookContext] = []
        self._decide = decide

    async def before_execute(self, context: ToolHookContext) -> Answer:
        """Remember the call and decide."""
        self.calls.append(context)
        return await self._decide(context) if self._decide else True


class Gate:
    """A decision that waits until the test lets it go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, context: ToolHookContext) -> Answer:
        """Wait, unless the tool is a quick one."""
        if context.tool_name != "quick":
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return True


async def test_a_hook_decides_and_its_answer_names_the_request(bus: Bus) -> None:
    """The digest is of the very bytes that were asked."""
    asker = await bus.asker("h")

    async def decide(context: ToolHookContext) -> Answer:
        return Decision.deny("not today", reason_code="closed", labels={"team": "a"})

    async with HookServer(Asked(decide), await bus.connection()) as server:
        context = asker.context()
        answer = await asker.ask(context)
    expected = Decision.deny("not today", reason_code="closed", labels={"team": "a"})
    assert answer == expected.model_copy(update={"request_digest": digest(encode(context))})
    assert server.served == Served(answered=1, denied=1)


@pytest.mark.parametrize("answer", [True, Decision.allow(), Decision.allow(warning="careful")])
async def test_an_allow_carries_the_digest_too(bus: Bus, answer: Answer) -> None:
    """Also the plain one, which is not encoded anew each time."""
    asker = await bus.asker("h")

    async def decide(context: ToolHookContext) -> Answer:
        return answer

    async with HookServer(Asked(decide), await bus.connection()):
        context = asker.context()
        expected = answer if isinstance(answer, Decision) else Decision.allow()
        assert await asker.ask(context) == expected.model_copy(update={"request_digest": digest(encode(context))})


async def test_a_hook_sees_the_whole_context(bus: Bus) -> None:
    """A dry run is passed on."""
    asker, asked = await bus.asker("h"), Asked()
    async with HookServer(asked, await bus.connection()):
        context = asker.context(dry_run=True, session_id="s", arguments_json='{"a":1}')
        await asker.ask(context)
    assert asked.calls == [context]


async def test_names_of_any_characters_are_served(bus: Bus) -> None:
    """Names are one token on the wire."""
    asker = await bus.asker("plugin:ü.*>", "agent 1")
    async with HookServer(Asked(name="plugin:ü.*>"), await bus.connection()):
        assert (await asker.ask()).decision is Verdict.ALLOW


async def test_a_plain_function_runs_in_a_thread(bus: Bus) -> None:
    """It cannot hold the loop."""
    threads = []

    class Plain(ToolHook):
        name = "h"

        def before_execute(self, tool_name: str, arguments: str) -> bool:
            threads.append(current_thread())
            return tool_name == "t" and arguments == "{}"

    asker = await bus.asker("h")
    async with HookServer(Plain(), await bus.connection()):
        assert (await asker.ask()).decision is Verdict.ALLOW
    assert threads != [main_thread()]


async def test_two_hundred_requests_at_once_are_all_answered(bus: Bus) -> None:
    """Each with its own digest; more than run at once wait."""
    asker = await bus.asker("h")
    gate = Gate()
    async with HookServer(Asked(gate), await bus.connection(), concurrency=16) as server:
        contexts = [asker.context() for _ in range(200)]
        answers = [await asker.send(encode(context)) for context in contexts]
        await until(lambda: len(server._requests) == 200)
        assert len(server._running) == 16
        gate.open.set()
        async with asyncio.timeout(5):
            decisions = [decode(Decision, await answer) for answer in answers]
    assert [decision.request_digest for decision in decisions] == [digest(encode(context)) for context in contexts]
    assert server.served == Served(answered=200)


async def test_a_slow_call_delays_no_other(bus: Bus) -> None:
    """Unlike the callbacks of nats-py, which run one after the other."""
    asker, gate = await bus.asker("h"), Gate()
    async with HookServer(Asked(gate), await bus.connection()):
        slow = await asker.send(encode(asker.context()))
        assert (await asker.ask(tool_name="quick")).decision is Verdict.ALLOW
        assert not slow.done()
        gate.open.set()
        async with asyncio.timeout(5):
            assert decode(Decision, await slow).decision is Verdict.ALLOW


async def test_a_request_beyond_those_that_may_wait_is_told_so_at_once(bus: Bus) -> None:
    """An executor that knows applies the failure policy now, not after five seconds."""
    asker, gate = await bus.asker("h"), Gate()
    async with HookServer(Asked(gate), await bus.connection(), concurrency=2, waiting=1) as server:
        taken = [await asker.send(encode(asker.context())) for _ in range(3)]
        context = asker.context()
        answer = await asker.ask(context)
        assert answer == Decision.error(
            "the hook is busy: run more replicas", reason_code="busy", request_digest=digest(encode(context))
        )
        gate.open.set()
        async with asyncio.timeout(5):
            await asyncio.gather(*taken)
    assert server.served == Served(answered=4, errors=1, busy=1)


async def test_large_requests_do_not_fill_the_memory(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded in bytes too."""
    monkeypatch.setattr("hookbus_subscribers.server.MAX_WAITING_BYTES", 1000)
    asker, gate = await bus.asker("h"), Gate()
    async with HookServer(Asked(gate), await bus.connection(), concurrency=1) as server:
        taken = [await asker.send(encode(asker.context(session_id="x" * 2000))) for _ in range(2)]
        assert (await asker.ask()).reason_code == "busy"
        gate.open.set()
        async with asyncio.timeout(5):
            await asyncio.gather(*taken)
        assert (await asker.ask()).decision is Verdict.ALLOW
    assert server._waiting_bytes == 0


async def test_an_exception_becomes_an_error_without_its_words(bus: Bus) -> None:
    """Its words may hold secrets: they go to the hook's own log, with the traceback."""

    async def decide(context: ToolHookContext) -> Answer:
        raise RuntimeError("password hunter2")

    asker = await bus.asker("h")
    with capture_logs() as logs:
        async with HookServer(Asked(decide), await bus.connection()) as server:
            answer = await asker.ask(call_id="c9")
    assert (answer.decision, answer.reason, answer.reason_code) == (
        Verdict.ERROR,
        "the hook raised RuntimeError",
        "hook_error",
    )
    assert server.served == Served(answered=1, errors=1)
    entry = next(entry for entry in logs if entry["event"] == "hook.failed")
    assert str(entry.pop("exc_info")) == "password hunter2"
    about = {"event": "hook.failed", "log_level": "error", "hook": "h", "tool": "t", "executor": "e1", "call_id": "c9"}
    assert entry == about


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), StopIteration(), RecursionError()])
async def test_whatever_a_hook_raises_the_server_lives_on(bus: Bus, error: BaseException) -> None:
    """A hook that calls ``sys.exit`` or looks at a cancelled future ends nobody but itself."""

    async def decide(context: ToolHookContext) -> Answer:
        if context.tool_name == "bad":
            raise error
        return True

    asker = await bus.asker("h")
    async with HookServer(Asked(decide), await bus.connection()):
        assert (await asker.ask(tool_name="bad")).decision is Verdict.ERROR
        assert (await asker.ask()).decision is Verdict.ALLOW


@pytest.mark.parametrize("answer", [None, "yes", 1, {"decision": "allow"}])
async def test_an_answer_that_is_none_is_an_error(bus: Bus, answer: bool) -> None:
    """What is no decision is never an allow."""

    async def decide(context: ToolHookContext) -> Answer:
        return answer

    asker = await bus.asker("h")
    async with HookServer(Asked(decide), await bus.connection()):
        assert (await asker.ask()).reason == "the hook raised TypeError"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Decision.deny("no", labels={"x": "y" * 2_000_000}), id="too large"),
        pytest.param(Decision.deny("no", suggested_arguments={"x": 2**70}), id="a number that msgpack has not"),
        pytest.param(_unchecked(decision="maybe"), id="no verdict"),
        pytest.param(_unchecked(), id="empty"),
        pytest.param(Decision.deny("\ud800"), id="no text"),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_replaced_by_an_error(bus: Bus, answer: Decision) -> None:
    """Silence would cost the caller its five seconds."""

    async def decide(context: ToolHookContext) -> Answer:
        return answer

    asker = await bus.asker("h")
    async with HookServer(Asked(decide), await bus.connection()) as server:
        given = await asker.ask()
        assert (given.decision, given.reason_code) == (Verdict.ERROR, "bad_answer")
    assert server.served == Served(answered=1, errors=1)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1garbage", id="garbage"),
        pytest.param(msgpack.packb([1, 2]), id="no map"),
        pytest.param(msgpack.packb({"v": 2}), id="another version"),
        pytest.param(b"\x91" * 5000, id="deep"),
    ],
)
async def test_a_body_that_cannot_be_read_gets_an_error_at_once(bus: Bus, body: bytes) -> None:
    """With the digest of that body, so that the executor believes it."""
    asker, asked = await bus.asker("h"), Asked()
    async with HookServer(asked, await bus.connection()) as server:
        async with asyncio.timeout(5):
            answer = decode(Decision, await (await asker.send(body)))
        assert (await asker.ask()).decision is Verdict.ALLOW
    assert (answer.decision, answer.reason_code) == (Verdict.ERROR, "invalid_request")
    assert answer.request_digest == digest(body)
    assert server.served == Served(answered=2, errors=1)
    assert len(asked.calls) == 1


async def test_a_body_that_names_another_executor_gets_an_error(bus: Bus) -> None:
    """Permissions vouch for the subject; a body can say anything."""
    asker, asked = await bus.asker("h"), Asked()
    async with HookServer(asked, await bus.connection()):
        answer = await asker.ask(executor_id="e2")
    assert answer.reason == "the request cannot be read: executor_id is 'e2', but 'e1' asks"
    assert asked.calls == []


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param("reply.e2.h.token", id="another executor"),
        pytest.param("reply.e1.other.token", id="another hook"),
        pytest.param("$JS.API.STREAM.DELETE.TOOL_EVENTS", id="the server's API"),
        pytest.param("reply.e1.h", id="too short"),
        pytest.param("reply.e1.h.a.b", id="too long"),
        pytest.param("reply.e1.hx.token", id="a longer name"),
    ],
)
async def test_a_reply_subject_that_is_not_the_callers_gets_nothing(bus: Bus, reply: str) -> None:
    """A hook must not be made to speak into another executor's calls, or to the server."""
    asker, asked = await bus.asker("h"), Asked()
    seen: list[str] = []

    async def see(message: object) -> None:
        seen.append(reply)

    watcher = await bus.client()
    await watcher.subscribe(reply, cb=see)
    await watcher.flush()
    await watcher.flush()
    with capture_logs() as logs:
        async with HookServer(asked, await bus.connection()) as server:
            for _ in range(3):
                await asker.send(encode(asker.context()), reply)
            assert (await asker.ask()).decision is Verdict.ALLOW
    await watcher.flush()
    assert seen == []
    assert len(asked.calls) == 1
    assert server.served == Served(answered=1, refused=3)
    assert [entry["reply"] for entry in logs if entry["event"] == "request.refused"] == [reply]


async def test_a_request_without_reply_subject_is_dropped(bus: Bus) -> None:
    """Nobody waits for it."""
    asker, asked = await bus.asker("h"), Asked()
    async with HookServer(asked, await bus.connection()) as server:
        await asker.client.publish(subjects.before("h", "e1"), encode(asker.context()))
        await asker.ask()
    assert server.served == Served(answered=1, refused=1)


async def test_a_request_long_past_its_deadline_is_dropped(bus: Bus) -> None:
    """Its caller has given up; up to a second counts as a difference between clocks."""
    asker, asked = await bus.asker("h"), Asked()
    now = round(time.time() * 1000)
    async with HookServer(asked, await bus.connection()) as server:
        await asker.send(encode(asker.context(deadline_ms=now - 1500)))
        assert (await asker.ask(deadline_ms=now - 100)).decision is Verdict.ALLOW
    assert server.served == Served(answered=1, late=1, expired=1)
    assert len(asked.calls) == 1


async def test_a_request_that_is_sent_again_joins_the_first(bus: Bus) -> None:
    """The function runs once; a reply subject is answered once."""
    asker, gate = await bus.asker("h"), Gate()
    asked = Asked(gate)
    async with HookServer(asked, await bus.connection()) as server:
        body, reply = encode(asker.context()), asker.new_reply()
        first = await asker.send(body, reply)
        await until(lambda: asked.calls)
        await asker.send(body, reply)
        other = await asker.send(body)
        await until(lambda: server.served.joined == 2)
        gate.open.set()
        async with asyncio.timeout(5):
            assert await first == await other
    await asker.barrier()
    assert len(asked.calls) == 1
    assert sorted(asker.received) == sorted(asker.answers)
    assert server.served == Served(answered=1, joined=2)


async def test_the_same_call_of_two_executors_is_two_calls(bus: Bus) -> None:
    """Who asks is told by the subject; nobody gets at another's answer by sending the same bytes."""
    one, two, gate = await bus.asker("h", "e1"), await bus.asker("h", "e2"), Gate()
    async with HookServer(Asked(gate), await bus.connection()) as server:
        body = encode(one.context())
        await one.send(body)
        await until(lambda: server._requests)
        async with asyncio.timeout(5):
            copied = decode(Decision, await (await two.send(body)))
        assert copied.reason_code == "invalid_request"
        gate.open.set()
    assert server.served == Served(answered=2, errors=1)


async def test_a_function_that_is_too_slow_is_cancelled_and_answered_for(bus: Bus) -> None:
    """A second after the deadline nothing that it says counts any more."""
    asker, gate = await bus.asker("h"), Gate()
    async with HookServer(Asked(gate), await bus.connection()) as server:
        answer = await asker.ask(deadline_ms=round(time.time() * 1000) - 800)
        assert (answer.decision, answer.reason_code) == (Verdict.ERROR, "hook_timeout")
        await until(lambda: gate.cancelled and not server._running)
    assert server.served == Served(answered=1, errors=1, late=1)


async def test_a_function_that_does_not_let_itself_be_cancelled_is_answered_for_too(bus: Bus) -> None:
    """It keeps its place until it ends, and nobody waits for it."""
    end = asyncio.Event()

    async def stubborn(context: ToolHookContext) -> Answer:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return True

    asker = await bus.asker("h")
    async with HookServer(Asked(stubborn), await bus.connection()) as server:
        assert (await asker.ask(deadline_ms=round(time.time() * 1000) - 800)).reason_code == "hook_timeout"
        assert len(server._running) == 1
        end.set()
    await asker.barrier()
    assert server.served == Served(answered=1, errors=1, late=1)
    assert len(asker.received) == 1


async def test_a_deadline_far_away_is_no_licence_to_run_for_ever(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits longer than the contract's five seconds, whatever its body says."""
    monkeypatch.setattr("hookbus_subscribers.server.MAX_TIMEOUT_MS", 0)
    monkeypatch.setattr("hookbus_subscribers.server.GRACE", 0.01)
    asker = await bus.asker("h")
    async with HookServer(Asked(Gate()), await bus.connection()):
        assert (await asker.ask(deadline_ms=round(time.time() * 1000) + 10**9)).reason_code == "hook_timeout"


async def test_replicas_share_the_requests(bus: Bus) -> None:
    """Each request goes to one of them."""
    asker, one, two = await bus.asker("h"), Asked(), Asked()
    async with HookServer(one, await bus.connection()), HookServer(two, await bus.connection()):
        for _ in range(40):
            await asker.ask()
    assert len(one.calls) + len(two.calls) == 40
    assert one.calls
    assert two.calls


async def test_a_served_hook_outlives_the_server_it_is_connected_to(own_server: NatsServer) -> None:
    """An answer to a bus that is gone is counted and logged; afterwards the hook is asked as before."""
    async with AsyncExitStack() as stack:
        bus = Bus(own_server.url, stack)
        asker, gate, connection = await bus.asker("h"), Gate(), await bus.connection()
        asked = Asked(gate)
        server = await stack.enter_async_context(HookServer(asked, connection))
        await asker.send(encode(asker.context()))
        await until(lambda: asked.calls)
        with capture_logs() as logs:
            own_server.kill()
            await connection.wait_disconnected()
            gate.open.set()
            await until(lambda: server.served.lost)
        own_server.start()
        await connection.wait_connected()
        again = await bus.asker("h", "e2")
        assert (await again.ask()).decision is Verdict.ALLOW
        assert server.served == Served(answered=1, lost=1)
    assert {"event": "hook.bus_lost", "log_level": "warning", "hook": "h", "in_progress": 1} in logs
    assert [entry["executor"] for entry in logs if entry["event"] == "answer.lost"] == ["e1"]


async def test_an_identity_that_may_not_serve_the_hook_is_told_so() -> None:
    """A hook that nobody can ask must not look as if it were up."""
    config = 'authorization { users: [ { user: "u", password: "p", permissions: { subscribe: ["_INBOX.>"] } } ] }\n'
    with NatsServer(config, jetstream=False, user="u:p") as server:
        async with AsyncExitStack() as stack:
            bus = Bus(server.url, stack)
            connection = await bus.connection()
            with pytest.raises(PermissionRefused, match=r"tool\.before\.h"):
                await HookServer(Asked(), connection).start()


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"waiting": -1}, {"drain_timeout": -1}])
async def test_numbers_that_cannot_mean_anything_are_refused(bus: Bus, options: dict[str, int]) -> None:
    """At once, not with the first request."""
    with pytest.raises(ConfigError, match="concurrency"):
        HookServer(Asked(), await bus.connection(), **options)


async def test_a_hook_without_a_name_is_refused(bus: Bus) -> None:
    """Nobody could register it."""

    class Nameless(ToolHook):
        pass

    with pytest.raises(ConfigError, match="name"):
        HookServer(Nameless(), await bus.connection())


async def test_draining_answers_what_was_taken_and_takes_nothing_new(bus: Bus) -> None:
    """The other replicas get what comes after."""
    asker, gate = await bus.asker("h"), Gate()
    asked = Asked(gate)
    server = HookServer(asked, await bus.connection(), concurrency=2)
    await server.start()
    taken = [await asker.send(encode(asker.context())) for _ in range(5)]
    await until(lambda: len(server._requests) == 5)
    drain = asyncio.create_task(server.drain())
    await until(lambda: server._subscription._closed)
    await asker.barrier()
    with pytest.raises(LookupError, match="503"):
        await asker.ask()
    assert not drain.done()
    gate.open.set()
    async with asyncio.timeout(5):
        await drain
        assert {decode(Decision, await answer).decision for answer in taken} == {Verdict.ALLOW}
    assert len(asked.calls) == 5


async def test_draining_does_not_wait_for_a_hook_that_hangs(bus: Bus) -> None:
    """What runs and what waits gets an error; the function is cancelled."""
    asker, gate = await bus.asker("h"), Gate()
    server = HookServer(Asked(gate), await bus.connection(), concurrency=1, drain_timeout=0.05)
    await server.start()
    taken = [await asker.send(encode(asker.context())) for _ in range(3)]
    await until(lambda: len(server._requests) == 3)
    async with asyncio.timeout(5):
        await server.drain()
        answers = [decode(Decision, await answer) for answer in taken]
    assert [answer.reason_code for answer in answers] == ["draining"] * 3
    assert gate.cancelled == 1
    assert not server._running


async def test_draining_does_not_wait_for_a_thread_that_hangs(bus: Bus) -> None:
    """A plain function cannot be cancelled; its thread is left to itself."""
    end, began = ThreadEvent(), ThreadEvent()

    class Hung(ToolHook):
        name = "h"

        def before_execute(self, tool_name: str, arguments: str) -> bool:
            began.set()
            return end.wait(30)

    asker = await bus.asker("h")
    server = HookServer(Hung(), await bus.connection(), drain_timeout=0.05)
    await server.start()
    taken = await asker.send(encode(asker.context()))
    await until(began.is_set)
    async with asyncio.timeout(5):
        await server.drain()
        assert decode(Decision, await taken).reason_code == "draining"
    end.set()


async def test_draining_without_a_bus_ends_all_the_same(own_server: NatsServer) -> None:
    """A replica must be able to stop during an outage."""
    async with AsyncExitStack() as stack:
        connection = await Bus(own_server.url, stack).connection()
        server = HookServer(Asked(), connection)
        await server.start()
        own_server.kill()
        await connection.wait_disconnected()
        async with asyncio.timeout(5):
            await server.drain()
