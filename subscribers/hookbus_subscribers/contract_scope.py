"""The built-in hook that keeps a session within its contract: tools, paths, number of calls, time.

Contracts and counts are on the bus, so that every replica sees the same. The count of a contract begins anew each time
that it is attached, since its revision is part of the count's name.
"""

import time

from hookbus_broker import Connection
from hookbus_broker.counts import Count, add, read
from hookbus_schemas import (
    BusUnavailable,
    ConfigError,
    Decision,
    InvalidArguments,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    ToolHookWithContext,
    Verdict,
    parse_arguments,
)
from hookbus_schemas.decision import PLAIN_ALLOW
from hookbus_subscribers.asked import call_key
from hookbus_subscribers.consumer import Consumer
from hookbus_subscribers.contracts import TIMEOUT, Attached, Contracts
from hookbus_subscribers.durable import durable_name
from hookbus_subscribers.scope import outside_scope

GIVING_BACK = 16
"""Denied calls whose slots are given back at once."""


class ContractScope(ToolHookWithContext):
    """Denies calls outside the contract of their session; a session without one is not bounded."""

    name = "ContractScope"

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._contracts: Contracts | None = None
        self._consumer: Consumer | None = None

    async def attach(self, connection: Connection) -> None:
        """Read contracts and counts there, and give the slots of denied calls back; replicas share that work."""
        self._connection, contracts = connection, Contracts(connection)
        await contracts.start()
        self._contracts = contracts
        durable, denied = durable_name(self.name), ("tool.denied.>",)
        self._consumer = Consumer(
            connection, durable, self._give_back, subjects=denied, since=time.time(), concurrency=GIVING_BACK
        )
        await self._consumer.start()

    async def detach(self) -> None:
        """Leave the rest to the other replicas, or to the next start."""
        if self._consumer is not None:
            await self._consumer.stop()
        if self._contracts is not None:
            await self._contracts.stop()
        self._connection = self._contracts = self._consumer = None

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Judge a call, and take one of the contract's calls for it.

        Raises:
            BusUnavailable: contract or count cannot be read; no usable answer, so the failure policy decides.
        """
        try:
            attached = await self._attached(context.session_id)
            if attached is None:
                return PLAIN_ALLOW
            values = parse_arguments(context.arguments_json)
        except (ConfigError, InvalidArguments) as error:
            return Decision.deny(str(error), reason_code="unreadable")
        problem = _ended(attached) or outside_scope(attached.contract, context, values)
        if problem:
            return _denied(attached, problem)
        return await self._within_limit(attached, context)

    async def _attached(self, session: str) -> Attached | None:
        if self._contracts is None:
            raise BusUnavailable(f"{self.name} is not attached to a bus")
        return await self._contracts.of(session) if session else None

    async def _within_limit(self, attached: Attached, context: ToolHookContext) -> Decision:
        limit, contract_id = attached.contract.max_tool_calls, attached.contract.id
        if limit == 0:
            return PLAIN_ALLOW
        if context.dry_run:
            total = await read(self._bus, attached.count, timeout=TIMEOUT) + 1
        else:
            total = await add(self._bus, attached.count, 1, message_id=call_key(context), timeout=TIMEOUT)
        if total <= limit:
            return PLAIN_ALLOW
        if not context.dry_run:
            await self._release(attached.count, context)
        return _denied(attached, f"contract {contract_id} allows {limit} calls, and all of them are used")

    async def _give_back(self, event: ToolAfterEvent | ToolDeniedEvent) -> None:
        """Give back the slot of a call that was denied, if there is one for it.

        The slot is taken first, under the same message id as when the call was judged: that changes nothing for a call
        that has one, and for one that has none, or whose request is still on its way, both together come to nothing.
        """
        context = event.context
        own = [one for one in event.decisions if one.hook == self.name and one.decision is Verdict.DENY]
        if own or context.dry_run:
            return
        try:
            attached = await self._attached(context.session_id)
        except ConfigError:
            return  # a contract that cannot be read counts nothing
        if attached is None or attached.contract.max_tool_calls == 0:
            return
        await add(self._bus, attached.count, 1, message_id=call_key(context), timeout=TIMEOUT)
        await self._release(attached.count, context)

    async def _release(self, count: Count, context: ToolHookContext) -> None:
        await add(self._bus, count, -1, message_id=f"back-{call_key(context)}", timeout=TIMEOUT)

    @property
    def _bus(self) -> Connection:
        if self._connection is None:
            raise BusUnavailable(f"{self.name} is not attached to a bus")
        return self._connection


def _ended(attached: Attached) -> str:
    """Return why the contract bounds nothing any more, so that nothing may run under it; empty while it lasts."""
    contract, now = attached.contract, time.time()
    if contract.expires_at is not None and now >= contract.expires_at.timestamp():
        return f"contract {contract.id} expired at {contract.expires_at.isoformat()}"
    if contract.max_runtime_seconds and now >= attached.entry.written_at + contract.max_runtime_seconds:
        return f"contract {contract.id} allows {contract.max_runtime_seconds:g} seconds, and they are over"
    return ""


def _denied(attached: Attached, reason: str) -> Decision:
    return Decision.deny(reason, reason_code="contract", policy_revision=str(attached.entry.revision))
