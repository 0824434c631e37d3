"""Hooks registered as JSON: what they are asked, and what of their answers counts."""

import asyncio
import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from executor.conftest import World
from hookbus_broker import connect
from hookbus_schemas import Decision, Encoding, Outcome, ToolHookContext, Verdict, decode, digest, encode, subjects
from hookbus_subscribers import HookServer, hook

BY_HAND = Path(__file__).parents[2] / "examples" / "by_hand.sh"


async def answering(world: World, answer: Any) -> list[Msg]:
    """Serve the hook `h` in JSON with what `answer` makes of a request; return the requests as they come."""
    asked: list[Msg] = []

    async def on_request(message: Msg) -> None:
        asked.append(message)
        await world.client.publish(message.reply, answer(message))

    await world.client.subscribe(subjects.before_filter("h"), queue=subjects.queue_group("h"), cb=on_request)
    await world.client.flush()
    await world.client.flush()
    await world.register("h", encoding="json")
    return asked


def said(message: Msg, **fields: object) -> bytes:
    """Return an answer as a person would write it, the digest copied from the header."""
    assert message.headers
    return json.dumps({"request_digest": message.headers["Hookbus-Request-Digest"]} | fields).encode()


async def test_a_request_in_json_says_what_one_in_msgpack_does(world: World) -> None:
    """In ASCII, with the digest of its bytes beside it, and its allow lets the call run."""
    asked = await answering(world, lambda message: said(message, decision="allow"))
    executor = await world.started()
    result = await executor.execute("echo", {"text": "❄"})
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "❄")
    (message,) = asked
    assert message.headers == {
        "content-type": "application/json",
        "Hookbus-Request-Digest": digest(message.data),
    }
    assert message.data.isascii()
    context = decode(ToolHookContext, message.data, Encoding.JSON)
    assert (context.tool_name, context.arguments_json) == ("echo", '{"text":"❄"}')
    assert set(json.loads(message.data)) == set(ToolHookContext.model_fields)


async def test_a_deny_in_json_stops_the_call(world: World) -> None:
    """With its words and all else that a decision may say."""
    said_more = {"reason": "no", "suggested_arguments": {"text": "b"}, "labels": {"by": "hand"}}
    await answering(world, lambda message: said(message, decision="deny", **said_more))
    executor = await world.started()
    admission = await executor.admit("echo", {"text": "a"})
    (decision,) = admission.decisions
    assert (admission.allowed, admission.denied_by, admission.reason) == (False, "h", "no")
    assert (decision.suggested_arguments, decision.labels) == ({"text": "b"}, {"by": "hand"})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda message: b'{"decision":"allow"}', id="no digest"),
        pytest.param(lambda message: said(message, decision="allow", request_digest="0" * 64), id="another's digest"),
        pytest.param(lambda message: b"allow", id="a bare word"),
        pytest.param(lambda message: said(message, decision="yes"), id="an unknown decision"),
        pytest.param(lambda message: said(message, decision=True), id="no word"),
        pytest.param(
            lambda message: encode(Decision.allow(request_digest=digest(message.data))), id="an allow in msgpack"
        ),
        pytest.param(
            lambda message: said(message, decision="deny")[:-1] + b', "decision": "allow"}', id="two decisions"
        ),
        pytest.param(
            lambda message: said(message, decision="allow", suggested_arguments={"a": 2**70}), id="huge integer"
        ),
    ],
)
async def test_what_is_no_answer_to_this_request_never_allows(world: World, answer: Any) -> None:
    """It is an error, and the failure policy decides."""
    await answering(world, answer)
    executor = await world.started()
    admission = await executor.admit("echo", {})
    assert (admission.allowed, [decision.decision for decision in admission.decisions]) == (False, [Verdict.ERROR])
    assert admission.decisions[0].reason_code == "invalid_answer"


async def test_an_allow_in_json_of_a_hook_in_msgpack_is_none(world: World) -> None:
    """The registration says which encoding counts."""
    await answering(
        world, lambda message: json.dumps({"decision": "allow", "request_digest": digest(message.data)}).encode()
    )
    await world.register("h")
    executor = await world.started()
    admission = await executor.admit("echo", {})
    assert (admission.allowed, admission.decisions[0].reason_code) == (False, "invalid_answer")


async def test_the_kit_serves_either_encoding(world: World) -> None:
    """A hook of the kit need not know how it is registered, not even while that changes."""

    @hook("h")
    async def decide(context: ToolHookContext) -> Decision:
        return Decision.deny("no ❄") if "drop" in context.arguments_json else Decision.allow()

    executor = await world.started()
    async with await connect(world.bus, name="hook") as connection, HookServer(decide, connection):
        for encoding in Encoding:
            revision = await world.register("h", encoding=encoding)
            async with asyncio.timeout(5):
                while [one.revision for one in executor.hooks] != [revision]:
                    await world.operator.barrier()
            allowed, denied = await executor.admit("echo", {}), await executor.admit("echo", {"text": "drop"})
            assert (allowed.allowed, denied.allowed, denied.reason) == (True, False, "no ❄")


async def test_hooks_of_both_encodings_are_asked_about_one_call(world: World) -> None:
    """Each with the digest of its own bytes."""
    await answering(world, lambda message: said(message, decision="allow"))
    await world.hook("m", Decision.allow())
    executor = await world.started()
    admission = await executor.admit("echo", {})
    assert [(one.hook, one.decision) for one in admission.decisions] == [("h", Verdict.ALLOW), ("m", Verdict.ALLOW)]


@pytest.mark.parametrize(
    ("typed", "decision", "reason"),
    [
        pytest.param(b"y\n", Verdict.ALLOW, "", id="yes"),
        pytest.param(b"\n", Verdict.DENY, "the person at the terminal said no", id="no"),
        pytest.param(b"\x04", Verdict.ERROR, "nobody answered within 4 s", id="the terminal is closed"),
    ],
)
async def test_a_person_at_a_terminal_answers(world: World, typed: bytes, decision: Verdict, reason: str) -> None:
    """The example script, with a real terminal, run as ``nats reply --command`` runs it."""
    person, terminal = pty.openpty()
    os.write(person, typed)
    name = os.ttyname(terminal)

    async def on_request(message: Msg) -> None:
        asked = {"NATS_REQUEST_BODY": message.data.decode(), "NATS_REQUEST_SUBJECT": message.subject}
        process = await asyncio.create_subprocess_exec(
            "bash", str(BY_HAND), env=os.environ | asked | {"TERMINAL": name}, stdin=-3, stdout=-1
        )
        answer, _ = await process.communicate()
        await world.client.publish(message.reply, answer)

    await world.client.subscribe(subjects.before_filter("by-hand"), queue="by-hand", cb=on_request)
    await world.register("by-hand", encoding="json")
    try:
        executor = await world.started()
        admission = await executor.admit("echo", {"text": "a"})
        assert [(one.decision, one.reason) for one in admission.decisions] == [(decision, reason)]
        assert b"May it run?" in os.read(person, 65536)
    finally:
        os.close(person)
        os.close(terminal)
