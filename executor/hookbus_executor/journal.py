"""The outbox's file: what must not be lost when the process dies, appended before anybody goes on.

A folder beneath ``state_dir/outbox`` belongs to one running executor, which holds a lock on it; the lock ends with the
process, however that ends. The folder holds segments of entries; the newest one of an event counts. A segment goes when
nothing in it is needed any more, and in order, since a later one may say that an entry of an earlier one is done. An
entry is written to the operating system: it survives the death of the process. That of the machine it survives when
`sync` has been called after it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import structlog

from hookbus_broker.log import say
from hookbus_schemas import HookbusError

SEGMENT_BYTES = 4 * 1024 * 1024
"""Bytes after which a new segment begins."""

LOCK = "lock"

UNSEEN = "."
"""What the name of a folder begins with that is being made or removed."""

_HEAD = struct.Struct("<IIBH")
"""Length of the body in bytes, CRC-32 of all that follows it here and of the body, kind, bytes of the event id."""

_log = structlog.get_logger()


class JournalUnwritable(HookbusError, OSError):
    """The outbox's file cannot be written, so nothing may run that would leave no trace."""


class Kind(Enum):
    """What an entry says of an event."""

    ADMITTED = 1
    """A call is about to run; the body is its event, should the process die."""
    ENDED = 2
    """The body is the event."""
    DONE = 3
    """The stream has it; no body."""
    PART = 4
    """The body is a part of a text that is too large for its event; it comes before that event."""


@dataclass(slots=True)
class _Segment:
    path: Path
    needed: int = 0


class Journal:
    """The folder of one executor.

    Attributes:
        folder: where it is.
    """

    def __init__(self, folder: Path, *, synced: bool = False) -> None:
        self.folder = folder
        self._synced = synced
        self._finished: list[int] = []
        self._segments: deque[_Segment] = deque()
        self._where: dict[str, _Segment] = {}
        self._number = 0
        self._size = 0
        self._file = -1
        self._lock = -1

    @classmethod
    def open(cls, parent: Path, *, synced: bool = False) -> "Journal":
        """Make a new folder beneath `parent` and lock it.

        Args:
            parent: where executors keep their folders.
            synced: whether `sync` is going to be called.

        Raises:
            JournalUnwritable: that is not possible there.
        """
        journal = cls(parent / secrets.token_hex(8), synced=synced)
        try:
            unseen = parent / f"{UNSEEN}{journal.folder.name}"
            unseen.mkdir(parents=True)
            journal._lock = _locked(unseen)
            unseen.rename(journal.folder)  # with its lock: whoever starts at the same time does not take it over
            journal._roll()
            if synced:
                _sync_folders(journal.folder, parent)
        except OSError as error:
            raise JournalUnwritable(f"outbox {journal.folder} cannot be made: {error.strerror}") from error
        return journal

    def append(self, kind: Kind, event_id: str, body: bytes = b"") -> None:
        """Write an entry; when this returns, the death of this process loses nothing of it.

        Raises:
            JournalUnwritable: the disk is full or gone; the file is as it was before.
        """
        try:
            if self._size >= SEGMENT_BYTES:
                self._roll()
            self._write(_packed(kind, event_id, body))
        except OSError as error:
            if kind is Kind.DONE:  # all the same, since what it frees may be all that fills the disk
                self._note(kind, event_id)
            raise JournalUnwritable(f"outbox {self.folder} cannot be written: {error.strerror}") from error
        self._note(kind, event_id)

    def sync(self) -> None:
        """Bring to the disk what was appended before; this may block for long, and run in a thread beside `append`.

        Raises:
            JournalUnwritable: the disk would not.
        """
        finished, self._finished = self._finished, []
        try:
            with contextlib.ExitStack() as stack:
                for file in finished:
                    stack.callback(os.close, file)
                for file in (*finished, self._file):
                    os.fsync(file)
            _sync_folders(self.folder)
        except OSError as error:
            raise JournalUnwritable(f"outbox {self.folder} cannot be brought to the disk: {error.strerror}") from error

    def close(self) -> None:
        """Leave the folder: remove it if nothing in it is needed, or else leave it to whoever comes next."""
        for file in (*self._finished, self._file):
            os.close(file)
        if not self._where:
            _remove(self.folder)
        os.close(self._lock)

    def _write(self, data: bytes) -> None:
        left = data
        try:
            while left:  # a disk that is nearly full takes a part
                left = left[os.write(self._file, left) :]
        except OSError:
            self._cut()
            raise
        self._size += len(data)

    def _cut(self) -> None:
        """Remove a part of an entry; where that fails what follows goes to a new segment, not behind what is torn."""
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self._size = SEGMENT_BYTES

    def _roll(self) -> None:
        path = self.folder / f"{self._number + 1:010}"
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        if self._file >= 0:
            self._leave(self._file)
        self._number, self._file, self._size = self._number + 1, file, 0
        self._segments.append(_Segment(path))
        self._remove_unneeded()

    def _leave(self, file: int) -> None:
        if self._synced:
            self._finished.append(file)
        else:
            os.close(file)

    def _note(self, kind: Kind, event_id: str) -> None:
        before = self._where.pop(event_id, None)
        if before is not None:
            before.needed -= 1
        if kind is not Kind.DONE:
            self._segments[-1].needed += 1
            self._where[event_id] = self._segments[-1]
        self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        while len(self._segments) > 1 and not self._segments[0].needed:
            self._segments.popleft().path.unlink(missing_ok=True)


