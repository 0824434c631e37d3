"""The outbox's file: what is read back after a death, however it came."""

import os
import struct
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookbus_executor.journal import SEGMENT_BYTES, Journal, JournalUnwritable, Kind, left_behind

Entries = list[tuple[Kind, str, bytes]]


def died(journal: Journal) -> Path:
    """Return a folder as the death of the owner leaves it: a copy, since this process holds the lock of the other."""
    copy = journal.folder.parent.parent / "copy" / journal.folder.name
    copy.mkdir(parents=True)
    for path in journal.folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    return copy.parent


def test_the_newest_entry_of_each_event_that_is_not_done_is_left_behind(tmp_path: Path) -> None:
    """In the order in which the calls began."""
    journal = Journal.open(tmp_path / "outbox")
    for event_id in ("a", "b", "c"):
        journal.append(Kind.ADMITTED, event_id, b"admitted " + event_id.encode())
    journal.append(Kind.ENDED, "c", b"c ended")
    journal.append(Kind.ENDED, "b", b"b ended")
    journal.append(Kind.DONE, "b")
    left = list(left_behind(died(journal)))
    assert left == [[(Kind.ADMITTED, "a", b"admitted a"), (Kind.ENDED, "c", b"c ended")]]


def test_a_folder_goes_when_it_was_taken_and_never_while_its_owner_lives(tmp_path: Path) -> None:
    """So nothing is sent by two, and nothing is left lying."""
    journal = Journal.open(tmp_path / "outbox")
    journal.append(Kind.ENDED, "a", b"ended")
    assert list(left_behind(tmp_path / "outbox")) == []
    journal.close()
    assert list(left_behind(tmp_path / "outbox")) == [[(Kind.ENDED, "a", b"ended")]]
    assert list(left_behind(tmp_path / "outbox")) == []
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_folder_in_which_nothing_is_needed_goes_with_its_owner(tmp_path: Path) -> None:
    """All was acknowledged."""
    journal = Journal.open(tmp_path / "outbox")
    journal.append(Kind.ENDED, "a", b"ended")
    journal.append(Kind.DONE, "a")
    journal.close()
    assert list((tmp_path / "outbox").iterdir()) == []


def test_segments_go_in_order_when_nothing_in_them_is_needed(tmp_path: Path) -> None:
    """One straggler keeps those behind it, since they say what is done; without it the disk is free again."""
    journal = Journal.open(tmp_path / "outbox")
    body = bytes(SEGMENT_BYTES // 4)
    journal.append(Kind.ADMITTED, "straggler", b"")
    for number in range(20):
        journal.append(Kind.ENDED, str(number), body)
        journal.append(Kind.DONE, str(number))
    assert len(list(journal.folder.iterdir())) > 4
    assert [[entry[1] for entry in left] for left in left_behind(died(journal))] == [["straggler"]]
    journal.append(Kind.ENDED, "straggler", b"")
    journal.append(Kind.DONE, "straggler")
    assert len(list(journal.folder.iterdir())) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True, deadline=None)
@given(cut=st.integers(0, 400), flipped=st.none() | st.integers(0, 399))
def test_a_torn_or_altered_tail_is_left_out_and_what_is_before_it_is_read(
    cut: int, flipped: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Wherever the last write ended, and whatever the disk made of it."""
    journal = Journal.open(tmp_path_factory.mktemp("torn") / "outbox")
    written: Entries = [(Kind.ENDED, f"event-{number}", bytes([number]) * 20) for number in range(10)]
    for entry in written:
        journal.append(*entry)
    parent = died(journal)
    (segment,) = (path for path in parent.glob("*/*") if path.name != "lock")
    data = bytearray(segment.read_bytes()[:cut])
    if flipped is not None and flipped < len(data):
        data[flipped] ^= 0x40
    segment.write_bytes(bytes(data))
    size = len(segment.read_bytes()) if flipped is None or flipped >= len(data) else min(cut, flipped)
    whole = size // 38
    (left,) = left_behind(parent)
    assert left == written[: min(whole, 10)]


def test_what_is_no_folder_of_a_journal_is_left_alone(tmp_path: Path) -> None:
    """Somebody's file, or nothing at all."""
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "file").write_text("mine")
    assert list(left_behind(tmp_path / "outbox")) == []
    assert list(left_behind(tmp_path / "nowhere")) == []
    assert (tmp_path / "outbox" / "file").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    """At the start, not in the middle of a call."""
    (tmp_path / "outbox").write_text("in the way")
    with pytest.raises(JournalUnwritable, match=f"outbox {tmp_path}/outbox/[0-9a-f]+ cannot be made: "):
        Journal.open(tmp_path / "outbox")


def _of_another_version(segment: Path) -> None:
    checked = struct.pack("<BH", 9, 1) + b"a"
    segment.write_bytes(struct.pack("<II", 0, zlib.crc32(checked)) + checked)


def _with_an_id_that_is_no_text(segment: Path) -> None:
    checked = struct.pack("<BH", 2, 1) + b"\xff"
    segment.write_bytes(struct.pack("<II", 0, zlib.crc32(checked)) + checked)


def _with_a_pipe(segment: Path) -> None:
    segment.unlink()
    os.mkfifo(segment)


def _with_a_folder(segment: Path) -> None:
    segment.unlink()
    segment.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_of_another_version, id="kind of another version"),
        pytest.param(_with_an_id_that_is_no_text, id="id that is no text"),
        pytest.param(_with_a_pipe, id="pipe"),
        pytest.param(_with_a_folder, id="folder"),
    ],
)
def test_a_folder_that_cannot_be_read_is_left_alone_and_the_others_are_taken(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """An executor starts, whatever lies there."""
    parent = tmp_path / "outbox"
    for event_id in ("a", "b"):
        journal = Journal.open(parent)
        journal.append(Kind.ENDED, event_id, b"ended")
        journal.close()
    first, second = sorted(parent.iterdir())
    damage(first / "0000000001")
    assert len([entry for left in left_behind(parent) for entry in left]) == 1
    assert list(parent.iterdir()) == [first]
    assert not second.exists()


def test_executors_that_start_at_once_do_not_take_each_other_for_left_behind(tmp_path: Path) -> None:
    """A folder is locked before anybody sees it."""
    parent, stop = tmp_path / "outbox", threading.Event()

    def take() -> int:
        taken = 0
        while not stop.is_set():
            taken += sum(map(len, left_behind(parent)))
        return taken

    with ThreadPoolExecutor(2) as others:
        taking = [others.submit(take) for _ in range(2)]
        try:
            for _ in range(300):
                journal = Journal.open(parent)
                journal.append(Kind.ENDED, "a", b"ended")
                journal.append(Kind.DONE, "a")
                journal.close()
        finally:
            stop.set()
        assert [one.result() for one in taking] == [0, 0]
