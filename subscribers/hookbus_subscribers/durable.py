"""A durable consumer as the server keeps it: its name, and making it. Above it is `consumer`."""

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_schemas import ConfigError, subjects
from hookbus_subscribers.pull import NOT_FOUND, JetStreamRefusal, request

MAX_CONSUMER_NAME = 255
"""Longest name of a consumer, by the server's own limit."""


def durable_name(hook: str) -> str:
    """Return the name of the durable consumer by which a hook is told of calls: its subject token, safe as a name.

    Raises:
        ConfigError: the hook's name is too long for one.
    """
    name = f"hook-{subjects.token(hook)}"
    if len(name) > MAX_CONSUMER_NAME:
        raise ConfigError(f"hook {hook[:40]!r}... has too long a name to be told of calls: shorten it")
    return name


async def ensure_durable(
    connection: Connection, name: str, config: dict[str, object], start: dict[str, object]
) -> None:
    """Make the consumer, or bring the one that is there up to this configuration; where it stands is kept.

    Args:
        connection: the bus.
        name: the consumer's.
        config: what must hold of it.
        start: where one that is new begins.

    Raises:
        JetStreamRefusal: the server would not.
        BusUnavailable, PermissionRefused: it could not be asked.
    """
    try:
        existing = (await request(connection, f"CONSUMER.INFO.{TOOL_EVENTS}.{name}"))["config"]
    except JetStreamRefusal as refusal:
        if refusal.code != NOT_FOUND:
            raise
        config = config | start
    else:
        if all(existing.get(key) == value for key, value in config.items()):
            return
        existing.pop("filter_subject", None)  # of an older client; it excludes filter_subjects
        config = existing | config
    body: dict[str, object] = {"stream_name": TOOL_EVENTS, "config": config, "action": ""}
    await request(connection, f"CONSUMER.CREATE.{TOOL_EVENTS}.{name}", body)
