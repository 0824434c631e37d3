"""Each way in which nats-py's client is known to be silently dead or closed for ever, and that ours is not."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from hookbus_broker.connection import Connection, connect
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable, PermissionRefused
from peers import FakeServer, Proxy
from support import NatsServer, until


def quick(url: str, **fields: object) -> BusSettings:
    """Settings with which faults are noticed and mended in tenths of seconds."""
    values: dict[str, object] = {"ping_interval": 0.2, "reconnect_wait": 0.01, "reconnect_wait_max": 0.05} | fields
    return BusSettings.model_validate({"url": url} | values)


@pytest.fixture
async def bus(own_server: NatsServer) -> AsyncIterator[Connection]:
    """A connection to a server that only this test has; after it no task may be left."""
    async with await connect(quick(own_server.url), name="test") as connection:
        yield connection
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def works(connection: Connection) -> bool:
    """Tell whether a message goes out and comes in."""
    await connection.wait_connected()
    got: list[Msg] = []
    subscription = await connection.subscribe_direct("works", got.append)
    connection.publish_nowait("works", b"")
    await connection.barrier()
    await subscription.unsubscribe()
    return len(got) == 1


# Answers that come late, and callbacks that fail.


async def test_a_pong_after_the_timeout_kills_nobody(own_server: NatsServer) -> None:
    """The answer to a barrier that gave up is taken, and the next barrier gets its own."""
    async with Proxy(own_server.port) as proxy, await connect(BusSettings(url=proxy.url), name="test") as connection:
        proxy.flowing.clear()
        for _ in range(3):
            with pytest.raises(BusUnavailable, match=r"did not answer within 0\.01 s"):
                await connection.barrier(timeout=0.01)
        proxy.flowing.set()
        assert await works(connection)
        assert connection.stats["reconnects"] == 0


async def test_callbacks_that_raise_do_not_stop_reconnecting(bus: Connection, own_server: NatsServer) -> None:
    """Each is logged, the ones after it are called, and the connection comes back."""
    called: list[str] = []

    def fail() -> None:
        called.append("failed")
        raise RuntimeError("boom")

    bus.on_disconnect(fail)
    bus.on_reconnect(fail)
    bus.on_disconnect(lambda: called.append("down"))
    bus.on_reconnect(lambda: called.append("up"))
    remove = bus.on_disconnect(lambda: called.append("removed"))
    remove()
    remove()
    with capture_logs() as logs:
        own_server.kill()
        await bus.wait_disconnected()
        own_server.start()
        assert await works(bus)
    assert called == ["failed", "down", "failed", "up"]
    assert [entry["event"] for entry in logs if entry["event"] != "bus.reconnect_failed"] == [
        "bus.disconnected",
        "bus.callback_failed",
        "bus.reconnected",
        "bus.callback_failed",
    ]


async def test_a_callback_that_blocks_the_loop_costs_no_connection(bus: Connection) -> None:
    """While it blocks, pings go out of time; when it returns the connection is still up."""
    await bus.subscribe_direct("a", lambda msg: threading.Event().wait(1.0))
    bus.publish_nowait("a", b"")
    await bus.barrier()
    assert await works(bus)
    assert bus.stats["reconnects"] == 0


async def test_a_failing_message_callback_is_logged_and_the_next_is_called(bus: Connection) -> None:
    """nats-py's own subscriptions too."""
    got: list[bytes] = []

    async def fail(msg: Msg) -> None:
        got.append(msg.data)
        raise RuntimeError("boom")

    await bus.subscribe("a", cb=fail)
    with capture_logs() as logs:
        bus.publish_nowait("a", b"1")
        bus.publish_nowait("a", b"2")
        await until(lambda: got == [b"1", b"2"])
        assert await works(bus)
    assert [entry["event"] for entry in logs] == ["bus.callback_failed"]


# What the server says.


ENDS = [
    pytest.param(b"-ERR 'Unknown To All'\r\n", "unknown to all", id="unknown error"),
    pytest.param(b"-ERR 'User Authentication Expired'\r\n", "refused the credentials", id="expired"),
    pytest.param(b"-ERR 'Maximum Payload Violation'\r\n", "maximum payload violation", id="max payload"),
    pytest.param(b"-ERR 'Stale Connection'\r\n", "stale connection", id="stale"),
    pytest.param(b"", "unexpected EOF", id="nothing"),
]


@pytest.mark.parametrize(("words", "reason"), ENDS)
async def test_a_server_that_ends_the_connection_is_connected_to_again(words: bytes, reason: str) -> None:
    """Whatever it says last is the reason that is logged."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        with capture_logs() as logs:
            server.send(words)
            await server.writers[-1].drain()
            server.writers[-1].close()
            await connection.wait_disconnected()
            await connection.wait_connected()
            await connection.barrier()
        (lost,) = (entry for entry in logs if entry["event"] == "bus.disconnected")
        assert reason in lost["reason"]
        assert server.connections == 2


async def test_an_error_after_which_the_server_goes_on_is_only_logged() -> None:
    """No error line by itself ends a connection, known or not."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        with capture_logs() as logs:
            server.send(b"-ERR 'Something New'\r\n" * 100)
            await connection.barrier()
        assert [(entry["event"], entry["error"]) for entry in logs] == [("bus.server_refused", "something new")]
        assert server.connections == 1


