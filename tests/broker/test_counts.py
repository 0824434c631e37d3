"""Counts: exact under contention, once for each message id, an error wherever the total is not certain."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hookbus_broker import BusSettings, Connection, connect, counts, ensure_streams
from hookbus_schemas import BusUnavailable, ConfigError, PermissionRefused
from support import NatsServer

CALLS = counts.lasting("contract", "ctr_1", "7")
NOON = 1_800_000_000.0


@pytest.fixture
async def empty(bus_url: str) -> AsyncIterator[Connection]:
    """A connection to an account without the streams."""
    async with await connect(BusSettings(url=bus_url), name="test") as connected:
        yield connected


@pytest.fixture
async def connection(bus_url: str, empty: Connection) -> Connection:
    """A connection to an account with the streams."""
    await ensure_streams(empty, BusSettings(url=bus_url, events_max_bytes=8 * 1024 * 1024))
    return empty


async def _api(connection: Connection, action: str, body: object = None) -> dict[str, Any]:
    request = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await connection.request(f"$JS.API.{action}", request, timeout=5)).data)
    return answer


async def test_an_addition_is_answered_with_the_total(connection: Connection) -> None:
    """It can be given back, and read without adding."""
    assert await counts.read(connection, CALLS) == 0
    assert await counts.add(connection, CALLS, 1, message_id="call-1") == 1
    assert await counts.add(connection, CALLS, 2, message_id="call-2") == 3
    assert await counts.add(connection, CALLS, -1, message_id="back-call-1") == 2
    assert await counts.read(connection, CALLS) == 2


async def test_a_thousand_additions_at_once_from_five_replicas_see_a_thousand_totals(
    bus_url: str, connection: Connection
) -> None:
    """Whoever is told a total of at most 100 is one of exactly 100."""
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        settings = BusSettings(url=bus_url)
        replicas = [await stack.enter_async_context(await connect(settings, name=f"r{n}")) for n in range(5)]
        adding = (counts.add(replicas[n % 5], CALLS, 1, message_id=f"call-{n}", timeout=25) for n in range(1000))
        totals = await asyncio.gather(*adding)
    assert sorted(totals) == list(range(1, 1001))


async def test_a_message_id_that_comes_again_gets_its_first_answer(bus_url: str, connection: Connection) -> None:
    """Also from another replica, at the same time, and after others have added."""
    async with await connect(BusSettings(url=bus_url), name="other") as other:
        at_once = (counts.add(each, CALLS, 1, message_id="call-1") for each in (connection, other) * 4)
        assert await asyncio.gather(*at_once) == [1] * 8
        assert await counts.add(connection, CALLS, 1, message_id="call-2") == 2
        assert await counts.add(other, CALLS, 1, message_id="call-1") == 1
    assert await counts.read(connection, CALLS) == 2


async def test_a_message_id_is_of_one_count_alone(connection: Connection) -> None:
    """Who used a call's id for a count of their own did not keep it from being counted here."""
    assert await counts.add(connection, counts.lasting("contract", "ctr_2", "7"), 1, message_id="call-1") == 1
    assert await counts.add(connection, CALLS, 1, message_id="call-1") == 1
    assert await counts.read(connection, CALLS) == 1


async def test_a_repeated_addition_whose_total_is_no_longer_kept_is_an_error(connection: Connection) -> None:
    """Any answer would be a guess."""
    await counts.add(connection, CALLS, 1, message_id="call-1")
    await counts.forget(connection, CALLS)
    with pytest.raises(BusUnavailable, match=r"^counts\.lasting\.contract\.ctr_1\.7 was added to before"):
        await counts.add(connection, CALLS, 1, message_id="call-1")


async def test_a_forgotten_count_starts_again_and_no_other_does(connection: Connection) -> None:
    """Nothing stays of a contract that was removed."""
    other = counts.lasting("contract", "ctr_1", "8")
    await counts.add(connection, CALLS, 5, message_id="call-1")
    await counts.add(connection, other, 5, message_id="call-1")
    await counts.forget(connection, CALLS)
    assert await counts.read(connection, CALLS) == 0
    assert await counts.add(connection, CALLS, 1, message_id="call-2") == 1
    assert await counts.read(connection, other) == 5


@pytest.mark.parametrize(
    ("second", "total"),
    [
        pytest.param(NOON, 2, id="the same moment"),
        pytest.param(NOON + 59.999, 2, id="the end of the minute"),
        pytest.param(NOON + 60, 1, id="the next minute"),
        pytest.param(NOON - 0.001, 1, id="the minute before"),
    ],
)
async def test_a_minute_has_its_own_count(connection: Connection, second: float, total: int) -> None:
    """Replicas whose clocks agree on the minute share one count."""
    await counts.add(connection, counts.in_minute("ann", "sk_x", now=NOON), 1, message_id="call-1")
    assert await counts.add(connection, counts.in_minute("ann", "sk_x", now=second), 1, message_id="call-2") == total


async def test_counts_of_a_minute_expire_and_lasting_ones_never_do(connection: Connection) -> None:
    """A contract's count that expired would allow a call too many; a minute's is of no use later."""
    minute = (await _api(connection, "STREAM.INFO.TOOL_COUNTS_MINUTE"))["config"]
    lasting = (await _api(connection, "STREAM.INFO.TOOL_COUNTS"))["config"]
    assert (minute["max_age"], lasting["max_age"]) == (180_000_000_000, 0)
    assert (minute["max_msgs_per_subject"], lasting["max_msgs_per_subject"]) == (10_000, 10_000)
    assert (minute["max_bytes"], lasting["max_bytes"]) == (-1, -1)