def left_behind(parent: Path) -> Iterator[list[tuple[Kind, str, bytes]]]:
    """Yield what each executor that is no more has left beneath `parent`; it goes when the next is asked for.

    By then what was yielded must be safe elsewhere.
    """
    for folder in _folders(parent):
        try:
            lock = _locked(folder)
        except OSError:  # its owner lives, or somebody else has just taken it
            continue
        try:
            entries = _read(folder)
        except (OSError, ValueError) as error:  # of another version, or damaged: no reason not to start
            say(_log.error, "outbox.unreadable", folder=str(folder), problem=str(error))
        else:
            yield entries
            _remove(folder)
        finally:
            os.close(lock)


def _folders(parent: Path) -> list[Path]:
    try:
        found = sorted(parent.iterdir()) if parent.is_dir() else []
    except OSError as error:
        raise JournalUnwritable(f"outbox {parent} cannot be read: {error.strerror}") from error
    return [path for path in found if not path.name.startswith(UNSEEN) and not path.is_symlink()]


def _remove(folder: Path) -> None:
    """Remove a folder that is locked; it is out of sight at once, so nobody reads a half of it."""
    unseen = folder.with_name(f"{UNSEEN}{folder.name}")
    with contextlib.suppress(OSError):
        folder.rename(unseen)
    shutil.rmtree(unseen, ignore_errors=True)


def _read(folder: Path) -> list[tuple[Kind, str, bytes]]:
    """Return the newest entry of each event that is not done, in the order in which the events began."""
    newest: dict[str, tuple[Kind, bytes]] = {}
    for path in sorted(path for path in folder.iterdir() if path.name != LOCK):
        for kind, event_id, body in _entries(path):
            if kind is Kind.DONE:
                newest.pop(event_id, None)
            else:
                newest[event_id] = (kind, body)
    return [(kind, event_id, body) for event_id, (kind, body) in newest.items()]


def _entries(path: Path) -> Iterator[tuple[Kind, str, bytes]]:
    if path.is_symlink() or not path.is_file():  # a pipe would be waited for without an end
        raise ValueError(f"{path.name} is no segment")
    data, place = path.read_bytes(), 0
    while place + _HEAD.size <= len(data):
        length, checksum, kind, id_length = _HEAD.unpack_from(data, place)
        end = place + _HEAD.size + id_length + length
        if end > len(data) or zlib.crc32(data[place + 8 : end]) != checksum:
            break
        start = place + _HEAD.size + id_length
        yield Kind(kind), data[place + _HEAD.size : start].decode(), data[start:end]
        place = end
    if place < len(data):  # the process died while it wrote, so nobody went on after that
        say(_log.warning, "outbox.torn", segment=str(path), bytes=len(data) - place)


def _sync_folders(*folders: Path) -> None:
    """Bring to the disk which files there are in folders."""
    for folder in folders:
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _packed(kind: Kind, event_id: str, body: bytes) -> bytes:
    name = event_id.encode()
    checked = _HEAD.pack(len(body), 0, kind.value, len(name))[8:] + name + body
    return _HEAD.pack(len(body), zlib.crc32(checked), kind.value, len(name)) + name + body


def _locked(folder: Path) -> int:
    file = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(file).st_nlink:
            raise FileNotFoundError(f"{folder} has just been removed")
    except OSError:
        os.close(file)
        raise
    return file
