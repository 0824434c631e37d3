"""``hookbus events export``: the record as files for other programs."""

import asyncio
import csv
import io
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from cli.running import COMMAND, Ended, environment, hookbus
from hookbus_cli import formats
from hookbus_cli.formats import Format, marked, writer_of
from hookbus_cli.rows import COLUMNS
from hookbus_schemas import ChainLink, HookDecision, Outcome, Verdict
from hookbus_subscribers import StoredEvent
from hooking import Bus, Event, make_event

ODD = '{"text": "a,\\"b\\"\\n=1+1;\\u0000é😀"}\r\n'


def odd_events() -> list[Event]:
    """Return one call of each kind, with texts that no table likes."""
    ran = make_event(
        0, session_id="=cmd|' /C calc'!A0", sender_id="a\nb", channel_id="'quoted", tool_name="t,1", arguments_json=ODD
    )
    decision = HookDecision(hook="h", decision=Verdict.ALLOW, elapsed_ms=0.5)
    link = ChainLink(chain="c1", sequence=7)
    ran = ran.model_copy(update={"result": "-rw\0é", "decisions": (decision,), "unguarded_by": ("é",), "link": link})
    denied = make_event(1, Outcome.DENIED).model_copy(update={"reason": "@never", "at_ms": 1_800_000_000_123})
    return [ran, denied]


@pytest.fixture
async def bus(bus_url: str) -> AsyncIterator[Bus]:
    """A bus that has those in its record."""
    async with AsyncExitStack() as stack:
        bus = Bus(bus_url, stack)
        await bus.record(await bus.streams(), *odd_events())
        yield bus


async def export(folder: Path, bus: Bus, *arguments: str) -> Ended:
    """Export from this bus."""
    return await hookbus(folder, "events", "export", *arguments, HOOKBUS_URL=bus.settings.url or "")


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return [path.name for path in folder.iterdir()]


async def test_json_lines_hold_each_event_whole(bus: Bus, tmp_path: Path) -> None:
    """To a file and to standard output, the same bytes; nothing else is left in the folder."""
    ended = await export(tmp_path, bus, "calls.jsonl")
    assert (ended.code, ended.out, ended.err) == (0, "2 calls written to calls.jsonl\n", "")
    written = (tmp_path / "calls.jsonl").read_text()
    assert [json.loads(line) for line in written.splitlines()] == [
        json.loads(event.model_dump_json()) for event in odd_events()
    ]
    printed = await export(tmp_path, bus, "-")
    assert (printed.code, printed.out, printed.err) == (0, written, "")
    assert names(tmp_path) == ["calls.jsonl"]


async def test_a_table_has_a_row_for_each_call(bus: Bus, tmp_path: Path) -> None:
    """In CSV a text that would be a formula is marked; taking the mark off gives the text as it was."""
    assert (await export(tmp_path, bus, "calls.csv")).code == 0
    content = (tmp_path / "calls.csv").read_bytes().decode()
    first, second = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    assert list(first) == list(COLUMNS)
    assert not any(cell.startswith(formats.MARKED[:-1]) for cell in (*first.values(), *second.values()))
    plain = {column: cell.removeprefix("'") for column, cell in first.items()}
    assert json.loads(plain.pop("decisions"))[0]["elapsed_ms"] == 0.5
    assert plain == {
        "time": "1970-01-01T00:00:00.000Z",
        "event_id": "event-0",
        "type": "tool:after",
        "executor": "e1",
        "session": "=cmd|' /C calc'!A0",
        "sender": "a\nb",
        "channel": "'quoted",
        "call_id": "c0",
        "tool": "t,1",
        "outcome": "completed",
        "denied_by": "",
        "reason": "",
        "reason_code": "",
        "duration_ms": "1500.0",
        "admission_ms": "0.0",
        "arguments_json": ODD,
        "result": "-rw\0é",
        "unguarded_by": '["é"]',
        "chain": "c1",
        "sequence": "7",
    }
    assert (second["time"], second["denied_by"], second["reason"]) == ("2027-01-15T08:00:00.123Z", "h", "'@never")