async def test_a_count_of_a_minute_that_is_over_is_gone(connection: Connection) -> None:
    """The server removes it by its age; here the age is a tenth of a second."""
    config = (await _api(connection, "STREAM.INFO.TOOL_COUNTS_MINUTE"))["config"]
    short = config | {"max_age": 100_000_000, "duplicate_window": 100_000_000}
    assert "error" not in await _api(connection, "STREAM.UPDATE.TOOL_COUNTS_MINUTE", short)
    count = counts.in_minute("ann", "sk_x", now=NOON)
    await counts.add(connection, count, 1, message_id="call-1")
    async with asyncio.timeout(5):
        while await counts.read(connection, count):
            pass
    assert (await _api(connection, "STREAM.INFO.TOOL_COUNTS_MINUTE"))["state"]["messages"] == 0


def test_names_are_one_token_each_whatever_they_hold() -> None:
    """No name can reach into another's count."""
    assert counts.lasting("a.b", "*", "") == counts.Count("TOOL_COUNTS", "counts.lasting.a=2Eb.=2A.=")
    assert counts.in_minute("a b", now=NOON) == counts.Count("TOOL_COUNTS_MINUTE", "counts.minute.a=20b.30000000")


async def test_a_message_id_may_hold_any_character(connection: Connection) -> None:
    """It cannot end its header and begin another."""
    assert await counts.add(connection, CALLS, 1, message_id="x\r\nNats-Incr: +100") == 1
    with pytest.raises(ConfigError, match="longer than 256"):
        await counts.add(connection, CALLS, 1, message_id="x" * 257)


async def test_without_the_streams_nothing_is_counted_and_nothing_is_zero(empty: Connection) -> None:
    """A bus that is not set up must not look like a count that nobody used."""
    with pytest.raises(BusUnavailable, match="nothing answers"):
        await counts.add(empty, CALLS, 1, message_id="call-1")
    with pytest.raises(BusUnavailable, match=r"STREAM\.MSG\.GET"):
        await counts.read(empty, CALLS)


async def test_a_stream_that_does_not_count_is_an_error(empty: Connection) -> None:
    """Its acknowledgement holds no total; nor is another's total taken for one."""
    await _api(empty, "STREAM.CREATE.TOOL_COUNTS", {"name": "TOOL_COUNTS", "subjects": ["counts.lasting.>"]})
    await _api(
        empty, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["counts.minute.>"], "allow_msg_counter": True}
    )
    with pytest.raises(BusUnavailable):
        await counts.add(empty, CALLS, 1, message_id="call-1")
    with pytest.raises(BusUnavailable, match="was counted by stream 'OTHER'"):
        await counts.add(empty, counts.in_minute("ann", now=NOON), 1, message_id="call-1")


async def test_a_message_that_is_no_total_is_never_read_as_one(empty: Connection) -> None:
    """Anything but a number there is an error."""
    await _api(empty, "STREAM.CREATE.TOOL_COUNTS", {"name": "TOOL_COUNTS", "subjects": ["counts.lasting.>"]})
    await empty.request(CALLS.subject, b'{"val":"many"}', timeout=5)
    with pytest.raises(BusUnavailable, match="holds what is no total"):
        await counts.read(empty, CALLS)


async def test_a_server_that_does_not_answer_is_an_error_and_the_id_tells_later(own_server: NatsServer) -> None:
    """The addition may have happened; asked again with the same id it has happened once."""
    settings = BusSettings(url=own_server.url, events_max_bytes=8 * 1024 * 1024)
    async with asyncio.timeout(20), await connect(settings, name="test") as connection:
        await ensure_streams(connection, settings)
        own_server.suspend()
        with pytest.raises(BusUnavailable):
            await counts.add(connection, CALLS, 1, message_id="call-1", timeout=0.2)
        own_server.resume()
        assert await counts.add(connection, CALLS, 1, message_id="call-1") == 1
        assert await counts.read(connection, CALLS) == 1


async def test_totals_outlive_a_killed_server(own_server: NatsServer) -> None:
    """A restart gives nobody a second allowance, and a repeated id still gets its first answer."""
    settings = BusSettings(url=own_server.url, events_max_bytes=8 * 1024 * 1024)
    async with await connect(settings, name="test") as connection:
        await ensure_streams(connection, settings)
        assert [await counts.add(connection, CALLS, 1, message_id=f"call-{n}") for n in (1, 2)] == [1, 2]
    own_server.kill()
    own_server.start()
    async with await connect(settings, name="test") as connection:
        assert await counts.add(connection, CALLS, 1, message_id="call-1") == 1
        assert await counts.add(connection, CALLS, 1, message_id="call-3") == 3


async def test_an_identity_that_may_not_count_is_told_so() -> None:
    """At once, not after the timeout."""
    limited = 'authorization { users: [ { user: "e", password: "p", permissions: { publish: "x", subscribe: ">" } } ] }'
    with NatsServer(limited, user="e:p") as server:
        async with asyncio.timeout(3), await connect(BusSettings(url=server.url), name="test") as connection:
            with pytest.raises(PermissionRefused, match=r"counts\.lasting"):
                await counts.add(connection, CALLS, 1, message_id="call-1")
