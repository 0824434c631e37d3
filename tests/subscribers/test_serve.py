"""Serving hooks as a process does: real children, real signals."""

import asyncio
import json
import signal
import threading
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from structlog.testing import capture_logs

from children import Child, alive
from hookbus_broker import BusSettings
from hookbus_schemas import BusUnavailable, ConfigError, Decision, Outcome, ToolHook, Verdict, decode, encode, subjects
from hookbus_subscribers import hook, serve
from hooking import Bus, make_event
from support import NatsServer, until

CHILD = """
import asyncio, sys
from pathlib import Path
from hookbus_broker import BusSettings
from hookbus_subscribers import hook, serve

@hook("h")
async def decide(context):
    if context.tool_name == "slow":
        print("taken", flush=True)
        if await asyncio.to_thread(sys.stdin.readline) == "stick\\n":
            print("stuck", flush=True)
            while True:
                pass
    return True

asyncio.run(serve(decide, bus=BusSettings(url=sys.argv[1]), ready=lambda: print("ready", flush=True)))
print("ended", flush=True)
"""


async def read_until(child: Child, wanted: str) -> list[str]:
    """Return the lines that the child prints before this one."""
    lines: list[str] = []
    while (line := await child.line()) != wanted:
        assert line or child.process.returncode is None, f"{wanted!r} never came after {lines}"
        lines.append(line)
    return lines


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_is_told_to_stop_answers_what_it_took(bus: Bus, how: signal.Signals) -> None:
    """And takes nothing new: the next request finds no replica."""
    assert bus.settings.url
    asker = await bus.asker("h")
    async with Child(CHILD, bus.settings.url) as child:
        await read_until(child, "ready")
        taken = await asker.send(encode(asker.context(tool_name="slow")))
        await read_until(child, "taken")
        child.process.send_signal(how)
        assert any("subscriber.stopping" in line for line in [await child.line()])
        await _until_nobody_answers(asker.client, "h")
        assert not taken.done()
        await child.send_line()
        async with asyncio.timeout(5):
            assert decode(Decision, await taken).decision is Verdict.ALLOW
        assert any("subscriber.drained" in line for line in await read_until(child, "ended"))
        async with asyncio.timeout(5):
            assert await child.process.wait() == 0


async def _until_nobody_answers(client: Client, name: str) -> None:
    async with asyncio.timeout(5):
        while True:
            try:  # a probe with a reply subject that no hook may answer, so a served one drops it
                await client.request(subjects.before(name, "probe"), b"", timeout=0.05)
            except NoRespondersError:
                return
            except TimeoutError:
                continue


async def test_a_second_signal_ends_the_process_even_when_its_loop_is_stuck(bus: Bus) -> None:
    """Whoever presses Ctrl-C twice means it."""
    assert bus.settings.url
    asker = await bus.asker("h")
    async with Child(CHILD, bus.settings.url) as child:
        await read_until(child, "ready")
        await asker.send(encode(asker.context(tool_name="slow")))
        await read_until(child, "taken")
        child.process.send_signal(signal.SIGTERM)
        assert "subscriber.stopping" in await child.line()
        assert child.process.stdin
        child.process.stdin.write(b"stick\n")
        await read_until(child, "stuck")
        child.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await child.process.wait() == -signal.SIGTERM


async def test_a_killed_process_leaves_the_hook_to_its_other_replicas(bus: Bus) -> None:
    """As soon as the server has noticed; a request that is sent again finds the other one."""
    assert bus.settings.url
    asker = await bus.asker("h")
    async with Child(CHILD, bus.settings.url) as one, Child(CHILD, bus.settings.url) as two:
        await read_until(one, "ready")
        await read_until(two, "ready")
        await one.end(signal.SIGKILL)
        await asker.ask_until_answered()


