"""One hook on a real bus: what it answers, and what it does not."""

import asyncio
from contextlib import AsyncExitStack
from threading import current_thread, main_thread

import pytest
from structlog.testing import capture_logs

from hookbus_schemas import (
    Answer,
    ConfigError,
    Decision,
    PermissionRefused,
    ToolHook,
    ToolHookContext,
    Verdict,
    decode,
    digest,
    encode,
)
from hookbus_subscribers import HookServer, Served
from hooking import Asked, Bus, Gate
from support import NatsServer, until


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
