"""What happens while there is no server, and when it is back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable

import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from hookbus_broker.connection import Connection, connect
from hookbus_broker.settings import BusSettings
from hookbus_broker.tasks import backoff
from hookbus_schemas.errors import BusUnavailable
from peers import INFO, FakeServer, Proxy
from support import NatsServer, until


def quick(url: str, **fields: object) -> BusSettings:
    """Settings with which outages are mended in hundredths of seconds."""
    values: dict[str, object] = {"reconnect_wait": 0.01, "reconnect_wait_max": 0.05} | fields
    return BusSettings.model_validate({"url": url} | values)


@pytest.fixture
async def bus(own_server: NatsServer) -> AsyncIterator[Connection]:
    """A connection to a server that only this test has; after it no task may be left."""
    async with await connect(quick(own_server.url), name="test") as connection:
        yield connection
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_publishing_while_disconnected_is_refused_and_never_sent(bus: Connection, own_server: NatsServer) -> None:
    """Every way of publishing raises at once; after the outage the subscriber has got nothing."""
    got: list[Msg] = []
    await bus.subscribe_direct("ghost", got.append)
    own_server.kill()
    await bus.wait_disconnected()
    with pytest.raises(BusUnavailable, match="is down and being restored"):
        bus.publish_nowait("ghost", b"")
    for call in (bus.publish("ghost"), bus.request("ghost", timeout=60), bus.barrier(), bus.flush(), bus.rtt()):
        with pytest.raises(BusUnavailable):
            await call
    own_server.start()
    await bus.wait_connected()
    await bus.barrier()
    assert got == []
    assert bus._resp_map == {}


async def test_what_was_pending_when_the_connection_was_lost_is_not_sent_later(bus: Connection) -> None:
    """Published in the very turn of the loop in which the loss is noticed."""
    got: list[Msg] = []
    await bus.subscribe_direct("ghost", got.append)
    await bus.barrier()
    bus.publish_nowait("ghost", b"")
    await bus.force_reconnect()
    await bus.wait_connected()
    await bus.barrier()
    assert got == []


async def test_whoever_waits_for_an_answer_is_told_of_the_loss(own_server: NatsServer) -> None:
    """Requests and barriers do not sit out their timeouts."""
    async with (
        Proxy(own_server.port) as proxy,
        await connect(quick(proxy.url), name="test") as connection,
        asyncio.timeout(5),
        asyncio.TaskGroup() as group,
    ):
        await connection.subscribe_direct("silent", lambda msg: None)
        await connection.barrier()
        proxy.flowing.clear()
        request = group.create_task(refused(connection.request("silent", b"", timeout=60)))
        barrier = group.create_task(refused(connection.barrier(timeout=60)))
        await until(lambda: connection._pongs and connection._resp_map)
        proxy.cut()
    assert "is down" in request.result()
    assert "is down" in barrier.result()


async def refused(call: Awaitable[object]) -> str:
    """Return what the refusal of the call says."""
    with pytest.raises(BusUnavailable) as caught:
        await call
    return str(caught.value)


async def test_subscriptions_come_back_and_ended_ones_do_not(bus: Connection, own_server: NatsServer) -> None:
    """Direct ones and nats-py's, made before or during the outage."""
    got: list[str] = []

    async def take(msg: Msg) -> None:
        got.append(msg.subject)

    await bus.subscribe("queued", cb=take)
    await bus.subscribe_direct("direct", lambda msg: got.append(msg.subject))
    ended = await bus.subscribe_direct("ended", lambda msg: got.append(msg.subject))
    limited = await bus.subscribe_direct("limited", lambda msg: got.append(msg.subject))
    await limited.unsubscribe(limit=2)
    bus.publish_nowait("limited", b"")
    await bus.barrier()
    own_server.kill()
    await bus.wait_disconnected()
    await ended.unsubscribe()
    await bus.subscribe_direct("during", lambda msg: got.append(msg.subject))
    own_server.start()
    await bus.wait_connected()
    for subject in ("queued", "direct", "ended", "during", "limited", "limited"):
        bus.publish_nowait(subject, b"")
    await bus.barrier()
    await until(lambda: len(got) == 5)
    assert sorted(got) == ["direct", "during", "limited", "limited", "queued"]


async def test_a_subscription_drained_during_the_loss_stays_ended(bus: Connection, own_server: NatsServer) -> None:
    """Its drain says that the bus was lost; the next link does not subscribe again."""
    got: list[Msg] = []
    subscription = await bus.subscribe_direct("a", got.append)
    own_server.kill()
    await bus.wait_disconnected()
    with pytest.raises(BusUnavailable):
        await subscription.drain()
    own_server.start()
    await bus.wait_connected()
    bus.publish_nowait("a", b"")
    await bus.barrier()
    assert got == []


async def test_on_disconnect_is_called_before_anything_is_tried(bus: Connection) -> None:
    """At once, with the connection already refusing."""
    states: list[bool] = []
    bus.on_disconnect(lambda: states.append(bus.is_connected))
    bus.on_reconnect(lambda: states.append(bus.is_connected))
    await bus.force_reconnect()
    assert states == [False]
    await bus.wait_connected()
    assert states == [False, True]


