"""The keys of a bucket one by one, for buckets of any size, and their removal. Beside it is `bucket`."""

import json
from collections.abc import AsyncIterator

from nats.aio.msg import Msg

from hookbus_broker.ask import ask
from hookbus_broker.connection import Connection
from hookbus_broker.latest import Stored, read_next
from hookbus_schemas.errors import BusUnavailable

TIMEOUT = 5.0
"""Seconds for one read or removal."""


async def each_key(connection: Connection, bucket: str, keys: str = ">") -> AsyncIterator[tuple[str, Stored]]:
    """Yield the keys that match, such as ``a.*``, each with what it holds, the one that was written first first.

    Raises:
        BusUnavailable: there is no such bucket, the bus was lost, or an answer did not come in time.
        PermissionRefused: this identity may not read it.
    """
    prefix, sequence = f"$KV.{bucket}.", 1
    while (stored := await read_next(connection, f"KV_{bucket}", prefix + keys, sequence, TIMEOUT)) is not None:
        yield stored.subject.removeprefix(prefix), stored
        sequence = stored.sequence + 1


async def remove_key(connection: Connection, bucket: str, key: str) -> None:
    """Remove a key without a trace; one that is not there is no error. Raises what `each_key` raises."""
    subject = f"$JS.API.STREAM.PURGE.KV_{bucket}"

    def take(msg: Msg) -> bool:
        if error := json.loads(msg.data).get("error"):
            raise BusUnavailable(f"{subject}: {error.get('description')} (JetStream error {error.get('err_code')})")
        return True

    body = json.dumps({"filter": f"$KV.{bucket}.{key}"}).encode()
    await ask(connection, subject, body, take, timeout=TIMEOUT)
