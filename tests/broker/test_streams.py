"""The stream and the bucket: made once, raised, never cut back, refused when they are not what hookbus relies on."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hookbus_broker import BusSettings, Connection, connect, ensure_streams
from hookbus_schemas import BusUnavailable, ConfigError, PermissionRefused
from support import NatsServer

MIB = 1024 * 1024
SECOND = 1_000_000_000


@pytest.fixture
def settings(bus_url: str) -> BusSettings:
    """Limits that many tests at once can have on one disk."""
    return BusSettings(url=bus_url, events_max_bytes=8 * MIB)


@pytest.fixture
async def connection(settings: BusSettings) -> AsyncIterator[Connection]:
    """A connection that may do anything in the test's account."""
    async with await connect(settings, name="test") as connected:
        yield connected


async def _api(connection: Connection, action: str, body: object = None) -> dict[str, Any]:
    request = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await connection.request(f"$JS.API.{action}", request, timeout=5)).data)
    return answer


async def _config(connection: Connection, stream: str) -> dict[str, Any]:
    answer = await _api(connection, f"STREAM.INFO.{stream}")
    return dict(answer["config"])


async def test_the_stream_keeps_what_settings_say_and_can_lose_nothing(
    settings: BusSettings, connection: Connection
) -> None:
    """Its limits come from the settings; nobody can delete, purge or roll up."""
    await ensure_streams(connection, settings)
    config = await _config(connection, "TOOL_EVENTS")
    assert config["subjects"] == ["tool.after.>", "tool.denied.>"]
    assert (config["storage"], config["retention"], config["discard"]) == ("file", "limits", "old")
    assert (config["deny_delete"], config["deny_purge"], config["allow_rollup_hdrs"]) == (True, True, False)
    assert (config["allow_direct"], config["allow_msg_ttl"]) == (True, False)
    assert (config["max_age"], config["max_bytes"]) == (30 * 86_400 * SECOND, 8 * MIB)
    assert (config["duplicate_window"], config["num_replicas"]) == (600 * SECOND, 1)


@pytest.mark.parametrize(("bucket", "changed"), [("HOOKS", "hooks.changed"), ("CONTRACTS", "contracts.changed")])
async def test_a_bucket_republishes_its_changes(
    bucket: str, changed: str, settings: BusSettings, connection: Connection
) -> None:
    """Executors hear of registrations, and hooks of contracts, without a watch."""
    await ensure_streams(connection, settings)
    config = await _config(connection, f"KV_{bucket}")
    assert config["republish"] == {"src": f"$KV.{bucket}.>", "dest": f"{changed}.>"}
    assert (config["max_msgs_per_subject"], config["allow_direct"], config["max_age"]) == (10, True, 0)


async def test_what_is_set_aside_is_kept_as_long_as_events(settings: BusSettings, connection: Connection) -> None:
    """Once for each consumer and event; beyond the limit it is refused, so the event comes again to its consumer."""
    await ensure_streams(connection, settings)
    config = await _config(connection, "KV_SET_ASIDE")
    assert (config["max_age"], config["max_msgs_per_subject"]) == (30 * 86_400 * SECOND, 1)
    assert (config["max_msgs"], config["discard"], config["allow_rollup_hdrs"]) == (100_000, "new", False)


async def test_many_may_ensure_at_once_and_again(settings: BusSettings, connection: Connection) -> None:
    """Whoever comes first makes them; for the others they are there."""
    async with asyncio.timeout(10):
        await asyncio.gather(*(ensure_streams(connection, settings) for _ in range(8)))
    before = await _config(connection, "TOOL_EVENTS")
    await ensure_streams(connection, settings)
    assert await _config(connection, "TOOL_EVENTS") == before


async def test_many_with_different_limits_agree_on_the_most_generous(
    settings: BusSettings, connection: Connection
) -> None:
    """The loser of the race raises what the winner made, and nobody fails."""
    several = [settings.model_copy(update={"events_max_bytes": size * MIB}) for size in (8, 16, 12)]
    async with asyncio.timeout(10):
        await asyncio.gather(*(ensure_streams(connection, one) for one in several))
        await asyncio.gather(*(ensure_streams(connection, one) for one in several))
    assert (await _config(connection, "TOOL_EVENTS"))["max_bytes"] == 16 * MIB


@pytest.mark.parametrize(
    ("field", "higher", "wire", "value"),
    [
        pytest.param("events_max_bytes", 16 * MIB, "max_bytes", 16 * MIB, id="bytes"),
        pytest.param("events_max_bytes", 0, "max_bytes", -1, id="bytes without limit"),
        pytest.param("events_max_age", 40 * 86_400.0, "max_age", 40 * 86_400 * SECOND, id="age"),
        pytest.param("events_max_age", 0.0, "max_age", 0, id="age without limit"),
        pytest.param("duplicate_window", 1200.0, "duplicate_window", 1200 * SECOND, id="duplicate window"),
    ],
)
async def test_a_limit_is_raised_and_never_lowered(
    settings: BusSettings, connection: Connection, field: str, higher: float, wire: str, value: int
) -> None:
    """Lowering one would remove events; an agent with its defaults must not undo an operator's setting."""
    await ensure_streams(connection, settings)
    await ensure_streams(connection, settings.model_copy(update={field: higher}))
    assert (await _config(connection, "TOOL_EVENTS"))[wire] == value
    await ensure_streams(connection, settings)
    assert (await _config(connection, "TOOL_EVENTS"))[wire] == value


