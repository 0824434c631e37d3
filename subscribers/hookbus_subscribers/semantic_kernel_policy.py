"""The built-in hook for tools of Semantic Kernel: which may run, and how often a minute for each sender."""

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from hookbus_broker import Connection, Section
from hookbus_broker.counts import add, in_minute, read
from hookbus_schemas import BusUnavailable, Decision, ToolHookContext, ToolHookWithContext
from hookbus_schemas.decision import PLAIN_ALLOW
from hookbus_schemas.globs import matches, matches_any
from hookbus_subscribers.asked import call_key
from hookbus_subscribers.commands import shown

TOOLS = ("sk_*", "semantic_kernel")
"""Globs of the tools that it judges; all others are allowed."""

TIMEOUT = 2.0
"""Seconds for one exchange with the bus: two must fit well into the time that a hook has."""

Limit = Annotated[int, Field(ge=0)]


class SemanticKernelSettings(Section, table="semantic_kernel_policy"):
    """What Semantic Kernel's tools may do."""

    allowed_tools: tuple[str, ...] = TOOLS
    """Globs of those that may run; an empty list allows none. Default all of them."""

    denied_tools: tuple[str, ...] = ()
    """Globs of those that may not, whatever ``allowed_tools`` says. Default none."""

    per_sender_per_tool_per_minute: dict[str, Limit] = Field(default={})
    """For globs of tools how many calls of one tool each sender has in a fixed minute, 0 for no limit; of several that
    match the largest holds. Default no limits."""


class SemanticKernelPolicy(ToolHookWithContext):
    """Denies tools of Semantic Kernel that are not allowed or are called too often; counts are shared by replicas."""

    name = "SemanticKernelPolicy"

    def __init__(
        self, settings: SemanticKernelSettings | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings or SemanticKernelSettings()
        self._clock = clock
        self._connection: Connection | None = None

    async def attach(self, connection: Connection) -> None:
        """Count there."""
        self._connection = connection

    async def detach(self) -> None:
        """Count no more."""
        self._connection = None

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Judge a call, and count it if its tool has a limit, also when that denies it.

        Raises:
            BusUnavailable: it cannot be counted; no usable answer, so the failure policy decides.
        """
        tool = context.tool_name
        if not matches_any(TOOLS, tool):
            return PLAIN_ALLOW
        if matches_any(self._settings.denied_tools, tool):
            return Decision.deny(f"{shown(tool)} is among the denied tools", reason_code="denied_tool")
        if not matches_any(self._settings.allowed_tools, tool):
            return Decision.deny(f"{shown(tool)} is not among the allowed tools", reason_code="not_allowed")
        limit = self._limit(tool)
        if limit == 0 or await self._calls(context) <= limit:
            return PLAIN_ALLOW
        why = f"{shown(tool)} may be called {limit} times a minute by one sender, and was: wait for the next minute"
        return Decision.deny(why, reason_code="rate_limited")

    def _limit(self, tool: str) -> int:
        limits = self._settings.per_sender_per_tool_per_minute
        return max((limit for glob, limit in limits.items() if matches(glob, tool)), default=0)

    async def _calls(self, context: ToolHookContext) -> int:
        """Return which call of this minute it is."""
        if self._connection is None:
            raise BusUnavailable(f"{self.name} is not attached to a bus")
        count = in_minute("semantic_kernel", context.sender_id, context.tool_name, now=self._clock())
        if context.dry_run:
            return await read(self._connection, count, timeout=TIMEOUT) + 1
        return await add(self._connection, count, 1, message_id=call_key(context), timeout=TIMEOUT)
