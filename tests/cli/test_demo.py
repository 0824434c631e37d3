"""The demo as its users start it: a process of its own, run to its end, interrupted, killed."""

import io
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from children import Child, alive
from hookbus_cli.demo import picture
from hookbus_cli.demo.record import Replay, differences
from hookbus_cli.demo.view import Row, View
from hookbus_executor import ToolResult
from hookbus_schemas import ConfigError, Outcome, ToolAfterEvent, ToolHookContext
from support import until

DEMO = """
import asyncio, pathlib, sys
from rich.console import Console
from hookbus_cli.demo import run_demo
svg = pathlib.Path(sys.argv[1]) if sys.argv[1:] else None
sys.exit(asyncio.run(run_demo(Console(width=100), svg=svg)))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the demo makes its temporary ones; its path is in each command line of its server."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def server_pids(folder: Path) -> Iterator[int]:
    """Return the processes whose command line names the folder: the demo's nats-server and its guard."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                yield int(path.parent.name)
        except OSError:
            continue


def nothing_left(folder: Path) -> None:
    """Check that neither a server nor a folder of the demo is left."""
    assert list(server_pids(folder)) == []
    assert list(folder.iterdir()) == []


async def begun(demo: Child) -> set[int]:
    """Wait for the first call of the demo, and return the pids of its hook processes."""
    pids: set[int] = set()
    while not (line := await demo.line()).startswith(" 1 list_files"):
        pids |= {int(pid) for pid in re.findall(r"\((\d+)\)", line)}
        assert demo.process.returncode is None
    return pids


async def test_it_ends_well_with_every_call_in_the_record_and_nothing_left(temporary: Path, tmp_path: Path) -> None:
    """Its counts agree with its lines, the picture needs no network, and neither process nor folder stays."""
    svg = tmp_path / "demo.svg"
    async with Child(DEMO, str(svg)) as demo:
        output = (await demo.process.communicate())[0].decode()
        assert demo.process.returncode == 0, output
    rows = re.findall(r"^ ?(\d+) (\w+) .*?(completed|denied|failed|timed_out) ", output, flags=re.MULTILINE)
    counts = {
        outcome: int(count) for count, outcome in re.findall(r"(\d+) (completed|denied|failed|timed_out)", output)
    }
    assert sorted(int(number) for number, *_ in rows) == list(range(1, len(rows) + 1))
    assert counts == {outcome: [row[2] for row in rows].count(outcome) for outcome in counts}
    assert f"The agent saw {len(rows)} calls: each is in the record exactly once" in output
    writes = [outcome for _, tool, outcome in rows if tool == "write_file"].count("completed")
    assert re.search(rf"it would have denied \d+ that ran: .*write_file {writes}\b", output)
    assert re.search(r"shell command=date denied shell-guard: unavailable: ", output)
    assert "WRONG" not in output
    assert re.findall(r"url\(['\"]?http|href", svg.read_text()) == []
    pids = {int(pid) for pid in re.findall(r"[d-t] \((\d+)\)", output)}
    assert not any(alive(pid) for pid in pids)
    nothing_left(temporary)


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
async def test_interrupted_it_leaves_nothing(how: signal.Signals, temporary: Path) -> None:
    """Ctrl-C in the middle ends its processes, removes its folders, and shows in the exit code."""
    async with Child(DEMO) as demo:
        pids = await begun(demo)
        assert len(pids) == 3
        assert await demo.end(how) == 128 + how
    assert not any(alive(pid) for pid in pids)
    nothing_left(temporary)


async def test_killed_it_leaves_no_process(temporary: Path) -> None:
    """Its hooks and its server notice by themselves that it has gone."""
    async with Child(DEMO) as demo:
        pids = await begun(demo)
        pids |= set(server_pids(temporary))
        assert len(pids) > 3
        await demo.end(signal.SIGKILL)
    await until(lambda: not any(alive(pid) for pid in pids), timeout=10)


@pytest.mark.slow
async def test_what_is_not_as_the_demo_says_makes_it_fail(temporary: Path) -> None:
    """With other files than its calls expect it says what was wrong, and exits with 1."""
    other_notes = "import hookbus_cli.demo.tools as tools; tools.FILES['notes.txt'] = 'Any deny stops. record Hooks'\n"
    async with Child(other_notes + DEMO, "") as demo:
        output = (await demo.process.communicate())[0].decode()
    assert demo.process.returncode == 1
    assert "WRONG: call 3 (shell) should say '3 notes.txt', not '0 notes.txt" in output
    assert "hookbus up" not in output
    nothing_left(temporary)


def test_on_a_terminal_a_call_is_shown_while_it_runs() -> None:
    """The table has the row of a call before its result, and its end afterwards."""
    console = Console(width=100, force_terminal=True, file=io.StringIO())
    view, row = View(console), Row(1, "shell", {"command": "date"})
    with console.capture() as captured, view.scene("A scene") as scene:
        scene.add(row)
        row.result = result("a", "Tuesday")
        scene.ended(row)
    running, _, ended = captured.get().partition("completed")
    assert "running" in running
    assert "Tuesday" in ended


def result(call_id: str, text: str = "fine") -> ToolResult:
    """Return what the agent saw of a call that completed."""
    return ToolResult(text, Outcome.COMPLETED, call_id)


def event(call_id: str, text: str = "fine") -> ToolAfterEvent:
    """Return what the record holds of a call that completed."""
    context = ToolHookContext(
        tool_name="tool", arguments_json="{}", call_id=call_id, executor_id="agent", sent_at_ms=1, deadline_ms=2
    )
    return ToolAfterEvent(event_id=call_id, at_ms=2, context=context, outcome=Outcome.COMPLETED, result=text)


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        pytest.param((event("a"), event("b")), [], id="the same"),
        pytest.param((event("a"),), ["call 2 is 0 times in the record"], id="one lost"),
        pytest.param((event("a"), event("b"), event("b")), ["call 2 is 2 times in the record"], id="one doubled"),
        pytest.param(
            (event("a"), event("b"), event("c")),
            ["the record holds a call that the agent did not make: c"],
            id="one too many",
        ),
        pytest.param(
            (event("a"), event("b", "else")),
            [
                "call 2 is recorded as ('tool', <Outcome.COMPLETED: 'completed'>, '', 'else'), "
                "and the agent saw ('tool', <Outcome.COMPLETED: 'completed'>, '', 'fine')"
            ],
            id="one altered",
        ),
    ],
)
def test_a_record_that_differs_from_what_the_agent_saw_is_found_out(
    recorded: tuple[ToolAfterEvent, ...], words: list[str]
) -> None:
    """A call that is lost, doubled, invented or altered is a problem that the demo names."""
    seen = [Row(1, "tool", {}, result("a")), Row(2, "tool", {}, result("b"))]
    assert differences(Replay(recorded, 0.0), seen) == words


def test_a_picture_in_no_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    """Nobody waits for a demo whose picture cannot be written."""
    with pytest.raises(ConfigError, match="there is no folder"):
        picture.target(tmp_path / "missing" / "demo.svg")


def test_a_row_shows_arguments_with_brackets_as_they_are() -> None:
    """What a model wrote is text, never markup."""
    row = Row(1, "shell", {"command": "echo [red]hi[/red]"}, result("a", "[bold]hi"))
    console = Console(width=120)
    with console.capture() as captured:
        console.print(row.line)
    assert captured.get().strip() == "1 shell command=echo [red]hi[/red] completed [bold]hi"
