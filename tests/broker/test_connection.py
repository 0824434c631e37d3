"""What a connection does while nothing goes wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.errors
import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from hookbus_broker.connection import Connection, connect
from hookbus_broker.settings import BusSettings
from hookbus_schemas.errors import BusUnavailable, ConfigError, PayloadTooLarge
from peers import FakeServer
from support import until


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Connection]:
    """A connection to the test's own account; after it no task may be left."""
    async with await connect(BusSettings(url=bus_url), name="test") as connection:
        yield connection
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
async def other(bus_url: str, bus: Connection) -> AsyncIterator[Connection]:
    """A second connection to the same account."""
    async with await connect(BusSettings(url=bus_url), name="other") as connection:
        yield connection


async def test_a_message_arrives_with_reply_subject_and_headers(bus: Connection) -> None:
    """What publish_nowait takes is what a subscriber gets."""
    got: list[Msg] = []
    await bus.subscribe_direct("a.*", got.append)
    bus.publish_nowait("a.b", b"payload", "answer.here", {"Name": "value", "Other": "ü"})
    await bus.barrier()
    assert [(m.subject, m.reply, m.data, m.headers) for m in got] == [
        ("a.b", "answer.here", b"payload", {"Name": "value", "Other": "ü"})
    ]


async def test_messages_arrive_in_the_order_sent(bus: Connection) -> None:
    """Many messages of one turn of the loop keep their order, through every way of publishing."""
    got: list[int] = []
    await bus.subscribe_direct("n", lambda msg: got.append(int(msg.data)))
    for number in range(0, 2000, 2):
        bus.publish_nowait("n", b"%d" % number)
        await bus.publish("n", b"%d" % (number + 1))
    await bus.barrier()
    assert got == list(range(2000))


async def test_barrier_makes_a_subscription_count_for_others(bus: Connection, other: Connection) -> None:
    """After subscribe and barrier, a request from elsewhere always finds the subscriber."""
    for number in range(300):
        subject = f"round.{number}"
        subscription = await bus.subscribe_direct(subject, lambda msg: bus.publish_nowait(msg.reply, b"here"))
        await bus.barrier()
        assert (await other.request(subject, b"", timeout=5)).data == b"here"
        await subscription.unsubscribe()


async def test_the_ping_of_a_barrier_goes_out_behind_what_is_pending() -> None:
    """On the wire: SUB, PUB, PING, in the order of the calls."""
    async with FakeServer() as server, await connect(BusSettings(url=server.url), name="test") as connection:
        await connection.subscribe("a")
        connection.publish_nowait("b", b"")
        await connection.barrier()
        assert server.lines[-4:] == [b"SUB a  1\r\n", b"PUB b  0\r\n", b"\r\n", b"PING\r\n"]


async def test_an_info_before_the_first_pong_is_no_obstacle() -> None:
    """A cluster's server may send INFO again before it answers the handshake."""
    async with (
        FakeServer(before_pong=b'INFO {"max_payload":77}\r\n') as server,
        await connect(BusSettings(url=server.url), name="test") as connection,
    ):
        await connection.barrier()
        assert connection.is_connected


async def test_request_tells_no_responders_from_silence(bus: Connection) -> None:
    """Nobody subscribed is known at once; a silent subscriber only at the timeout; nothing is left behind."""
    with pytest.raises(nats.errors.NoRespondersError):
        await bus.request("nobody", b"", timeout=5)
    await bus.subscribe_direct("silent", lambda msg: None)
    with pytest.raises(nats.errors.TimeoutError):
        await bus.request("silent", b"", timeout=0.01)
    with pytest.raises(PayloadTooLarge):
        await bus.request("silent", bytes(bus.max_payload + 1))
    assert bus._resp_map == {}


async def test_jetstream_of_nats_py_works_on_it(bus: Connection) -> None:
    """Streams, acknowledged publishing and pulling go through the overridden methods."""
    js = bus.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    assert (await js.publish("s.a", b"1")).seq == 1
    pull = await js.pull_subscribe("s.>", durable="d")
    (msg,) = await pull.fetch(1, timeout=5)
    await msg.ack_sync()
    assert msg.data == b"1"


HEADERS = [
    pytest.param({"Name": "a\r\nOther: b"}, {"Name": "a  Other: b"}, id="line break"),
    pytest.param({"Name": "a\nPUB x 0\n\n"}, {"Name": "a PUB x 0"}, id="newline"),
    pytest.param({"Name": ""}, {"Name": ""}, id="empty"),
    pytest.param({"Name": "\ud800"}, {"Name": "?"}, id="lone surrogate"),
]


@pytest.mark.parametrize(("sent", "received"), HEADERS)
async def test_a_header_value_cannot_add_a_header(
    bus: Connection, sent: dict[str, str], received: dict[str, str]
) -> None:
    """Line breaks in a value become spaces."""
    got: list[dict[str, str] | None] = []
    await bus.subscribe_direct("a", lambda msg: got.append(msg.headers))
    bus.publish_nowait("a", b"", headers=sent)
    await bus.barrier()
    assert got == [received]


