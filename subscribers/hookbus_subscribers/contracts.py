"""The contracts that are attached to sessions: read when a session comes, then remembered. Above: `contract_scope`.

What is remembered of a session is forgotten when the server says that its contract changed, when the connection is made
anew, and after some seconds, since a message can be lost. A message only makes it be read again: nobody can attach a
contract by one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from nats.aio.msg import Msg

from hookbus_broker import CONTRACTS, CONTRACTS_CHANGED, Connection, Entry, read_key
from hookbus_broker.counts import Count, lasting
from hookbus_schemas import subjects
from hookbus_schemas.contract import Contract

TIMEOUT = 2.0
"""Seconds for one exchange with the bus: two must fit well into the time that a hook has."""

REMEMBERED = 30.0
"""Seconds after which a contract is read again, though nobody said that it changed."""

MOST = 4096
"""Sessions that are remembered at once."""


def calls_of(session: str, attached: Entry) -> Count:
    """Return where the calls under a contract are counted; each time that one is attached they begin at 0."""
    return lasting("contract", session, str(attached.revision))


@dataclass(frozen=True, slots=True)
class Attached:
    """A contract as it is attached to a session."""

    session: str
    contract: Contract
    entry: Entry

    @property
    def count(self) -> Count:
        """Calls since it was attached."""
        return calls_of(self.session, self.entry)


class Contracts:
    """The contracts on a bus."""

    def __init__(self, connection: Connection, *, remembered: float = REMEMBERED) -> None:
        """Prepare to read; `remembered` is seconds until a contract is read again, though nobody said it changed."""
        self._connection = connection
        self._remembered = remembered
        self._known: dict[str, tuple[float, Attached | None]] = {}
        self._changes = 0
        self._undo: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Hear of changes, before anything is remembered.

        Raises:
            BusUnavailable, PermissionRefused: changes cannot be followed.
        """
        self._subscription = await self._connection.subscribe_direct(f"{CONTRACTS_CHANGED}.>", self._on_change)
        self._undo = self._connection.on_reconnect(self._forget_all)
        await self._connection.barrier()

    async def stop(self) -> None:
        """Hear no more."""
        self._undo()
        await self._subscription.unsubscribe()

    async def of(self, session: str) -> Attached | None:
        """Return the contract of a session, None if it has none.

        Raises:
            BusUnavailable: it cannot be read, so nobody knows.
            PermissionRefused: this identity may not read it.
            ConfigError: what is attached is no contract, or the session can have none.
        """
        key, now = subjects.token(session), asyncio.get_running_loop().time()
        until, attached = self._known.get(key, (now, None))
        if now < until:
            return attached
        changes = self._changes
        entry = await read_key(self._connection, CONTRACTS, key, TIMEOUT)
        attached = None if entry is None else Attached(session, Contract.from_json(entry.value), entry)
        if changes == self._changes:  # else this may be what was before the change
            self._remember(key, attached, now + self._remembered)
        return attached

    def _remember(self, key: str, attached: Attached | None, until: float) -> None:
        if len(self._known) >= MOST:  # whoever asks may make sessions up
            self._known.clear()
        self._known[key] = until, attached

    def _on_change(self, message: Msg) -> None:
        self._changes += 1
        self._known.pop(message.subject.removeprefix(f"{CONTRACTS_CHANGED}."), None)

    def _forget_all(self) -> None:
        self._changes += 1
        self._known.clear()
