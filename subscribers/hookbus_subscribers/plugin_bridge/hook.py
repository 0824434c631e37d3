"""A plugin as a hook: what it is asked, and what its answers mean. Above it is `server`; below it `keeper`."""

from collections.abc import Sequence

import structlog

from hookbus_broker import Connection
from hookbus_broker.callbacks import Throttle
from hookbus_broker.log import say
from hookbus_schemas import Decision, FailurePolicy, HookRegistration, ToolHookContext, ToolHookWithContext
from hookbus_schemas.decision import PLAIN_ALLOW
from hookbus_subscribers.plugin_bridge.channel import PluginError, PluginUnavailable
from hookbus_subscribers.plugin_bridge.child import Child, Plugin
from hookbus_subscribers.plugin_bridge.keeper import RESTART_WAITS, Keeper
from hookbus_subscribers.plugin_bridge.manifest import TYPESCRIPT
from hookbus_subscribers.plugin_bridge.node import find_node

log = structlog.get_logger()

ANSWER_TIMEOUT = 5.0
"""Seconds without an answer after which a plugin hangs: its process is killed, and another one started."""

BEFORE, AFTER = "tool:before", "tool:after"

PLUGIN_REGISTRATION = HookRegistration(failure_policy=FailurePolicy.ALLOW)
"""How plugins are registered unless the operator says otherwise: they fail open, as in the reference system."""


class PluginHook(ToolHookWithContext):
    """Asks a plugin that runs in a process of its own. No usable answer is an error: the failure policy decides."""

    def __init__(
        self,
        plugin: Plugin,
        *,
        answer_timeout: float = ANSWER_TIMEOUT,
        restart_waits: Sequence[float] = RESTART_WAITS,
    ) -> None:
        """Prepare to run the plugin; `attach` starts it.

        Args:
            plugin: what to run.
            answer_timeout: seconds without an answer after which it is killed.
            restart_waits: seconds before each restart; after the last one it is given up.
        """
        self.name = plugin.hook
        self.plugin = plugin
        self._answer_timeout = answer_timeout
        self._keeper = Keeper(self.name, self._start, restart_waits)
        self._throttle = Throttle()

    @property
    def registration(self) -> HookRegistration:
        """How it is registered unless the operator says otherwise."""
        manifest = self.plugin.manifest
        return PLUGIN_REGISTRATION.model_copy(update={"description": manifest.description or manifest.name})

    async def attach(self, connection: Connection | None = None) -> None:
        """Start the plugin; it does not use the bus.

        Raises:
            ConfigError: it cannot be loaded, or there is no Node.js for it.
        """
        del connection
        await self._keeper.start()

    async def detach(self) -> None:
        """End the plugin, with all that it started."""
        await self._keeper.stop()

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Ask the plugin's handlers of ``tool:before``."""
        try:
            child = await self._keeper.child(self._answer_timeout)
            if BEFORE not in child.events:
                return PLAIN_ALLOW
            asked = _about(context, "before")
            answer = await child.channel.request("hook_before", asked, timeout=self._answer_timeout)
        except PluginUnavailable as error:
            return self._failed(context, f"the plugin gave no answer: {error}", "plugin_unavailable")
        except PluginError as error:
            return self._failed(context, f"a handler of the plugin failed: {error}", "plugin_error")
        return _decision(answer)

    async def after_execute(self, context: ToolHookContext, result: str, duration: float, failed: bool) -> None:
        """Tell the plugin's handlers of ``tool:after``, without waiting for what they do.

        Raises:
            PluginUnavailable: it cannot be told now; the event comes again.
        """
        child = await self._keeper.child(self._answer_timeout)
        if AFTER not in child.events:
            return
        took = round(duration * 1000, 3)
        told = {"result": result, "durationMs": took, "duration": took, "failed": failed}
        await child.channel.notify("hook_after", _about(context, "after") | told, timeout=self._answer_timeout)

    async def _start(self) -> Child:
        child = await Child.start(self.plugin, await find_node(typescript=self.plugin.entry.suffix in TYPESCRIPT))
        self._compare(child)
        return child

    def _compare(self, child: Child) -> None:
        """Say which events the plugin claims to hear of and has no handler for: a guard that never guards."""
        named = self.plugin.manifest.event_subscriptions
        claimed = {BEFORE, AFTER} if "tool:*" in named else {BEFORE, AFTER} & set(named)
        missing = sorted(claimed - child.events)
        if missing or not child.events:
            say(log.warning, "plugin.without_handlers", hook=self.name, events=missing or [BEFORE, AFTER])

    def _failed(self, context: ToolHookContext, reason: str, code: str) -> Decision:
        if count := self._throttle.passes(code):
            about = {"tool": context.tool_name, "call_id": context.call_id}
            say(log.warning, "plugin.failed", hook=self.name, problem=reason, count=count, **about)
        return Decision.error(reason, reason_code=code)


def _about(context: ToolHookContext, phase: str) -> dict[str, object]:
    return {
        "toolName": context.tool_name,
        "arguments": context.arguments_json,
        "phase": phase,
        "sessionId": context.session_id,
        "channelId": context.channel_id,
        "senderId": context.sender_id,
        "correlationId": context.correlation_id,
        "callId": context.call_id,
        "dryRun": context.dry_run,
    }


def _decision(answer: object) -> Decision:
    """Return what the bridge's answer means; it has made the plugin's own answer one of two."""
    match answer:
        case {"allow": True}:
            return PLAIN_ALLOW
        case {"allow": False, "reason": str(reason)}:
            return Decision.deny(reason, reason_code="plugin")
    return Decision.error("the plugin's answer is none", reason_code="bad_answer")