async def test_the_states_are_logged(own_server: NatsServer) -> None:
    """One line for each change, with the server and never its credentials."""
    url = f"nats://user:secret@127.0.0.1:{own_server.port}"
    where = {"name": "test", "server": f"127.0.0.1:{own_server.port}"}
    with capture_logs() as logs:
        async with await connect(quick(url), name="test") as connection:
            await connection.force_reconnect()
            await connection.wait_connected()
    assert logs == [
        {"event": "bus.connected", "log_level": "info"} | where,
        {"event": "bus.disconnected", "log_level": "warning", "reason": "a reconnection was asked for"} | where,
        {"event": "bus.reconnected", "log_level": "info"} | where,
        {"event": "bus.closed", "log_level": "info"} | where,
    ]


async def test_a_log_that_cannot_be_written_stops_nothing(
    broken_log: None, bus: Connection, own_server: NatsServer
) -> None:
    """The loss is told, the connection comes back."""
    calls: list[str] = []
    bus.on_disconnect(lambda: calls.append("down"))
    bus.on_disconnect(lambda: 1 / 0)
    bus.on_reconnect(lambda: calls.append("up"))
    own_server.kill()
    await bus.wait_disconnected()
    with pytest.raises(BusUnavailable):
        await bus.wait_connected(timeout=0.1)
    own_server.start()
    await bus.wait_connected()
    assert calls == ["down", "up"]


async def test_drain_without_a_server_just_closes(bus: Connection, own_server: NatsServer) -> None:
    """There is nothing that could still come."""
    await bus.subscribe_direct("a", print)
    await bus.subscribe("b")
    own_server.kill()
    await bus.wait_disconnected()
    async with asyncio.timeout(2):
        await bus.drain()
    assert bus.is_closed


async def test_no_number_of_failed_tries_ends_the_trying() -> None:
    """nats-py gives up after 60."""
    async with FakeServer() as server:
        settings = quick(server.url, reconnect_wait=0.001, reconnect_wait_max=0.001)
        async with await connect(settings, name="test") as connection:
            server.greeting = b"-ERR 'Not Now'\r\n"
            server.cut()
            with capture_logs() as logs:
                await until(lambda: server.connections > 100, timeout=20)
            assert len([entry for entry in logs if entry["event"] == "bus.reconnect_failed"]) < 5
            server.greeting = INFO
            await connection.wait_connected()
            await connection.barrier()


def test_backoff_grows_to_its_limit_and_is_spread() -> None:
    """From the first wait, doubling, each between a half and the whole of it."""
    waits = list(itertools.islice(backoff(0.1, 2.0), 50))
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, *[2.0] * 45]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len(set(waits)) == 50


CLOSED_WHILE = [
    pytest.param(b"", id="the server says nothing"),
    pytest.param(b"-ERR 'Not Now'\r\n", id="the server refuses"),
    pytest.param(None, id="there is no server"),
]


@pytest.mark.parametrize("greeting", CLOSED_WHILE)
async def test_close_while_reconnecting_ends_it(greeting: bytes | None) -> None:
    """At once, wherever the try is."""
    async with FakeServer() as server:
        connection = await connect(quick(server.url), name="test")
        server.greeting = greeting or b""
        if greeting is None and server._server is not None:
            server._server.close()
        server.cut()
        await connection.wait_disconnected()
        if greeting is not None:
            await until(lambda: server.connections > 1)
        async with asyncio.timeout(1):
            await connection.close()
        with pytest.raises(BusUnavailable, match="is closed"):
            connection.publish_nowait("a", b"")
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_close_from_a_callback_about_the_loss_ends_it(own_server: NatsServer) -> None:
    """A callback is plain, so it starts a task that closes."""
    connection = await connect(quick(own_server.url), name="test")
    closing: list[asyncio.Task[None]] = []
    connection.on_disconnect(lambda: closing.append(asyncio.create_task(connection.close())))
    own_server.kill()
    await connection.wait_disconnected()
    async with asyncio.timeout(5):
        await closing[0]
    assert connection.is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_another_server_of_the_list_takes_over(own_server: NatsServer) -> None:
    """When the one is gone, and already at the first connect."""
    with NatsServer() as second:
        async with await connect(quick(f"{second.url},{own_server.url}"), name="test") as connection:
            first, other = (second, own_server) if str(second.port) in connection.server else (own_server, second)
            first.kill()
            await connection.wait_disconnected()
            await connection.wait_connected()
            assert str(other.port) in connection.server
        async with await connect(quick(f"{first.url},{other.url}"), name="test") as connection:
            await connection.barrier()


async def test_servers_that_left_the_cluster_are_forgotten() -> None:
    """Those that INFO names come and go; the configured one stays."""
    async with FakeServer() as server, await connect(quick(server.url), name="test") as connection:
        for number in range(100):
            server.send(b'INFO {"connect_urls":["127.0.0.1:%d"]}\r\n' % (10_000 + number))
        await connection.barrier()
        assert len(connection._server_pool) == 2
