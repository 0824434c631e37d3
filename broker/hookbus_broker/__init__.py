"""NATS for hookbus: settings, connecting, the embedded server, streams and buckets. Above `hookbus_schemas` alone."""

from hookbus_broker.bucket import (
    CONTRACTS,
    CONTRACTS_CHANGED,
    HOOKS,
    SET_ASIDE,
    BucketSnapshot,
    Change,
    Entry,
    RevisionConflict,
    delete,
    parse_change,
    put,
    read_bucket,
    read_key,
)
from hookbus_broker.bus import find_running, open_bus
from hookbus_broker.connection import Connection, connect
from hookbus_broker.embedded import EmbeddedServer, embedded
from hookbus_broker.settings import BusSettings, Section, check_known_tables, redacted
from hookbus_broker.streams import TOOL_EVENTS, TOOL_OBJECTS, ensure_streams
from hookbus_broker.uses_bus import UsesBus

__all__ = [
    "CONTRACTS",
    "CONTRACTS_CHANGED",
    "HOOKS",
    "SET_ASIDE",
    "TOOL_EVENTS",
    "TOOL_OBJECTS",
    "BucketSnapshot",
    "BusSettings",
    "Change",
    "Connection",
    "EmbeddedServer",
    "Entry",
    "RevisionConflict",
    "Section",
    "UsesBus",
    "check_known_tables",
    "connect",
    "delete",
    "embedded",
    "ensure_streams",
    "find_running",
    "open_bus",
    "parse_change",
    "put",
    "read_bucket",
    "read_key",
    "redacted",
]
