"""docs/contract.md is enough: a hook made of nats-py and msgpack alone, as the page says, decides calls."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel

from hookbus_broker import HOOKS, BusSettings, connect, ensure_streams, put
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import Decision, HookRegistration, Outcome, ToolHookContext, subjects

PAGE = (Path(__file__).parents[2] / "docs" / "contract.md").read_text(encoding="utf-8")
HOOK = "no drops"
TOKEN = "no=20drops"


@pytest.mark.parametrize("model", [ToolHookContext, Decision, HookRegistration], ids=lambda model: model.__name__)
def test_every_field_is_named(model: type[BaseModel]) -> None:
    """The page leaves no field of a request, a decision or a registration out."""
    assert [field for field in model.model_fields if f"`{field}`" not in PAGE] == []


async def _answer(message: Msg, client: Client) -> None:
    """Do what the page's pseudo-code does."""
    _, _, hook, executor = message.subject.split(".")
    if message.reply.split(".")[:-1] != ["reply", executor, hook]:
        return
    call = msgpack.unpackb(message.data)
    if call["deadline_ms"] + 1000 < time.time() * 1000:
        return
    decision: dict[str, Any] = {"v": 1, "decision": "allow"}
    if "drop" in call["arguments_json"]:
        decision = {"v": 1, "decision": "deny", "reason": "tables are never dropped here"}
    decision["request_digest"] = hashlib.sha256(message.data).hexdigest()
    await client.publish(message.reply, msgpack.packb(decision))


@pytest.fixture
async def foreign_hook(bus_url: str) -> AsyncIterator[None]:
    """Serve the hook without hookbus."""
    client = await nats.connect(bus_url)

    async def answer(message: Msg) -> None:
        await _answer(message, client)

    await client.subscribe(f"tool.before.{TOKEN}.*", TOKEN, cb=answer)
    await client.flush()
    await client.flush()
    yield
    await client.close()


async def test_a_hook_without_hookbus_decides(bus_url: str, foreign_hook: None) -> None:
    """Its allow lets a call run, its deny stops one and says why."""
    bus = BusSettings(url=bus_url)
    async with asyncio.timeout(10), await connect(bus, name="operator") as operator:
        await ensure_streams(operator, bus)
        await put(operator, HOOKS, subjects.token(HOOK), HookRegistration().to_json())
        executor = Executor("agent 1", bus=bus, settings=ExecutorSettings(required_hooks=()))
        executor.tool(name="db")(_echo)
        async with executor:
            allowed = await executor.execute("db", {"text": "select"})
            denied = await executor.execute("db", {"text": "drop"})
    assert (allowed.outcome, allowed.text) == (Outcome.COMPLETED, "select")
    assert denied.text == "Tool execution denied by hook: no drops: tables are never dropped here"


async def _echo(text: str) -> str:
    return text