async def test_headers_are_read_where_they_are_wanted(bus: Connection) -> None:
    """What the server tells by a status comes all the same."""
    got: list[Msg] = []
    await bus.subscribe_direct("a", got.append, with_headers=False)
    bus.publish_nowait("a", b"", headers={"Name": "b"})
    bus.publish_nowait("nobody.listens", b"", reply="a")
    await bus.barrier()
    assert [msg.headers and msg.headers["Status"] for msg in got] == [None, "503"]


@pytest.mark.parametrize("name", ["", "a b", "a\r\nb", "ü", "a:b"])
async def test_a_header_name_that_is_none_is_refused(bus: Connection, name: str) -> None:
    """No name can end the line it is on."""
    with pytest.raises(ConfigError, match="header name"):
        bus.publish_nowait("a", b"", headers={name: "x"})


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPING", "a\tb", "\ud800", "a\x00b", "a" * 5000])
async def test_a_subject_that_is_none_is_refused(bus: Connection, subject: str) -> None:
    """In publish and request, as subject and as reply subject; the connection is none the worse."""
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: bus.publish(subject, b""),
        lambda: bus.request(subject, b"", timeout=0.01),
    ]
    for attempt in attempts:
        with pytest.raises(ConfigError):
            await attempt()
    if subject:
        with pytest.raises(ConfigError):
            bus.publish_nowait("a", b"", subject)
    await bus.barrier()


@pytest.mark.parametrize("subject", ["", "a..b", ".a", "a.", "a.>.b", "a*.b", "a b", "a.>b", "\r\n"])
async def test_a_subscription_that_the_server_would_refuse_is_not_sent(bus: Connection, subject: str) -> None:
    """Wildcards are whole tokens and > is the last."""
    with pytest.raises(ConfigError):
        await bus.subscribe(subject)
    with pytest.raises(ConfigError):
        await bus.subscribe_direct(subject, print)
    with pytest.raises(ConfigError):
        await bus.subscribe_direct("a", print, queue="b c")


async def test_headers_count_towards_the_limit(bus: Connection) -> None:
    """A message that only its headers push over the limit is refused here; the connection stays."""
    with pytest.raises(PayloadTooLarge) as caught:
        bus.publish_nowait("a", bytes(bus.max_payload - 10), headers={"Name": "value"})
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (bus.max_payload - 10 + 25, bus.max_payload)
    bus.publish_nowait("a", bytes(bus.max_payload - 25), headers={"Name": "value"})
    await bus.barrier()
    assert bus.stats["reconnects"] == 0


def publish_many(connection: Connection, messages: int) -> None:
    """Publish in one turn of the loop what the socket cannot take at once."""
    for _ in range(messages):
        connection.publish_nowait("nobody", bytes(90_000))


async def test_publish_waits_for_room_and_publish_nowait_does_not(bus_url: str) -> None:
    """More than `pending_bytes` in one turn: one way refuses, the other takes its time."""
    settings = BusSettings(url=bus_url, pending_bytes=100_000)
    async with await connect(settings, name="test") as connection:
        got: list[int] = []
        with pytest.raises(BusUnavailable, match=r"bus\.pending_bytes allows 100000"):
            publish_many(connection, 1000)
        await connection.barrier()
        await connection.subscribe_direct("a", lambda msg: got.append(len(msg.data)))
        for _ in range(100):
            await connection.publish("a", bytes(90_000))
        await connection.barrier()
        assert got == [90_000] * 100


async def test_a_direct_callback_that_raises_harms_nobody(bus: Connection) -> None:
    """Its error is logged once for many, and the next message is handed on."""
    got: list[bytes] = []
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()

    def fail(msg: Msg) -> None:
        got.append(msg.data)
        if msg.data == b"cancelled":
            cancelled.result()
        raise RuntimeError("boom")

    await bus.subscribe_direct("a", fail)
    with capture_logs() as logs:
        for data in (b"1", b"2", b"cancelled", b"3"):
            bus.publish_nowait("a", data)
        await bus.barrier()
    assert got == [b"1", b"2", b"cancelled", b"3"]
    assert [entry["event"] for entry in logs] == ["bus.callback_failed"] * 2
    assert bus.is_connected


async def test_a_drained_direct_subscription_gets_what_is_on_its_way(bus: Connection, other: Connection) -> None:
    """UNSUB, then all that was sent before it, then nothing."""
    got: list[bytes] = []
    subscription = await bus.subscribe_direct("a", lambda msg: got.append(msg.data), queue="q")
    await bus.barrier()
    other.publish_nowait("a", b"before")
    await other.barrier()
    await subscription.drain()
    await subscription.drain()
    other.publish_nowait("a", b"after")
    await other.barrier()
    await bus.barrier()
    assert got == [b"before"]
    assert bus._subs == {}


async def test_a_limited_direct_subscription_ends_by_itself(bus: Connection) -> None:
    """unsubscribe(limit) counts messages on both sides."""
    got: list[bytes] = []
    subscription = await bus.subscribe_direct("a", lambda msg: got.append(msg.data))
    await subscription.unsubscribe(limit=2)
    for data in (b"1", b"2", b"3"):
        bus.publish_nowait("a", data)
    await bus.barrier()
    assert got == [b"1", b"2"]


