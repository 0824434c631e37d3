"""What tests share: a real nats-server under their control, and waiting for the thing itself."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

NATS_SERVER = shutil.which("nats-server", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")


async def until(predicate: Callable[[], object], *, timeout: float = 5.0) -> None:
    """Wait until the predicate holds, or fail after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        while not predicate():
            await _pause()


async def _pause() -> None:
    """Leave the processors to the servers under test."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.002):
            await asyncio.Event().wait()


async def eventually(attempt: Callable[[], Awaitable[object]], *, timeout: float = 10.0) -> None:
    """Try until the attempt returns something true, or fail after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        while not await attempt():
            await _pause()


class NatsServer:
    """A nats-server process on loopback that a test may kill, suspend and start again on the same port and store."""

    def __init__(self, config: str = "", *, jetstream: bool = True, user: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hookbus-test-"))
        self.user = user
        self.port = 0
        self._config = config
        self._jetstream = jetstream
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What the server calls itself."""
        return f"test-{self.folder.name}"

    @property
    def url(self) -> str:
        """Where clients connect, with the user and password if the test named one."""
        return f"nats://{self.user}{'@' if self.user else ''}127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def write_config(self, config: str) -> None:
        """Replace the test's part of the configuration; `reload` or `start` makes the server read it."""
        self._config = config
        store = f'jetstream {{ store_dir: "{self.folder}/js", max_file: 1TB }}\n' if self._jetstream else ""
        head = f'listen: "127.0.0.1:{self.port or -1}"\nserver_name: "{self.name}"\n'
        ports = f'ports_file_dir: "{self.folder}"\n'
        flags = "feature_flags { js_ack_fc_v2: false }\n"
        (self.folder / "server.conf").write_text(head + ports + store + flags + config)

    def start(self) -> None:
        """Start the process and wait until it takes connections."""
        assert NATS_SERVER, "nats-server is not installed"
        self.write_config(self._config)
        for stale in self.folder.glob("*.ports"):
            stale.unlink()
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [NATS_SERVER, "-c", str(self.folder / "server.conf")], stdout=log, stderr=log, start_new_session=True
            )
        self._wait_for_ports()

    def _wait_for_ports(self) -> None:
        assert self._process is not None
        ports = self.folder / f"nats-server_{self._process.pid}.ports"
        while not (ports.exists() and ports.read_text().strip().endswith("}")):
            if self._process.poll() is not None:
                raise AssertionError(f"nats-server ended:\n{(self.folder / 'server.log').read_text()}")
        self.port = int(json.loads(ports.read_text())["nats"][0].rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
            assert probe.recv(4) == b"INFO"

    def kill(self) -> None:
        """Kill the process as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the process to end, and wait for it."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(10)

    def suspend(self) -> None:
        """Stop the process from running, its sockets left open: a half-open peer."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # until then some of its threads run on, and may answer

    def resume(self) -> None:
        """Let a suspended process run on."""
        os.kill(self.pid, signal.SIGCONT)

    def reload(self, config: str) -> None:
        """Make the running server read a new configuration."""
        self.write_config(config)
        os.kill(self.pid, signal.SIGHUP)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class NatsCluster:
    """Three servers on loopback that share streams of three replicas; each may be killed and started again."""

    def __init__(self) -> None:
        ports = _free_ports(3)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.servers = [
            NatsServer(f'cluster {{ name: "test", listen: "127.0.0.1:{port}", routes: [{routes}] }}\n')
            for port in ports
        ]

    @property
    def url(self) -> str:
        """Where clients connect: all three."""
        return ",".join(server.url for server in self.servers)

    def named(self, name: str) -> NatsServer:
        """Return the server that calls itself so."""
        (server,) = (server for server in self.servers if server.name == name)
        return server

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on; routes must know each other's before they listen."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
