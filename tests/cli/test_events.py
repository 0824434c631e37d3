"""``hookbus events tail`` and ``replay``: the record, to people and programs."""

import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.running import hookbus, one_by_one, running
from hookbus_schemas import Outcome
from hooking import Bus, make_event


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Bus]:
    """A bus with 30 events in its record: each third one of a call that was denied, each fifth one of executor e2."""
    async with AsyncExitStack() as stack:
        bus = Bus(bus_url, stack)
        outcomes = [Outcome.DENIED, Outcome.COMPLETED, Outcome.FAILED]
        events = [
            make_event(n, outcomes[n % 3], session_id=f"s{n % 2}", executor_id="e1" if n % 5 else "e2")
            for n in range(30)
        ]
        await bus.record(await bus.streams(), *events)
        yield bus


SHOWN: dict[tuple[str, ...], Sequence[int]] = {
    ("tail",): range(10, 30),
    ("tail", "-n", "3"): range(27, 30),
    ("tail", "-n", "3", "--outcome", "denied"): (21, 24, 27),
    ("tail", "-n", "0"): (),
    ("tail", "-n", "99"): range(30),
    ("replay",): range(30),
    ("replay", "--executor", "e2"): range(0, 30, 5),
    ("replay", "--session", "s1", "--outcome", "denied"): range(3, 30, 6),
    ("replay", "--since", "1h", "--until", "2100-01-01T00:00"): range(30),
    ("replay", "--until", "1h"): (),
}
"""What each command is to print of them, by their numbers."""


async def test_tail_shows_the_newest_and_replay_all(bus: Bus, tmp_path: Path) -> None:
    """Oldest first, and only what matches."""
    commands = [("events", *arguments, "--json") for arguments in SHOWN]
    all_ended = await one_by_one(tmp_path, *commands, HOOKBUS_URL=bus.settings.url or "")
    assert [(ended.code, ended.err) for ended in all_ended] == [(0, "")] * len(SHOWN)
    shown = [[json.loads(line)["event_id"] for line in ended.out.splitlines()] for ended in all_ended]
    assert shown == [[f"event-{number}" for number in numbers] for numbers in SHOWN.values()]


@pytest.mark.parametrize("command", [("tail", "-n", "1"), ("replay",)])
async def test_followed_they_go_on_with_what_comes(bus: Bus, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Each event once, with the same filter, until Ctrl-C."""
    arguments = ("events", *command, "-f", "--json", "--outcome", "denied")
    async with running(tmp_path, *arguments, HOOKBUS_URL=bus.settings.url or "") as following:
        await following.says('{"v":1,"event_id":"event-27"')
        new = [make_event(30), make_event(31, Outcome.DENIED)]
        await bus.record(await bus.connection(), *new)
        assert await following.says("{") == new[1].model_dump_json() + "\n"
        assert await following.end(signal.SIGINT) == 130


async def test_a_time_that_no_calendar_knows_is_shown_as_it_is(bus: Bus, tmp_path: Path) -> None:
    """An executor's clock may be anything; its events are seen all the same."""
    strange = make_event(30).model_copy(update={"at_ms": 2**63 - 1, "event_id": "strange"})
    await bus.record(await bus.connection(), strange)
    ended = await hookbus(tmp_path, "events", "tail", "-n", "1", HOOKBUS_URL=bus.settings.url or "")
    assert (ended.code, ended.out) == (0, f"{2**63 - 1} ms - t completed 1500 ms\n")
