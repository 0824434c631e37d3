"""``hookbus events set-aside`` and ``retry``: what a consumer could not handle, seen and handed back."""

import json
from contextlib import AsyncExitStack
from pathlib import Path

from cli.running import hookbus
from hookbus_subscribers import Consumer
from hooking import Bus, Event, make_event
from support import until


async def test_what_a_consumer_could_not_handle_is_listed_and_handed_back(bus_url: str, tmp_path: Path) -> None:
    """With exit code 1 as long as it fails, 0 when it was handled; then nothing is listed."""
    broken = {"event-0", "event-1"}

    async def handle(event: Event) -> None:
        if event.event_id in broken:
            raise ValueError("[red]no\x1b")

    async with AsyncExitStack() as stack:
        bus = Bus(bus_url, stack)
        operator = await bus.streams()
        await bus.record(operator, make_event(0), make_event(1))
        async with Consumer(await bus.connection(), "audit", handle, max_deliver=1) as consumer:
            await until(lambda: consumer.consumed.set_aside == 2)
            listed = await hookbus(tmp_path, "events", "set-aside", HOOKBUS_URL=bus_url, COLUMNS="200")
            assert r"ValueError: [red]no\x1b" in listed.out
            found = json.loads((await hookbus(tmp_path, "events", "set-aside", "--json", HOOKBUS_URL=bus_url)).out)
            assert all(entry.pop("at_ms") > 0 for entry in found)
            assert found[1] == {
                "durable": "audit",
                "sequence": 2,
                "event_id": "event-1",
                "attempts": 1,
                "error": "ValueError: [red]no\x1b",
            }
            broken.remove("event-0")
            both = await hookbus(tmp_path, "events", "retry", "audit", HOOKBUS_URL=bus_url)
            said = "1 handled\n2 failed: ValueError: [red]no\\x1b; it stays set aside\n"
            assert (both.code, both.out, both.err) == (1, said, "")
            broken.clear()
            again = await hookbus(tmp_path, "events", "retry", "audit", "2", HOOKBUS_URL=bus_url)
            assert (again.code, again.out) == (0, "2 handled\n")
        for command in (("set-aside",), ("set-aside", "--consumer", "audit"), ("retry", "audit")):
            none = await hookbus(tmp_path, "events", *command, HOOKBUS_URL=bus_url)
            assert (none.code, none.out, none.err) == (0, "no event is set aside\n", "")


async def test_a_slip_is_one_line(bus_url: str, tmp_path: Path) -> None:
    """With exit code 2: an event that is not set aside, a consumer that does not run."""
    async with AsyncExitStack() as stack:
        bus = Bus(bus_url, stack)
        operator = await bus.streams()
        await bus.record(operator, make_event(0))
        await operator.jetstream().publish("$KV.SET_ASIDE.audit.1", b'{"durable": "audit", "sequence": 1}')
        for arguments, says in {
            ("audit", "1", "5"): "5 of consumer audit: not set aside; `hookbus events set-aside` lists what is",
            ("audit",): "no process of consumer audit is running: start one and try again",
        }.items():
            ended = await hookbus(tmp_path, "events", "retry", *arguments, HOOKBUS_URL=bus_url)
            assert (ended.code, ended.out, ended.err) == (2, "", f"hookbus: {says}\n")
