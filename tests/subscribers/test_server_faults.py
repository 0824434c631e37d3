"""Requests and hooks that misbehave: what is answered, and what is not."""

import asyncio
import time
from collections.abc import Callable

import msgpack
import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict, WrappedLogger

from hookbus_schemas import (
    Answer,
    Decision,
    ToolHookContext,
    Verdict,
    decode,
    digest,
    encode,
    subjects,
)
from hookbus_subscribers import HookServer, Served
from hooking import Asked, Bus, Gate
from support import until


def _unchecked(**fields: str) -> Decision:
    """Return a decision made around the model's checks."""
    make: Callable[..., Decision] = Decision.model_construct
    return make(**fields)


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
    assert str(entry.pop("exception")).endswith("RuntimeError: password hunter2\n")
    about = {"event": "hook.failed", "log_level": "error", "hook": "h", "tool": "t", "executor": "e1", "call_id": "c9"}
    assert entry == about


async def test_the_answer_leaves_before_the_traceback_is_drawn(bus: Bus) -> None:
    """Who asked does not wait for a log line that may take longer than the hook."""

    async def decide(context: ToolHookContext) -> Answer:
        raise RuntimeError

    asker, connection = await bus.asker("h"), await bus.connection()
    server = HookServer(Asked(decide), connection)
    when_logged: list[tuple[int, int]] = []

    def look(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
        if entry["event"] == "hook.failed":
            when_logged.append((server.served.errors, connection.pending_data_size))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[look])
    try:
        async with server:
            await asker.ask()
    finally:
        structlog.configure(**before)
    assert when_logged == [(1, 0)]


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
        pytest.param(Decision.allow(labels={"x": "y" * 2_000_000}), id="too large"),
        pytest.param(Decision.allow(suggested_arguments={"x": 2**70}), id="a number that msgpack has not"),
        pytest.param(_unchecked(decision="maybe"), id="no verdict"),
        pytest.param(_unchecked(), id="empty"),
        pytest.param(Decision.allow(suggested_arguments={"x": "\ud800"}), id="no text"),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_replaced_by_an_error(bus: Bus, answer: Decision) -> None:
    """Silence would cost the caller its five seconds."""
    given, served = await _served(bus, answer)
    assert (given.decision, given.reason_code) == (Verdict.ERROR, "bad_answer")
    assert served == Served(answered=1, errors=1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Decision.deny("no", labels={"x": "y" * 2_000_000}), id="too large"),
        pytest.param(Decision.deny("no", suggested_arguments={"x": 2**70}), id="a number that msgpack has not"),
        pytest.param(Decision.deny("no", suggested_arguments={"x": "\ud800"}), id="no text"),
    ],
)
async def test_a_deny_that_cannot_be_sent_whole_is_sent_bare(bus: Bus, answer: Decision) -> None:
    """As an error it would let the call pass where the hook fails open."""
    given, served = await _served(bus, answer)
    assert (given.decision, given.reason) == (Verdict.DENY, "no")
    assert served == Served(answered=1, denied=1)


async def _served(bus: Bus, answer: Decision) -> tuple[Decision, Served]:
    async def decide(context: ToolHookContext) -> Answer:
        return answer

    asker = await bus.asker("h")
    async with HookServer(Asked(decide), await bus.connection()) as server:
        given = await asker.ask()
    return given, server.served


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


async def test_a_function_that_is_too_slow_is_cancelled_and_answered_for(bus: Bus) -> None:
    """A second after the deadline nothing that it says counts any more."""
    asker, gate = await bus.asker("h"), Gate()
    async with HookServer(Asked(gate), await bus.connection()) as server:
        answer = await asker.ask(deadline_ms=round(time.time() * 1000) - 500)
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
        assert (await asker.ask(deadline_ms=round(time.time() * 1000) - 500)).reason_code == "hook_timeout"
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