async def test_serving_ends_when_it_is_told_to(bus: Bus) -> None:
    """Several hooks on one connection, before and after side; the log says what was served."""
    told: list[tuple[str, str, str, float, bool]] = []

    class Observing(ToolHook):
        name = "observing"

        async def after_execute(
            self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
        ) -> None:
            told.append((tool_name, arguments, result, duration, failed))

    @hook("deciding")
    async def deciding(context: object) -> bool:
        return False

    operator = await bus.streams()
    await bus.record(operator, make_event(0, told=("observing",)))  # before the hook was ever served
    stop, ready = asyncio.Event(), asyncio.Event()
    with capture_logs() as logs:
        serving = asyncio.create_task(serve(Observing(), deciding, bus=bus.settings, stop=stop, ready=ready.set))
        async with asyncio.timeout(5):
            await ready.wait()
        assert (await (await bus.asker("deciding")).ask()).decision is Verdict.DENY
        assert (await (await bus.asker("observing")).ask()).decision is Verdict.ALLOW
        of_others = (make_event(1, told=("deciding",)), make_event(2, Outcome.DENIED), make_event(3))
        ours = (make_event(4, told=("observing",)), make_event(5, Outcome.TIMED_OUT, told=("deciding", "observing")))
        await bus.record(operator, *of_others, *ours)
        await until(lambda: len(told) == 2)
        stop.set()
        async with asyncio.timeout(5):
            await serving
    assert sorted(told) == [("t", "{}", "ok", 1.5, False), ("t", "{}", "ok", 1.5, True)]
    assert [(entry["hook"], entry["after"]) for entry in logs if entry["event"] == "hook.served"] == [
        ("observing", True),
        ("deciding", False),
    ]
    assert [entry["hooks"] for entry in logs if entry["event"] == "subscriber.drained"] == [["observing", "deciding"]]


async def test_the_after_side_begins_when_the_stream_is_there(bus: Bus) -> None:
    """A hook team may deploy before the operator has made the streams."""
    told: list[str] = []

    class Observing(ToolHook):
        name = "observing"

        async def after_execute(
            self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
        ) -> None:
            told.append(tool_name)

    stop, ready = asyncio.Event(), asyncio.Event()
    with capture_logs() as logs:
        serving = asyncio.create_task(serve(Observing(), bus=bus.settings, stop=stop, ready=ready.set))
        await until(lambda: any(entry["event"] == "consumer.interrupted" for entry in logs))
        assert ready.is_set()
        await bus.record(await bus.streams(), make_event(1, told=("observing",)))
        await until(lambda: told == ["t"])
        stop.set()
        async with asyncio.timeout(5):
            await serving


async def test_serving_waits_for_a_bus_that_is_still_starting(own_server: NatsServer) -> None:
    """One clear line, and then it goes on by itself."""
    own_server.stop()
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = BusSettings(url=own_server.url, reconnect_wait=0.01, reconnect_wait_max=0.02)
    with capture_logs() as logs:
        serving = asyncio.create_task(serve(_allow, bus=settings, stop=stop, ready=ready.set))
        await until(lambda: any(entry["event"] == "bus.awaited" for entry in logs))
        own_server.start()
        async with asyncio.timeout(5):
            await ready.wait()
        stop.set()
        async with asyncio.timeout(5):
            await serving
    waits = [entry["server"] for entry in logs if entry["event"] == "bus.awaited"]
    assert waits == [own_server.url]


async def test_serving_without_a_bus_fails_in_time_and_in_one_line(own_server: NatsServer) -> None:
    """What happened, where, what to do."""
    own_server.stop()
    settings = BusSettings(url=own_server.url, connect_timeout=0.1)
    async with asyncio.timeout(5):
        with pytest.raises(BusUnavailable, match=r"nothing listens there; start nats-server") as raised:
            await serve(_allow, bus=settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("number", [0, 2])
async def test_there_must_be_a_hook_and_no_two_of_one_name(number: int) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigError, match="hook"):
        await serve(*[_allow] * number, bus=BusSettings(url="nats://127.0.0.1:1"))


async def test_serving_leaves_signals_as_they_were(bus: Bus) -> None:
    """It may be part of a larger program, also outside its main thread."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(5):
        await serve(_allow, bus=bus.settings, stop=stop)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_hooks_can_be_served_outside_the_main_thread(bus: Bus) -> None:
    """Where nobody can handle signals."""
    asker, ready, stop = await bus.asker("allow"), threading.Event(), threading.Event()

    async def run() -> None:
        served = asyncio.Event()
        serving = asyncio.create_task(serve(_allow, bus=bus.settings, stop=served, ready=ready.set))
        await asyncio.to_thread(stop.wait)
        served.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    await until(ready.is_set)
    assert (await asker.ask()).decision is Verdict.ALLOW
    stop.set()
    await until(lambda: not thread.is_alive())


async def test_hooks_can_be_served_on_an_embedded_bus(tmp_path: Path) -> None:
    """With no URL configured a bus is started, and ends with the serving."""
    stop, pids, settings = asyncio.Event(), list[int](), BusSettings(state_dir=tmp_path / "bus")

    def ready() -> None:
        pids.append(json.loads((settings.state_dir / "server.json").read_text())["pid"])
        assert alive(pids[0])
        stop.set()

    async with asyncio.timeout(15):
        await serve(_allow, bus=settings, stop=stop, ready=ready)
    assert [alive(pid) for pid in pids] == [False]


@hook("allow")
async def _allow(context: object) -> bool:
    return True
