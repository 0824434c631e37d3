"""The compose file's NATS, started with testcontainers where there is a Docker engine."""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]

CI_HAS_DOCKER = "CI_HAS_DOCKER"
"""Set by .ci/run where an engine is: then these tests may not be skipped."""


class NatsContainer:
    """A container of the compose file's service, on a loopback port that stays the same when it is restarted."""

    def __init__(self, service: dict[str, Any]) -> None:
        from testcontainers.core.container import DockerContainer

        self._volume = f"hookbus-test-{secrets.token_hex(4)}"
        port = _free_port()
        self.url = f"nats://127.0.0.1:{port}"
        container = DockerContainer(service["image"], command=service["command"])
        ports: dict[str, Any] = container.ports  # docker takes an address too, its type here does not
        ports["4222/tcp"] = ("127.0.0.1", port)
        for source, target, *mode in (volume.split(":") for volume in service["volumes"]):
            source = str(ROOT / source) if source.startswith(".") else self._volume
            container.with_volume_mapping(source, target, *(mode or ["rw"]))
        same = ("user", "read_only", "cap_drop", "security_opt")
        self._container = container.with_kwargs(**{key: service[key] for key in same})

    def run(self, *command: str) -> int:
        """Run a command in the container and return its exit status."""
        return int(self._container.get_wrapped_container().exec_run(list(command)).exit_code)

    def restart(self) -> None:
        """Stop it as `docker restart` does, and start it again."""
        self._container.get_wrapped_container().restart(timeout=5)

    def start(self) -> None:
        """Start it; the server may need a moment more."""
        self._container.start()

    def remove(self) -> None:
        """Remove it and its volume."""
        client = self._container.get_docker_client().client
        self._container.stop()
        for volume in client.volumes.list(filters={"name": self._volume}):
            volume.remove()
        client.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compose_service() -> dict[str, Any]:
    """Return the service of docker-compose.yml."""
    service: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["nats"]
    return service


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsContainer]:
    """A running container; skips where there is no engine."""
    _require_engine()
    with pytest.MonkeyPatch.context() as patch:
        # Its reaper is one more image to pull; the fixture removes what it made.
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        running = NatsContainer(compose_service())
        try:
            running.start()
            yield running
        finally:
            running.remove()


def _require_engine() -> None:
    problem = _engine_problem()
    if problem and os.environ.get(CI_HAS_DOCKER):
        pytest.fail(f"{CI_HAS_DOCKER} is set, but {problem}")
    if problem:
        pytest.skip(problem)


def _engine_problem() -> str:
    if shutil.which("docker") is None:
        return "there is no Docker: the command docker is not installed"
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    return "" if asked.returncode == 0 else "there is no Docker engine: docker info fails"