async def test_parquet_holds_the_same_with_types(bus: Bus, tmp_path: Path) -> None:
    """Texts as they are, numbers and times as such, and nothing where there is nothing."""
    assert (await export(tmp_path, bus, "calls.parquet")).code == 0
    table = parquet.read_table(tmp_path / "calls.parquet")
    assert table.column_names == list(COLUMNS)
    assert (table.schema.field("time").type, table.schema.field("sequence").type) == (
        pa.timestamp("ms", "UTC"),
        "int64",
    )
    first, second = table.to_pylist()
    texts = {"session": "=cmd|' /C calc'!A0", "channel": "'quoted", "arguments_json": ODD, "result": "-rw\0é"}
    expected = texts | {"duration_ms": 1500.0, "denied_by": None, "chain": "c1", "sequence": 7}
    assert {column: first[column] for column in expected} == expected
    assert second["time"].isoformat() == "2027-01-15T08:00:00.123000+00:00"
    assert (second["reason"], second["duration_ms"], second["sequence"]) == ("@never", None, None)


async def test_only_what_matches_is_written(bus: Bus, tmp_path: Path) -> None:
    """By the same filters as are shown; the form that was said, whatever the suffix; nothing at all is a file too."""
    await export(tmp_path, bus, "denied.txt", "--format", "jsonl", "--outcome", "denied")
    assert [json.loads(line)["event_id"] for line in (tmp_path / "denied.txt").read_text().splitlines()] == ["event-1"]
    await export(tmp_path, bus, "none.csv", "--until", "1h")
    assert (tmp_path / "none.csv").read_text() == ",".join(COLUMNS) + "\n"
    await export(tmp_path, bus, "none.parquet", "--tool", "nosuch*")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_a_large_record_is_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of rows, and by their size: memory holds one group."""
    monkeypatch.setattr(formats, "GROUP_ROWS", 10)
    monkeypatch.setattr(formats, "GROUP_CHARACTERS", 10_000)
    with (tmp_path / "calls.parquet").open("wb") as file:
        writer = writer_of(Format.PARQUET)(file)
        for number in range(25):
            length = 5000 if number in (11, 12) else 1
            writer.add(StoredEvent(number, make_event(number, arguments_json="x" * length)))
        writer.finish()
    written = parquet.ParquetFile(tmp_path / "calls.parquet")
    sizes = [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)]
    assert sizes == [10, 3, 10, 2]
    assert written.read(["call_id"]).column(0).to_pylist() == [f"c{number}" for number in range(25)]


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "＝1", "'a", "''"])  # noqa: RUF001
def test_what_a_spreadsheet_would_run_is_marked(text: str) -> None:
    """And nothing else: numbers stay numbers."""
    assert marked(text) == f"'{text}"
    assert [marked(value) for value in (-1, -1.5, None, "", "a=1", '{"a": "=1"}')] == [
        -1,
        -1.5,
        None,
        "",
        "a=1",
        '{"a": "=1"}',
    ]


async def test_what_cannot_be_written_is_one_line(bus: Bus, tmp_path: Path) -> None:
    """With exit code 2; a file that was there stays as it was."""
    (tmp_path / "folder.csv").mkdir()
    for arguments, says in {
        ("nowhere/calls.csv",): "nowhere/calls.csv cannot be written: No such file or directory",
        ("folder.csv",): "folder.csv is there and no file: choose another name",
        ("calls.xlsx",): "calls.xlsx: its suffix is none of .jsonl, .ndjson, .csv, .parquet",
        ("-", "--format", "parquet"): "Parquet is not written to standard output: name a file",
        ("calls.csv", "--since", "soon"): "time 'soon' should be such as 30s",
    }.items():
        ended = await export(tmp_path, bus, *arguments)
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert says in ended.err
    assert names(tmp_path) == ["folder.csv"]


async def in_shell(folder: Path, bus: Bus, script: str, *arguments: str) -> Ended:
    """Export as a shell script says, which runs the command as ``"$@"``."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", script, "sh", *COMMAND, "events", "export", *arguments),
        cwd=folder,
        env=environment(HOOKBUS_URL=bus.settings.url or "", PYTHONDONTWRITEBYTECODE="1"),
        stdout=-1,
        stderr=-1,
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
async def test_a_disk_that_is_full_leaves_the_old_file(bus: Bus, tmp_path: Path, suffix: str) -> None:
    """One line says so, and no half file is left."""
    noise = [make_event(n, sender_id=os.urandom(20_000).hex()) for n in range(2, 6)]
    await bus.record(await bus.connection(), *noise)
    old = tmp_path / f"calls.{suffix}"
    old.write_text("old")
    ended = await in_shell(tmp_path, bus, 'ulimit -f 40; exec "$@"', old.name)
    assert ended == Ended(2, "", f"hookbus: {old.name} cannot be written: File too large\n")
    assert (names(tmp_path), old.read_text()) == ([old.name], "old")


