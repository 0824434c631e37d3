"""``hookbus events tail`` and ``replay``: the record, to people and programs."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.running import hookbus, running
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


async def ids(folder: Path, bus: Bus, *arguments: str) -> list[int]:
    """Return the numbers of the events that a command prints."""
    ended = await hookbus(folder, "events", *arguments, "--json", HOOKBUS_URL=bus.settings.url or "")
    assert (ended.code, ended.err) == (0, "")
    return [int(json.loads(line)["event_id"].removeprefix("event-")) for line in ended.out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        pytest.param(("tail",), range(10, 30), id="the newest twenty"),
        pytest.param(("tail", "-n", "3"), range(27, 30), id="the newest three"),
        pytest.param(("tail", "-n", "3", "--outcome", "denied"), (21, 24, 27), id="the newest three that match"),
        pytest.param(("tail", "-n", "0"), (), id="none"),
        pytest.param(("tail", "-n", "99"), range(30), id="fewer than were asked for"),
        pytest.param(("replay",), range(30), id="all"),
        pytest.param(("replay", "--executor", "e2"), range(0, 30, 5), id="of one executor"),
        pytest.param(("replay", "--session", "s1", "--outcome", "denied"), range(3, 30, 6), id="two filters"),
        pytest.param(("replay", "--since", "1h", "--until", "2100-01-01T00:00"), range(30), id="between two times"),
        pytest.param(("replay", "--until", "1h"), (), id="before a time"),
    ],
)
async def test_tail_shows_the_newest_and_replay_all(
    bus: Bus, tmp_path: Path, arguments: tuple[str, ...], numbers: range | tuple[int, ...]
) -> None:
    """Oldest first, and only what matches."""
    assert await ids(tmp_path, bus, *arguments) == list(numbers)


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
