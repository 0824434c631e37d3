"""The folder of the embedded server: who owns it, what the server's address is, and whether one answers there."""

import asyncio
import fcntl
import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from hookbus_schemas.errors import ConfigError

HOST = "127.0.0.1"
USER = "hookbus"
PROBE_TIMEOUT = 2.0
"""Seconds in which a server on this machine must have answered."""


@dataclass(frozen=True, slots=True)
class Record:
    """The server of a folder. Kept after a stop, so that the next server has the same address and password."""

    name: str
    password: str
    port: int
    pid: int

    @classmethod
    def new(cls) -> Self:
        """Return the record of a server that has not been started yet: any free port."""
        return cls(name=f"hookbus-{secrets.token_hex(8)}", password=secrets.token_urlsafe(24), port=-1, pid=0)

    @property
    def url(self) -> str:
        """Where clients connect, the password included."""
        return f"nats://{USER}:{self.password}@{HOST}:{self.port}"

    def started(self, port: int, pid: int) -> Self:
        """Return the record of the same server once it listens."""
        return replace(self, port=port, pid=pid)


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The files of the embedded server in ``state_dir``, an absolute path."""

    path: Path

    @classmethod
    def prepare(cls, state_dir: Path) -> Self:
        """Make the folder, for this user alone.

        Raises:
            ConfigError: it cannot be made, or others may write to it.
        """
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = state_dir.stat().st_mode
        except OSError as error:
            raise ConfigError(f"bus.state_dir {state_dir} cannot be made: {error.strerror}") from error
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"bus.state_dir {state_dir} may be written by others: run chmod 700 {state_dir}")
        return cls(state_dir.resolve())

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.path / "nats-server.log"

    @property
    def config(self) -> Path:
        """The server's configuration."""
        return self.path / "nats-server.conf"

    def try_lock(self) -> int | None:
        """Return an open file that owns the folder, or None while somebody else does.

        The server inherits it: the folder is free only when owner and server are both gone, so that no two servers
        ever write to one store. (The library ``filelock`` would not give out the descriptor to inherit.)
        """
        lock = _open_lock(self.path / "server.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        return lock

    def read(self) -> Record | None:
        """Return what is known of the folder's server, if anything."""
        try:
            known = json.loads((self.path / "server.json").read_text())
            return Record(known["name"], known["password"], int(known["port"]), int(known["pid"]))
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def write(self, record: Record) -> None:
        """Keep what is known of the server, with its URL for people to look up."""
        self.write_private("server.json", json.dumps({"url": record.url} | asdict(record), indent=1) + "\n")

    def write_private(self, name: str, text: str) -> None:
        """Replace a file at once; only this user may read it."""
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        temporary.replace(self.path / name)


def _open_lock(path: Path) -> int:
    """Open the file as a descriptor of two digits: the guard's shell uses those of one digit itself."""
    low = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(low)


async def answers(record: Record) -> bool:
    """Tell whether the recorded server, and not some other program on its port, answers and takes the password."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(HOST, record.port)
            try:
                return await _greeted(reader, writer, record)
            finally:
                writer.transport.abort()
    except (OSError, ValueError, OverflowError):
        return False


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Record) -> bool:
    verb, _, info = (await reader.readline()).partition(b" ")
    if verb != b"INFO" or json.loads(info).get("server_name") != record.name:
        return False  # another program: it must not learn the password
    options = {"verbose": False, "pedantic": False, "user": USER, "pass": record.password, "name": "hookbus-probe"}
    writer.write(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
    return (await reader.readline()).strip() == b"PONG"