async def test_an_output_that_is_full_is_one_line(bus: Bus, tmp_path: Path) -> None:
    """The device that is always full plays it; a reader that has left is no error."""
    ended = await in_shell(tmp_path, bus, '"$@" >/dev/full', "-")
    assert ended == Ended(2, "", "hookbus: standard output cannot be written: No space left on device\n")
    ended = await in_shell(tmp_path, bus, '{ "$@"; echo $? >&2; } | exec true', "-", "--format", "csv")
    assert ended == Ended(0, "", "0\n")


INTERRUPTED = """
import os, signal, sys
from hookbus_cli import formats
from hookbus_cli.main import main

class Stopping(formats.JsonLines):
    def add(self, stored):
        super().add(stored)
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))

formats.JsonLines = Stopping
main(["events", "export", "calls.jsonl"])
"""


@pytest.mark.parametrize(
    ("how", "code", "left"), [("SIGINT", 130, 0), ("SIGTERM", 143, 0), ("SIGKILL", -9, 1)], ids=["int", "term", "kill"]
)
async def test_an_export_that_is_interrupted_leaves_no_file_of_its_name(
    bus: Bus, tmp_path: Path, how: str, code: int, left: int
) -> None:
    """What a killed process leaves has a hidden name that says that it is a part."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", INTERRUPTED, how),
        cwd=tmp_path,
        env=environment(HOOKBUS_URL=bus.settings.url or ""),
        stdout=-1,
    )
    async with asyncio.timeout(30):
        await process.communicate()
    found = names(tmp_path)
    assert (process.returncode, len(found)) == (code, left)
    assert all(name.startswith(".calls.jsonl.") and name.endswith(".part") for name in found)


async def test_without_pyarrow_it_says_what_to_install(bus: Bus, tmp_path: Path) -> None:
    """And writes nothing."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    environ = environment(HOOKBUS_URL=bus.settings.url or "")
    environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environ['PYTHONPATH']}"
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "events", "export", "calls.parquet", cwd=tmp_path, env=environ, stderr=-1
    )
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert (process.returncode, err) == (2, b"hookbus: Parquet needs pyarrow: `pip install 'hookbus[parquet]'`\n")
    assert not (tmp_path / "calls.parquet").exists()


async def test_on_a_terminal_a_bar_shows_how_far_it_is(bus: Bus, tmp_path: Path) -> None:
    """Elsewhere nothing is said on standard error, as the other tests see."""
    main_end, terminal = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "events", "export", "calls.csv"),
            cwd=tmp_path,
            env=environment(HOOKBUS_URL=bus.settings.url or "", TERM="xterm"),
            stdout=-1,
            stderr=terminal,
        )
        async with asyncio.timeout(30):
            await process.communicate()
        shown = os.read(main_end, 100_000)
    finally:
        os.close(terminal)
        os.close(main_end)
    assert process.returncode == 0
    assert b"events" in shown
    assert b"100%" in shown