async def test_what_others_configured_beside_it_is_kept(settings: BusSettings, connection: Connection) -> None:
    """Raising a limit changes nothing else."""
    await ensure_streams(connection, settings)
    config = await _config(connection, "TOOL_EVENTS")
    await _api(connection, "STREAM.UPDATE.TOOL_EVENTS", config | {"description": "ours", "max_msg_size": 4 * MIB})
    await ensure_streams(connection, settings.model_copy(update={"events_max_bytes": 16 * MIB}))
    changed = await _config(connection, "TOOL_EVENTS")
    assert (changed["description"], changed["max_msg_size"], changed["max_bytes"]) == ("ours", 4 * MIB, 16 * MIB)


@pytest.mark.parametrize(
    ("stream", "config", "setting"),
    [
        pytest.param("TOOL_EVENTS", {"subjects": ["tool.>"]}, "subjects", id="captures requests"),
        pytest.param("TOOL_EVENTS", {"subjects": ["tool.after.>"]}, "subjects", id="misses denials"),
        pytest.param("TOOL_EVENTS", {"deny_delete": False}, "deny_delete", id="events can be deleted"),
        pytest.param("TOOL_EVENTS", {"deny_purge": False}, "deny_purge", id="events can be purged"),
        pytest.param(
            "TOOL_EVENTS", {"deny_purge": False, "allow_rollup_hdrs": True}, "deny_purge", id="events can be rolled up"
        ),
        pytest.param("TOOL_EVENTS", {"storage": "memory"}, "storage", id="lost at a restart"),
        pytest.param("TOOL_EVENTS", {"retention": "workqueue"}, "retention", id="gone once read"),
        pytest.param("TOOL_EVENTS", {"discard": "new"}, "discard", id="stops when full"),
        pytest.param("TOOL_EVENTS", {"max_msgs": 10}, "max_msgs", id="keeps ten events"),
        pytest.param("TOOL_EVENTS", {"allow_msg_ttl": True}, "allow_msg_ttl", id="events can vanish"),
        pytest.param("KV_HOOKS", {"republish": None}, "republish", id="changes are not told"),
        pytest.param("KV_HOOKS", {"allow_direct": False}, "allow_direct", id="cannot be read"),
        pytest.param("KV_HOOKS", {"max_age": 3600 * SECOND}, "max_age", id="registrations expire"),
    ],
)
async def test_a_stream_that_is_not_what_hookbus_relies_on_is_refused_and_left_alone(
    settings: BusSettings, connection: Connection, stream: str, config: dict[str, object], setting: str
) -> None:
    """The error names the stream and the setting; nothing is changed or removed."""
    await ensure_streams(connection, settings)
    right = await _config(connection, stream)
    await _api(connection, f"STREAM.DELETE.{stream}")
    made = await _api(connection, f"STREAM.CREATE.{stream}", right | config)
    assert "error" not in made
    with pytest.raises(ConfigError, match=f"^stream {stream} exists with {setting} .*nats stream edit {stream}"):
        await ensure_streams(connection, settings)
    assert await _config(connection, stream) == made["config"]


async def test_a_stream_with_our_subjects_is_named_as_the_reason(settings: BusSettings, connection: Connection) -> None:
    """Two streams cannot capture one subject."""
    await _api(connection, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["tool.denied.>"]})
    with pytest.raises(ConfigError, match=r"^stream TOOL_EVENTS: another stream has subjects"):
        await ensure_streams(connection, settings)


async def test_more_replicas_than_servers_is_a_wrong_setting(settings: BusSettings, connection: Connection) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match=r"^stream TOOL_EVENTS: bus\.replicas is more than this server has"):
        await ensure_streams(connection, settings.model_copy(update={"replicas": 3}))


async def test_more_bytes_than_the_disk_has_is_a_wrong_setting(settings: BusSettings, connection: Connection) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match=r"^stream TOOL_EVENTS: bus\.events_max_bytes is more than the server may"):
        await ensure_streams(connection, settings.model_copy(update={"events_max_bytes": 10**15}))


async def test_a_server_without_jetstream_is_no_bus_for_streams() -> None:
    """It says so at once rather than after a timeout."""
    with NatsServer(jetstream=False) as server:
        settings = BusSettings(url=server.url)
        async with asyncio.timeout(5), await connect(settings, name="test") as connection:
            with pytest.raises(BusUnavailable, match="JetStream"):
                await ensure_streams(connection, settings)


async def test_an_identity_that_may_not_manage_streams_is_told_so() -> None:
    """A refusal is not mistaken for a server that does not answer."""
    limited = 'authorization { users: [ { user: "e", password: "p", permissions: { publish: "x", subscribe: ">" } } ] }'
    with NatsServer(limited, user="e:p") as server:
        settings = BusSettings(url=server.url)
        async with asyncio.timeout(3), await connect(settings, name="test") as connection:
            with pytest.raises(PermissionRefused, match=r"\$JS\.API\.STREAM\.INFO\.TOOL_EVENTS"):
                await ensure_streams(connection, settings)
