"""docker-compose.yml and its server's configuration, looked at without an engine."""

import subprocess
from pathlib import Path

import yaml

from support import NATS_SERVER

ROOT = Path(__file__).parents[2]


def test_only_loopback_is_published() -> None:
    """Whoever reaches this machine over a network does not reach the bus, which asks for no password."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1:4222:4222"]


def test_the_server_takes_its_configuration() -> None:
    """`nats-server -t` reads the mounted file without a complaint."""
    assert NATS_SERVER
    checked = subprocess.run(
        [NATS_SERVER, "-t", "-c", str(ROOT / "docker" / "nats.conf")], capture_output=True, text=True, timeout=20
    )
    assert (checked.returncode, "is valid" in checked.stderr) == (0, True), checked.stderr
