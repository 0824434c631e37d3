"""Buckets: a snapshot is whole or an error, a change is what the server said, a write knows what it replaces."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

import pytest
from nats.aio.msg import Msg

from hookbus_broker import (
    BucketSnapshot,
    BusSettings,
    Change,
    Connection,
    Entry,
    RevisionConflict,
    connect,
    delete,
    ensure_streams,
    parse_change,
    put,
    read_bucket,
    read_key,
)
from hookbus_schemas import BusUnavailable, ConfigError, HookbusError, InvalidMessage, PermissionRefused
from support import NatsServer, until

DIRECT_GET = "$JS.API.DIRECT.GET.KV_HOOKS"


@pytest.fixture
async def empty(bus_url: str) -> AsyncIterator[Connection]:
    """A connection to an account without a bucket."""
    async with await connect(BusSettings(url=bus_url), name="test") as connected:
        yield connected


@pytest.fixture
async def connection(bus_url: str, empty: Connection) -> Connection:
    """A connection to an account with the bucket."""
    await ensure_streams(empty, BusSettings(url=bus_url, events_max_bytes=8 * 1024 * 1024))
    return empty


async def test_a_snapshot_holds_the_latest_of_every_key(connection: Connection) -> None:
    """Older revisions and deleted keys are not in it; its revision is the last of the bucket."""
    await put(connection, "HOOKS", "a", b"1")
    await put(connection, "HOOKS", "b", b"2")
    await put(connection, "HOOKS", "a", b"3")
    await delete(connection, "HOOKS", "b")
    await connection.publish("$KV.HOOKS.c", b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    await put(connection, "HOOKS", "d", b"")
    assert await read_bucket(connection, "HOOKS") == BucketSnapshot({"a": Entry(b"3", 3), "d": Entry(b"", 6)}, 6)


async def test_an_empty_bucket_is_an_empty_snapshot(connection: Connection) -> None:
    """It is there and holds nothing."""
    assert await read_bucket(connection, "HOOKS") == BucketSnapshot({}, 0)


async def test_a_missing_bucket_is_never_an_empty_snapshot(empty: Connection) -> None:
    """No registrations would mean that nothing guards: it must not come from a bus that is not set up."""
    async with asyncio.timeout(2):
        with pytest.raises(BusUnavailable, match="no such stream or bucket"):
            await read_bucket(empty, "HOOKS")


async def test_as_many_keys_as_one_answer_holds_are_read(connection: Connection) -> None:
    """The limit of the server, 1,024; one more is an error, not a short snapshot."""
    for number in range(1024):
        await connection.publish(f"$KV.HOOKS.k{number}", b"x")
    await put(connection, "HOOKS", "k0", b"y")
    assert len((await read_bucket(connection, "HOOKS")).entries) == 1024
    await put(connection, "HOOKS", "one-more", b"z")
    with pytest.raises(ConfigError, match=r"^bucket HOOKS holds more than 1,024 keys"):
        await read_bucket(connection, "HOOKS")


def _answer(key: str, pending: int, *, stream: str = "KV_HOOKS") -> dict[str, str]:
    return {
        "Nats-Stream": stream,
        "Nats-Subject": f"$KV.HOOKS.{key}",
        "Nats-Sequence": "1",
        "Nats-Time-Stamp": "2026-01-01T00:00:00.123456789Z",
        "Nats-Num-Pending": str(pending),
    }


END = {"Status": "204", "Nats-Num-Pending": "0", "Nats-UpTo-Sequence": "9"}


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        pytest.param([], "no whole answer", id="nothing"),
        pytest.param([_answer("a", 1)], "no whole answer", id="no end"),
        pytest.param([_answer("a", 1), END], "not read whole", id="end too early"),
        pytest.param([END], "not read whole", id="end alone"),
        pytest.param([_answer("a", 2), _answer("c", 0), END], "not read whole", id="one missing in the middle"),
        pytest.param([_answer("a", 0), END | {"Nats-Num-Pending": "3"}], "not read whole", id="end with more to come"),
        pytest.param([_answer("a", 1), {"Status": "404", "Description": "Message Not Found"}], "404", id="one lost"),
        pytest.param([{"Status": "404", "Description": "Message Not Found"}], "404", id="the only one lost"),
        pytest.param([{"Status": "500", "Description": "failure"}], "500", id="the server's failure"),
        pytest.param([_answer("a", 0, stream="KV_OTHER"), END], "an answer about", id="another bucket"),
        pytest.param([{"Nats-Stream": "KV_HOOKS"}], "cannot be read", id="headers missing"),
        pytest.param([_answer("a", 0), {"Status": "204"}], "cannot be read", id="end without its headers"),
    ],
)
async def test_half_an_answer_is_an_error(
    empty: Connection, bus_url: str, answers: list[Mapping[str, str]], problem: str
) -> None:
    """A hook that is missing from a snapshot is a hook that does not guard."""
    async with await connect(BusSettings(url=bus_url), name="server") as server:

        def answer(msg: Msg) -> None:
            for headers in answers:
                server.publish_nowait(msg.reply, b"{}", headers=headers)

        await server.subscribe_direct(DIRECT_GET, answer)
        await server.barrier()
        async with asyncio.timeout(5):
            with pytest.raises(BusUnavailable, match=problem):
                await read_bucket(empty, "HOOKS", timeout=0.3)


async def test_a_bus_lost_in_the_middle_of_an_answer_is_an_error_at_once(own_server: NatsServer) -> None:
    """Nobody waits for the rest of it."""
    settings = BusSettings(url=own_server.url)
    async with await connect(settings, name="reader") as reader, await connect(settings, name="server") as server:
        asked = asyncio.Event()

        def answer(msg: Msg) -> None:
            server.publish_nowait(msg.reply, b"{}", headers=_answer("a", 1))
            asked.set()

        await server.subscribe_direct(DIRECT_GET, answer)
        await server.barrier()
        reading = asyncio.create_task(read_bucket(reader, "HOOKS", timeout=60))
        async with asyncio.timeout(5):
            await asked.wait()
            await server.barrier()
            own_server.kill()
            with pytest.raises(BusUnavailable, match="the bus was lost"):
                await reading


async def test_a_reader_that_gives_up_leaves_no_subscription(connection: Connection) -> None:
    """Cancelled or not, each read ends its inbox."""
    before = len(connection._subs)
    reading = asyncio.create_task(read_bucket(connection, "HOOKS"))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await read_bucket(connection, "HOOKS")
    assert len(connection._subs) == before


async def test_a_change_is_told_as_it_was_made(connection: Connection) -> None:
    """What the server republishes, read back: values, deletions, revisions."""
    changes: list[Change] = []
    await connection.subscribe_direct("hooks.changed.>", lambda msg: changes.append(parse_change(msg)))
    await connection.barrier()
    await put(connection, "HOOKS", "a", b"1")
    await put(connection, "HOOKS", "b=2E.c", b"2")
    await delete(connection, "HOOKS", "a")
    await connection.publish("$KV.HOOKS.b=2E.c", b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    await until(lambda: len(changes) == 4)
    assert changes == [Change("a", b"1", 1), Change("b=2E.c", b"2", 2), Change("a", None, 3), Change("b=2E.c", None, 4)]


REAL = {"Nats-Stream": "KV_HOOKS", "Nats-Subject": "$KV.HOOKS.a", "Nats-Sequence": "7"}


@pytest.mark.parametrize(
    ("subject", "headers"),
    [
        pytest.param("hooks.changed.a", None, id="no headers"),
        pytest.param("hooks.changed.a", REAL | {"Nats-Stream": "KV_OTHER"}, id="another bucket"),
        pytest.param("hooks.changed.b", REAL, id="another key"),
        pytest.param("other.a", REAL, id="another subject"),
        pytest.param("hooks.changed.a", REAL | {"Nats-Sequence": "-1"}, id="no revision"),
        pytest.param("hooks.changed.a", {k: v for k, v in REAL.items() if k != "Nats-Sequence"}, id="revision missing"),
    ],
)
def test_what_the_server_did_not_republish_is_no_change(subject: str, headers: dict[str, str] | None) -> None:
    """A message that somebody published there by mistake registers nothing."""
    message = Msg(None, subject, "", b"{}", headers)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        parse_change(message)


async def test_a_write_that_expected_another_revision_is_refused(connection: Connection) -> None:
    """The loser of a race learns of it and nothing is overwritten."""
    first = await put(connection, "HOOKS", "a", b"1", 0)
    second = await put(connection, "HOOKS", "a", b"2", first)
    for write in (put(connection, "HOOKS", "a", b"3", first), delete(connection, "HOOKS", "a", first)):
        with pytest.raises(RevisionConflict) as raised:
            await write
        assert (raised.value.key, raised.value.expected_revision) == ("a", first)
    with pytest.raises(RevisionConflict):
        await put(connection, "HOOKS", "a", b"3", 0)
    assert (await read_bucket(connection, "HOOKS")).entries == {"a": Entry(b"2", second)}


async def test_one_of_many_writers_at_once_wins(connection: Connection) -> None:
    """All of them expected the same revision."""
    async with asyncio.timeout(5):
        results = await asyncio.gather(
            *(put(connection, "HOOKS", "a", str(n).encode(), 0) for n in range(20)), return_exceptions=True
        )
    assert [type(result) for result in results].count(int) == 1
    assert [type(result) for result in results].count(RevisionConflict) == 19


async def test_a_deleted_key_can_be_made_anew(connection: Connection) -> None:
    """Revision 0 means that the key must not exist, and a deleted one does not."""
    await put(connection, "HOOKS", "a", b"1")
    await delete(connection, "HOOKS", "a")
    assert await put(connection, "HOOKS", "a", b"2", 0) == 3


async def test_a_write_to_a_missing_bucket_is_an_error(empty: Connection) -> None:
    """Nobody would have stored it."""
    async with asyncio.timeout(2):
        with pytest.raises(BusUnavailable):
            await put(empty, "HOOKS", "a", b"1")


@pytest.mark.parametrize("key", ["", "a b", "*", "a..b", ".a", "a.", "a.>", "a\r\nPUB x 0"])
async def test_what_is_no_key_is_refused(connection: Connection, key: str) -> None:
    """Before it reaches the wire."""
    with pytest.raises(ConfigError):
        await put(connection, "HOOKS", key, b"1")


async def test_a_refused_read_or_write_says_so_at_once() -> None:
    """An identity without the permission is not left to its timeout."""
    limited = 'authorization { users: [ { user: "e", password: "p", permissions: { publish: "x", subscribe: ">" } } ] }'
    with NatsServer(limited, user="e:p") as server:
        async with asyncio.timeout(4), await connect(BusSettings(url=server.url), name="test") as connection:
            with pytest.raises(PermissionRefused):
                await read_bucket(connection, "HOOKS")
            with pytest.raises(PermissionRefused):
                await put(connection, "HOOKS", "a", b"1")


async def test_a_closed_connection_reads_and_writes_nothing(bus_url: str) -> None:
    """It says so rather than waiting."""
    connection = await connect(BusSettings(url=bus_url), name="test")
    await connection.close()
    async with asyncio.timeout(2):
        for use in (read_bucket(connection, "HOOKS"), put(connection, "HOOKS", "a", b"1")):
            with pytest.raises(HookbusError):
                await use


async def test_one_key_is_read_with_the_moment_at_which_it_was_written(connection: Connection) -> None:
    """By the server's clock; a key that is not there or was deleted is None, a bucket that is not there an error."""
    before = time.time()
    revision = await put(connection, "HOOKS", "a", b"1")
    entry = await read_key(connection, "HOOKS", "a")
    assert entry is not None
    assert entry == Entry(b"1", revision)
    assert before - 1 <= entry.written_at <= time.time() + 1
    await delete(connection, "HOOKS", "a")
    assert [await read_key(connection, "HOOKS", key) for key in ("a", "b")] == [None, None]
    with pytest.raises(BusUnavailable):
        await read_key(connection, "NONE", "a")