NONSENSE = [
    pytest.param(b"FOO BAR\r\n", id="unknown verb"),
    pytest.param(b"-ERR\r\n", id="error without words"),
    pytest.param(b"-ERR \r\n", id="error with a space"),
    pytest.param(b"INFO {\r\n", id="broken INFO"),
    pytest.param(b"MSG a x 1\r\n.\r\n", id="sid that is no number"),
    pytest.param(b"\xff\xfe\r\n", id="bytes"),
]


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_nonsense_from_the_server_means_a_new_connection(nonsense: bytes) -> None:
    """A parser that gave up leaves nothing behind in the next link."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        server.send(nonsense)
        await connection.wait_disconnected()
        await connection.wait_connected()
        await connection.barrier()
        assert connection.stats["reconnects"] == 1


MESSAGES = [
    pytest.param(b"MSG \xff %d 0\r\n\r\n", id="subject that is no UTF-8"),
    pytest.param(b"HMSG a %d 0 0\r\n\r\n", id="no header"),
    pytest.param(b"HMSG a %d 8 8\r\nNATS/1.0\r\n", id="headers cut off"),
    pytest.param(b"HMSG a %d 12 12\r\nNATS/1.0 \xff\r\n\r\n", id="status that is no number"),
]


@pytest.mark.parametrize("message", MESSAGES)
async def test_a_broken_message_is_dropped_and_the_next_is_read(message: bytes) -> None:
    """Whatever else it is, it does not end the reading."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        got: list[bytes] = []
        subscription = await connection.subscribe_direct("a", lambda msg: got.append(msg.data))
        await connection.barrier()
        server.send(message % subscription._id)
        server.send(b"MSG a %d 4\r\ngood\r\n" % subscription._id)
        await connection.barrier()
        assert got[-1] == b"good"
        assert connection.stats["reconnects"] == 0


RAW = [
    pytest.param(b"PUB a 99999999\r\n", id="payload over the limit"),
    pytest.param(b"PUB " + b"a" * 5000 + b" 1\r\n.\r\n", id="control line over the limit"),
    pytest.param(b"NO SUCH VERB\r\n", id="parser error"),
]


@pytest.mark.parametrize("line", RAW)
async def test_what_a_server_will_not_take_costs_a_reconnection_at_most(bus: Connection, line: bytes) -> None:
    """Should such bytes ever leave, the connection comes back."""
    bus._enqueue(line)
    await bus.wait_disconnected()
    assert await works(bus)


# What the server refuses.

GUARDED = """
authorization {{ users = [
  {{ user: adm, password: a }}
  {{ user: u, password: {password}, permissions: {{
     publish: {{ allow: ["ok.>", "works"] }}, subscribe: {{ allow: [{subscribe}] }} }} }} ] }}
"""
ALLOWED = GUARDED.format(password="p", subscribe='"ok.>", "works", "_INBOX.>"')


@pytest.fixture
def guarded() -> Iterator[NatsServer]:
    """A server with permissions."""
    with NatsServer(ALLOWED, user="u:p") as server:
        yield server


async def test_a_refused_publish_is_told_with_its_subject(guarded: NatsServer) -> None:
    """In lower case, as the client's parser leaves it, and logged once for many."""
    async with await connect(quick(guarded.url), name="test") as connection:
        refused: list[str] = []
        connection.on_publish_refused(refused.append)
        connection.on_publish_refused(lambda subject: 1 / 0)
        with capture_logs() as logs:
            for number in range(10):
                connection.publish_nowait(f"Secret.Very.Place.{number}", b"")
            await connection.barrier()
        assert refused == [f"secret.very.place.{number}" for number in range(10)]
        assert sorted(entry["event"] for entry in logs) == ["bus.callback_failed", "bus.server_refused"]
        assert connection.is_connected


async def test_a_refused_subscription_fails_the_next_barrier(guarded: NatsServer) -> None:
    """Once; the connection and its other subscriptions work on."""
    async with await connect(quick(guarded.url), name="test") as connection:
        await connection.subscribe_direct("secret.>", print, queue="q")
        with pytest.raises(PermissionRefused, match=r'"secret\.>"'):
            await connection.barrier()
        await connection.barrier()
        assert await works(connection)


async def test_more_subscriptions_than_allowed_fail_the_barrier() -> None:
    """The connection does not begin to reconnect in circles."""
    with NatsServer("max_subscriptions: 2\n") as server:
        async with await connect(quick(server.url), name="test") as connection:
            for number in range(3):
                await connection.subscribe_direct(f"a.{number}", print)
            with pytest.raises(PermissionRefused, match="maximum subscriptions"):
                await connection.barrier()
            await connection.barrier()
            assert connection.stats["reconnects"] == 0


