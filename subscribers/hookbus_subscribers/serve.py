"""Serving hooks until told to stop: what a hook team runs as a replica. Below: `server` asks, `consumer` tells."""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from hookbus_broker import BusSettings, Connection, connect, open_bus, redacted
from hookbus_broker.log import say
from hookbus_broker.tasks import backoff
from hookbus_schemas import BusUnavailable, ConfigError, Outcome, ToolAfterEvent, ToolDeniedEvent
from hookbus_schemas.hook import Hook, observer, observes
from hookbus_schemas.threads import Threads
from hookbus_subscribers.consumer import Consumer
from hookbus_subscribers.durable import durable_name
from hookbus_subscribers.hook import check_name
from hookbus_subscribers.server import HookServer
from hookbus_subscribers.taken import Handler

log = structlog.get_logger()

AFTER_SUBJECTS = ("tool.after.>",)
"""Events that hooks are told of: calls that ran."""

AFTER_CONCURRENCY = 16
"""Calls of `after_execute` that run at once, for each hook."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve(
    *hooks: Hook, bus: BusSettings, stop: asyncio.Event | None = None, ready: Callable[[], object] | None = None
) -> None:
    """Serve the hooks until SIGTERM, SIGINT or `stop`, then drain: what was taken is answered, nothing new is taken.

    Signals are handled in the main thread only. A second one has its usual effect: it ends the process at once.

    Args:
        hooks: each becomes one replica of the hook of its name, and is told of calls that ran if it wants to be.
        bus: where to connect; an embedded server is started or shared when it names none.
        stop: ends the serving when set.
        ready: called when all hooks are served.

    Raises:
        ConfigError: no hook, or two of one name.
        BusUnavailable: the bus was not there within `bus.connect_timeout` seconds.
        PermissionRefused: this identity may not serve one of the hooks.
    """
    _check(hooks)
    stop = stop or asyncio.Event()
    with _signals(stop):
        async with open_bus(bus) as url:
            connection = await _connect(bus, url, hooks[0].name)
            try:
                await _serve_on(connection, hooks, stop, ready)
            finally:
                await connection.close()


def _check(hooks: tuple[Hook, ...]) -> None:
    names = [check_name(getattr(hook, "name", None)) for hook in hooks]
    if not names:
        raise ConfigError("there is no hook to serve: give at least one")
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two hooks are called {min(doubled)}: their names must differ")


async def _serve_on(
    connection: Connection, hooks: tuple[Hook, ...], stop: asyncio.Event, ready: Callable[[], object] | None
) -> None:
    ends: list[Callable[[], Awaitable[None]]] = []
    try:
        for hook in hooks:
            server = HookServer(hook, connection)
            await server.start()
            ends.append(server.drain)
            if observes(hook):
                consumer = after_side(hook, connection)
                await consumer.start()
                ends.append(consumer.stop)
            say(log.info, "hook.served", hook=hook.name, after=observes(hook), server=connection.server)
        if ready is not None:
            ready()
        await stop.wait()
    finally:
        await asyncio.gather(*(end() for end in ends))
    say(log.info, "subscriber.drained", hooks=[hook.name for hook in hooks])


def after_side(hook: Hook, connection: Connection) -> Consumer:
    """Return the consumer that tells a hook of the calls that ran; all replicas of the hook share it.

    It is told of those that its registration was for when they ran. A hook that has never been served is told of
    nothing that ran before.
    """
    return Consumer(
        connection,
        durable_name(hook.name),
        _teller(hook),
        subjects=AFTER_SUBJECTS,
        since=time.time(),
        concurrency=AFTER_CONCURRENCY,
    )


def _teller(hook: Hook) -> Handler:
    observe = observer(hook, Threads(AFTER_CONCURRENCY))

    async def tell(event: ToolAfterEvent | ToolDeniedEvent) -> None:
        if isinstance(event, ToolAfterEvent) and hook.name in event.told:
            failed = event.outcome is not Outcome.COMPLETED
            await observe(event.context, event.result, event.duration_ms / 1000, failed)

    return tell


async def _connect(bus: BusSettings, url: str, name: str) -> Connection:
    """Connect, waiting for a bus that is still starting."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + bus.connect_timeout
    waited = False
    for wait in backoff(bus.reconnect_wait, bus.reconnect_wait_max):
        try:
            return await connect(bus, name=f"hook-{name}", url=url)
        except BusUnavailable as error:
            if loop.time() + wait >= give_up_at:
                raise
            if not waited:
                say(log.warning, "bus.awaited", server=redacted(url), timeout_s=bus.connect_timeout, problem=str(error))
            waited = True
            await asyncio.sleep(wait)
    raise AssertionError("backoff never ends")


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on the first signal; leave the second to the system, so that it works even when the loop is stuck."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def on_signal(number: signal.Signals) -> None:
        for each in SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        if stop.is_set():
            signal.raise_signal(number)  # the second came before the first was looked at
        say(log.info, "subscriber.stopping", signal=number.name)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler or signal.SIG_DFL)
