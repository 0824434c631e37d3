"""One nats-server a run; each test has an account of its own on it, and so streams and subjects of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import structlog

from support import NatsServer

ACCOUNTS = 1000
_accounts = itertools.count()


def _config() -> str:
    accounts = "\n".join(
        f'  T{n} {{ jetstream: enabled, users: [ {{ user: "t{n}", password: "t" }} ] }}' for n in range(ACCOUNTS)
    )
    return f"accounts {{\n{accounts}\n}}\n"


@pytest.fixture(scope="session")
def server() -> Iterator[NatsServer]:
    """The run's server. A test that kills or suspends one starts its own."""
    with NatsServer(_config()) as running:
        yield running


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a working directory, and so the ``.hookbus`` in it, its own, and little of the disk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOKBUS_OBJECTS_MAX_BYTES", str(16 * 2**20))


@pytest.fixture
def bus_url(server: NatsServer) -> str:
    """Where this test connects: an empty account on the run's server."""
    number = next(_accounts)
    assert number < ACCOUNTS, "more tests than accounts: raise ACCOUNTS"
    return f"nats://t{number}:t@127.0.0.1:{server.port}"


@pytest.fixture
def own_server() -> Iterator[NatsServer]:
    """A server that only this test has, to kill, suspend and start again."""
    with NatsServer() as running:
        yield running


@pytest.fixture
def broken_log() -> Iterator[None]:
    """A log that cannot be written, as when the terminal is gone."""

    def fail(*_: object) -> NoReturn:
        raise BrokenPipeError

    before = structlog.get_config()
    structlog.configure(processors=[fail], cache_logger_on_first_use=False)
    yield
    structlog.configure(**before)
