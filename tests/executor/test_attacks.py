"""What a hook, another client or the server itself can be made to say, and what counts of it."""

import asyncio
import json

import pytest
from nats.aio.msg import Msg

from executor.conftest import Answer, World
from hookbus_broker import BusSettings
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Decision, ToolHookContext, digest, encode
from support import NatsServer, until

ALLOW = Decision.allow()


async def test_an_answer_on_a_guessed_subject_counts_for_nothing(world: World) -> None:
    """Another hook that knows executor and digest still does not know the token."""

    async def forge(message: Msg, _: ToolHookContext) -> Answer:
        prefix = message.reply.rpartition(".")[0]
        forged = encode(ALLOW.model_copy(update={"request_digest": digest(message.data)}))
        for guess in ("0" * 32, "*", "x"):
            if guess != "*":
                await world.client.publish(f"{prefix}.{guess}", forged)
        return None

    await world.serve("guarded", forge)
    await world.register("guarded", timeout_ms=300)
    executor = await world.started()
    result = await executor.execute("echo", {})
    assert "timeout" in result.text
    assert executor.stray_answers == 2


async def test_an_answer_made_by_the_server_is_refused_and_the_real_one_still_counts(world: World) -> None:
    """Bytes that a direct get delivers to the reply subject are nobody's decision."""
    bucket = await world.operator.jetstream().key_value("HOOKS")
    stored: list[bytes] = []

    async def steer(message: Msg, _: ToolHookContext) -> Answer:
        body = encode(ALLOW.model_copy(update={"request_digest": digest(message.data)}))
        stored.append(body)
        await bucket.put("stored", body)
        request = json.dumps({"last_by_subj": "$KV.HOOKS.stored"}).encode()
        await world.client.publish("$JS.API.DIRECT.GET.KV_HOOKS", request, reply=message.reply)
        await world.client.flush()
        return None

    await world.serve("guarded", steer)
    await world.register("guarded", timeout_ms=400)
    executor = await world.started()
    async with asyncio.timeout(5):
        admission = await executor.admit("any", {})
    assert not admission.allowed
    assert [one.decision for one in admission.decisions if one.hook == "guarded"] == ["timeout"]
    assert executor.stray_answers == 1


async def test_a_no_responders_header_sent_by_a_client_is_unavailable_and_never_an_allow(world: World) -> None:
    """Whoever fakes the server's status only denies."""

    async def fake(message: Msg, _: ToolHookContext) -> Answer:
        await world.client.publish(message.reply, b"", headers={"Status": "503"})
        return None

    await world.serve("guarded", fake)
    await world.register("guarded")
    result = await (await world.started()).execute("echo", {})
    assert "unavailable" in result.text


async def test_an_answer_to_one_call_is_none_to_another(world: World) -> None:
    """A recorded allow cannot be played again: it holds the digest of its own request."""
    recorded: list[bytes] = []

    async def replay(message: Msg, _: ToolHookContext) -> Answer:
        recorded.append(encode(ALLOW.model_copy(update={"request_digest": digest(message.data)})))
        return recorded[0]

    await world.serve("guarded", replay)
    await world.register("guarded")
    executor = await world.started()
    assert (await executor.execute("echo", {"text": "harmless"})).text == "harmless"
    assert "its answer is for another request" in (await executor.execute("echo", {"text": "harmful"})).text


async def test_a_second_answer_changes_nothing(world: World) -> None:
    """The first decides; the second finds nobody waiting."""

    async def twice(message: Msg, _: ToolHookContext) -> Answer:
        body = encode(Decision.deny("first", request_digest=digest(message.data)))
        await world.client.publish(message.reply, body)
        return ALLOW

    await world.serve("guarded", twice)
    await world.register("guarded")
    executor = await world.started()
    assert (await executor.execute("echo", {})).reason == "first"
    await until(lambda: executor.stray_answers == 1)


async def test_a_change_of_registrations_that_no_bucket_made_is_refused(world: World) -> None:
    """A publish on hooks.changed.> is not enough to switch a hook off."""
    await world.hook("guarded", Decision.deny("no"))
    executor = await world.started()
    lies = ({"KV-Operation": "DEL"}, {"KV-Operation": "DEL", "Nats-Sequence": "999999"}, None)
    for headers in lies:
        await world.client.publish("hooks.changed.guarded", b'{"enforcement":"shadow"}', headers=headers)
    await world.client.flush()
    assert (await executor.execute("echo", {})).denied_by == "guarded"


@pytest.mark.parametrize("policy", ["deny", "allow"])
async def test_a_publish_that_permissions_refuse_is_unavailable_at_once(policy: str) -> None:
    """The server answers such a request with nothing but an error to the connection."""
    config = """
    accounts { A { jetstream: enabled, users: [
      { user: "operator", password: "p" },
      { user: "agent", password: "p", permissions: {
          publish: { allow: ["tool.before.open.e1", "$JS.API.>", "tool.after.>", "tool.denied.>"] } } } ] } }
    """
    with NatsServer(config) as server:
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            world = World(BusSettings(url=f"nats://operator:p@127.0.0.1:{server.port}"), stack)
            await world.start()
            await world.hook("closed", ALLOW, failure_policy=policy)
            await world.hook("open", ALLOW)
            bus = BusSettings(url=f"nats://agent:p@127.0.0.1:{server.port}")
            executor = Executor("e1", bus=bus, settings=ExecutorSettings(required_hooks=()))
            async with executor, asyncio.timeout(4):
                admission = await executor.admit("any", {})
            closed = next(one for one in admission.decisions if one.hook == "closed")
            assert (closed.decision, closed.reason_code) == ("unavailable", "not_permitted")
            assert admission.allowed is (policy == "allow")
