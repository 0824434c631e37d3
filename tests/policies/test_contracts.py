"""Contracts: remembered, and read again whenever they may have changed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hookbus_broker import CONTRACTS, CONTRACTS_CHANGED, BusSettings, Connection, connect, delete, ensure_streams, put
from hookbus_schemas import BusUnavailable, ConfigError
from hookbus_schemas.contract import Contract
from hookbus_subscribers.contracts import Contracts
from support import NatsServer, eventually

ONE, OTHER = (Contract(id=name).to_json() for name in ("ctr_1", "ctr_2"))


@asynccontextmanager
async def _reading(url: str) -> AsyncIterator[tuple[Connection, Contracts, Connection]]:
    """Yield an operator and a reader, each on a connection of its own, and that of the reader."""
    bus = BusSettings(url=url, events_max_bytes=8 * 2**20, reconnect_wait=0.01, reconnect_wait_max=0.05)
    async with await connect(bus, name="operator") as operator, await connect(bus, name="hook") as connection:
        await ensure_streams(operator, bus)
        contracts = Contracts(connection)
        await contracts.start()
        yield operator, contracts, connection
        await contracts.stop()


async def _id(contracts: Contracts, session: str) -> str:
    attached = await contracts.of(session)
    return "" if attached is None else attached.contract.id


async def _has(contracts: Contracts, session: str, contract_id: str) -> bool:
    return await _id(contracts, session) == contract_id


async def _attach(operator: Connection, hook: Connection, session: str, body: bytes) -> None:
    """Attach a contract, and return when the hook has heard of it: what it reads after that it remembers."""
    heard = asyncio.Event()
    subscription = await hook.subscribe_direct(f"{CONTRACTS_CHANGED}.{session}", lambda _: heard.set())
    await hook.barrier()
    await put(operator, CONTRACTS, session, body)
    async with asyncio.timeout(5):
        await heard.wait()
    await hook.barrier()
    await subscription.unsubscribe()


async def _remove_bucket(operator: Connection) -> None:
    answer = json.loads((await operator.request(f"$JS.API.STREAM.DELETE.KV_{CONTRACTS}", timeout=5)).data)
    assert answer["success"]


async def test_what_is_known_follows_each_change(bus_url: str) -> None:
    """Attached, replaced and removed: also a session that is known to have none."""
    async with _reading(bus_url) as (operator, contracts, _):
        assert await _id(contracts, "s 1") == ""
        await put(operator, CONTRACTS, "s=201", ONE)
        await eventually(lambda: _has(contracts, "s 1", "ctr_1"))
        await put(operator, CONTRACTS, "s=201", OTHER)
        await eventually(lambda: _has(contracts, "s 1", "ctr_2"))
        await delete(operator, CONTRACTS, "s=201")
        await eventually(lambda: _has(contracts, "s 1", ""))


async def test_a_session_that_is_known_needs_no_reading_and_another_fails_closed(bus_url: str) -> None:
    """The bucket is taken away: what was not read before is unknown, not free."""
    async with _reading(bus_url) as (operator, contracts, hook):
        await _attach(operator, hook, "s1", ONE)
        assert [await _id(contracts, session) for session in ("s1", "s2")] == ["ctr_1", ""]
        await _remove_bucket(operator)
        assert [await _id(contracts, session) for session in ("s1", "s2")] == ["ctr_1", ""]
        with pytest.raises(BusUnavailable):
            await contracts.of("s3")


async def test_a_contract_is_read_again_when_its_time_is_over(bus_url: str) -> None:
    """A message that tells a change can be lost."""
    bus = BusSettings(url=bus_url)
    async with _reading(bus_url) as (operator, _, _), await connect(bus, name="hook") as connection:
        contracts = Contracts(connection, remembered=0)
        await contracts.start()
        await put(operator, CONTRACTS, "s1", ONE)
        assert await _id(contracts, "s1") == "ctr_1"
        await _remove_bucket(operator)
        with pytest.raises(BusUnavailable):
            await contracts.of("s1")
        await contracts.stop()


async def test_a_message_that_somebody_made_up_changes_no_contract(bus_url: str) -> None:
    """It makes the contract be read again, no more."""
    async with _reading(bus_url) as (operator, contracts, _):
        await put(operator, CONTRACTS, "s1", ONE)
        assert await _id(contracts, "s1") == "ctr_1"
        await operator.publish("contracts.changed.s1", OTHER, headers={"Nats-Stream": "KV_CONTRACTS"})
        await operator.publish("contracts.changed.s1", b"", headers={"KV-Operation": "DEL"})
        await operator.barrier()
        assert await _id(contracts, "s1") == "ctr_1"


async def test_a_new_connection_forgets_what_was_known(own_server: NatsServer) -> None:
    """Who was away did not hear what changed."""
    async with _reading(own_server.url) as (_, contracts, _):
        assert await _id(contracts, "s1") == ""
        own_server.kill()
        own_server.start()
        async with await connect(BusSettings(url=own_server.url), name="later") as later:
            await _remove_bucket(later)
        await eventually(lambda: _is_unknown(contracts, "s1"))


async def _is_unknown(contracts: Contracts, session: str) -> bool:
    try:
        await contracts.of(session)
    except BusUnavailable:
        return True
    return False


@pytest.mark.parametrize(("session", "body"), [("s1", b"{}"), ("s" * 257, ONE)], ids=["no contract", "a long id"])
async def test_what_can_be_no_contract_is_an_error_each_time(session: str, body: bytes, bus_url: str) -> None:
    """Never a session without bounds."""
    async with _reading(bus_url) as (operator, contracts, _):
        await put(operator, CONTRACTS, "s1", body)
        for _ in range(2):
            with pytest.raises(ConfigError):
                await contracts.of(session)