async def test_a_slow_subscription_is_complained_about_once(bus: Connection) -> None:
    """Dropped messages are counted one by one and logged together."""
    gate = asyncio.Event()

    async def wait(msg: Msg) -> None:
        await gate.wait()

    await bus.subscribe("a", cb=wait, pending_msgs_limit=2)
    with capture_logs() as logs:
        for _ in range(50):
            bus.publish_nowait("a", b"")
        await bus.barrier()
    assert bus.dropped_messages >= 47
    assert [(entry["event"], entry["subject"]) for entry in logs] == [("bus.messages_dropped", "a")]
    gate.set()


async def test_drain_lets_callbacks_finish_and_make_requests(bus_url: str, other: Connection) -> None:
    """The connection closes when the last callback has returned, and its requests are answered until then."""
    done: list[bytes] = []
    started = asyncio.Event()
    await other.subscribe_direct("deep", lambda msg: other.publish_nowait(msg.reply, b"found"))
    await other.barrier()
    connection = await connect(BusSettings(url=bus_url), name="draining")

    async def work(msg: Msg) -> None:
        started.set()
        done.append((await connection.request("deep", b"", timeout=5)).data)

    await connection.subscribe("a", cb=work)
    await connection.barrier()
    for _ in range(3):
        other.publish_nowait("a", b"")
    async with asyncio.timeout(5):
        await started.wait()
        await connection.drain()
    assert done == [b"found"] * 3
    assert connection.is_closed


async def test_drain_does_not_wait_for_ever(bus_url: str) -> None:
    """A callback that hangs is cancelled at the timeout."""
    connection = await connect(BusSettings(url=bus_url), name="draining")
    entered = asyncio.Event()

    async def stuck(msg: Msg) -> None:
        entered.set()
        await asyncio.Event().wait()

    await connection.subscribe("a", cb=stuck)
    connection.publish_nowait("a", b"")
    async with asyncio.timeout(5):
        await entered.wait()
        await connection.drain(timeout=0.05)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_close_delivers_what_was_published_before(bus_url: str, other: Connection) -> None:
    """A process may publish and close at once."""
    got: list[bytes] = []
    await other.subscribe_direct("a", lambda msg: got.append(msg.data))
    await other.barrier()
    connection = await connect(BusSettings(url=bus_url), name="brief")
    for number in range(1000):
        connection.publish_nowait("a", b"%d" % number)
    await connection.close()
    await until(lambda: len(got) >= 1000)
    assert got == [b"%d" % number for number in range(1000)]


async def test_close_twice_and_at_once_is_one_close(bus_url: str) -> None:
    """Any number of callers wait for the same close; afterwards everything says that it is closed."""
    connection = await connect(BusSettings(url=bus_url), name="test")
    with capture_logs() as logs:
        async with asyncio.timeout(5):
            await asyncio.gather(connection.close(), connection.close())
            await connection.close()
    assert [entry["event"] for entry in logs] == ["bus.closed"]
    calls: list[Awaitable[object]] = [
        connection.publish("a"),
        connection.request("a"),
        connection.barrier(),
        connection.subscribe("a"),
        connection.subscribe_direct("a", print),
        connection.wait_connected(),
    ]
    for call in calls:
        with pytest.raises(BusUnavailable, match="is closed"):
            await call
    await connection.wait_disconnected()


async def test_a_callback_may_close_the_connection(bus_url: str, other: Connection) -> None:
    """Close from within a message callback returns there, and its worker ends."""
    connection = await connect(BusSettings(url=bus_url), name="test")
    after_close = asyncio.Event()

    async def close(msg: Msg) -> None:
        await connection.close()
        after_close.set()

    await connection.subscribe("a", cb=close)
    await connection.barrier()
    other.publish_nowait("a", b"")
    async with asyncio.timeout(5):
        await after_close.wait()
    await until(lambda: not any("_wait_for_msgs" in repr(task) for task in asyncio.all_tasks()))
    assert connection.is_closed


async def test_close_ends_whatever_waits(bus_url: str) -> None:
    """A waiting request, next_msg, iterator and stuck callback end with the connection."""
    connection = await connect(BusSettings(url=bus_url), name="test")
    entered = asyncio.Event()

    async def stuck(msg: Msg) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def iterate() -> None:
        async for _ in (await connection.subscribe("c")).messages:
            pass

    await connection.subscribe("a", cb=stuck)
    connection.publish_nowait("a", b"")
    waiting = [
        asyncio.ensure_future(connection.request("a", b"", timeout=60)),
        asyncio.ensure_future((await connection.subscribe("b")).next_msg(timeout=60)),
        asyncio.ensure_future(iterate()),
    ]
    async with asyncio.timeout(5):
        await entered.wait()
        await connection.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], BusUnavailable)
    assert isinstance(results[1], nats.errors.ConnectionClosedError)
    assert results[2] is None


async def test_an_async_function_is_no_callback(bus: Connection) -> None:
    """Nobody would await it, so it is refused when it is added."""

    async def callback() -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        bus.on_disconnect(callback)