async def test_permissions_taken_away_are_noticed_and_given_back_are_used(guarded: NatsServer) -> None:
    """A reload changes them under a living connection."""
    async with (
        await connect(quick(guarded.url), name="test") as connection,
        await connect(quick(guarded.url.replace("u:p", "adm:a")), name="admin") as admin,
    ):
        got: list[bytes] = []
        await connection.subscribe_direct("ok.a", lambda msg: got.append(msg.data))
        await connection.barrier()
        with capture_logs() as logs:
            guarded.reload(GUARDED.format(password="p", subscribe='"works", "_INBOX.>"'))
            await until(lambda: any("ok.a" in entry.get("error", "") for entry in logs))
        with pytest.raises(PermissionRefused):
            await connection.barrier()
        guarded.reload(ALLOWED)
        await connection.force_reconnect()
        await connection.wait_connected()
        await connection.barrier()
        admin.publish_nowait("ok.a", b"again")
        await until(lambda: got == [b"again"])


async def test_a_password_changed_and_restored_is_an_outage(guarded: NatsServer) -> None:
    """The server throws us out and refuses us; as soon as it takes us again we are back."""
    async with await connect(quick(guarded.url), name="test") as connection:
        with capture_logs() as logs:
            guarded.reload(GUARDED.format(password="other", subscribe='">"'))
            await connection.wait_disconnected()
            await until(lambda: any("refused the credentials" in entry.get("reason", "") for entry in logs))
            guarded.reload(ALLOWED)
            assert await works(connection)
        assert "u:p" not in repr(logs)


# Peers that are there and do nothing, tasks that die.


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_a_suspended_server_is_noticed(bus: Connection, own_server: NatsServer, busy: bool) -> None:
    """After the unanswered pings, whether or not bytes are stuck on their way; publishers never hang."""
    refused = asyncio.Event()

    async def publish() -> None:
        while not refused.is_set():
            try:
                await bus.publish("a", bytes(100_000))
            except BusUnavailable:
                refused.set()
            await asyncio.sleep(0)

    publisher = asyncio.create_task(publish()) if busy else None
    own_server.suspend()
    started = time.monotonic()
    await bus.wait_disconnected()
    assert time.monotonic() - started < 0.2 * 3 + 1
    if publisher is not None:
        async with asyncio.timeout(5):
            await publisher
    own_server.resume()
    assert await works(bus)


async def test_production_settings_notice_a_dead_peer_within_ten_seconds() -> None:
    """Two unanswered pings and the wait before the first."""
    settings = BusSettings(url="nats://127.0.0.1:1")
    assert settings.ping_interval * (settings.max_outstanding_pings + 1) < 10


def publish_until_full(connection: Connection) -> None:
    """Publish, in one turn of the loop, until it raises."""
    while True:
        connection.publish_nowait("a", bytes(100_000))


async def test_close_does_not_wait_for_a_suspended_server(own_server: NatsServer) -> None:
    """Bytes that cannot be sent are given up."""
    connection = await connect(BusSettings(url=own_server.url), name="test")
    own_server.suspend()
    with pytest.raises(BusUnavailable, match="takes no more now"):
        publish_until_full(connection)
    async with asyncio.timeout(5):
        await connection.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("task", ["_reading_task", "_ping_interval_task"])
async def test_a_task_that_dies_means_a_new_connection(bus: Connection, task: str) -> None:
    """Whoever cancelled it: a connection without its reader or pinger is none."""
    getattr(bus, task).cancel()
    await bus.wait_disconnected()
    assert await works(bus)


async def test_without_its_supervisor_a_connection_is_closed_and_says_so(bus: Connection) -> None:
    """The end of a program cancels all tasks; nothing may look alive after that."""
    assert bus._supervisor is not None
    bus._supervisor.cancel()
    await bus.wait_disconnected()
    with pytest.raises(BusUnavailable, match="is closed: its supervisor was cancelled"):
        bus.publish_nowait("a", b"")
    with pytest.raises(BusUnavailable):
        await bus.wait_connected()


async def test_a_loss_in_the_turn_of_the_first_answer_is_a_loss() -> None:
    """The server answers the handshake and in the same packet says nonsense: never up for good on a dead link."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        calls: list[str] = []
        connection.on_disconnect(lambda: calls.append("down"))
        connection.on_reconnect(lambda: calls.append("up"))
        server.next_answer = b"PONG\r\nNONSENSE\r\n"
        server.cut()
        await until(lambda: server.connections > 5)
        server.next_answer = b"PONG\r\n"
        await until(lambda: connection.is_connected and connection._reading_task is not None)
        await connection.barrier()
        assert all(one != other for one, other in itertools.pairwise(calls))


async def test_two_triggers_are_one_reconnection(bus: Connection) -> None:
    """on_disconnect and on_reconnect are called once for each loss, in turn."""
    calls: list[str] = []
    bus.on_disconnect(lambda: calls.append("down"))
    bus.on_reconnect(lambda: calls.append("up"))
    for _ in range(20):
        reader = bus._reading_task
        assert reader is not None
        reader.cancel()
        await asyncio.gather(bus.force_reconnect(), bus.force_reconnect())
        await bus.wait_connected()
    assert calls == ["down", "up"] * 20
    assert await works(bus)
