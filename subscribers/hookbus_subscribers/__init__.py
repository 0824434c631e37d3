"""The hook's side: the kit to write and serve hooks, the built-in hooks, consuming and replaying events."""

from hookbus_schemas import (
    Decision,
    HookRegistration,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHook,
    ToolHookContext,
    ToolHookWithContext,
)
from hookbus_subscribers.answers import Served
from hookbus_subscribers.audit_log import AuditLog
from hookbus_subscribers.autonomy import Autonomy
from hookbus_subscribers.autonomy_settings import AutonomySettings
from hookbus_subscribers.builtin import BUILT_IN, SETTINGS, BuiltIn, make_built_in
from hookbus_subscribers.consumer import Consumer
from hookbus_subscribers.contract_scope import ContractScope
from hookbus_subscribers.event_filter import EventFilter
from hookbus_subscribers.hook import FunctionHook, hook
from hookbus_subscribers.load import load_hooks
from hookbus_subscribers.plugin_bridge import (
    PLUGIN_REGISTRATION,
    PluginHook,
    PluginSettings,
    PluginUnavailable,
    load_plugin,
    load_plugins,
)
from hookbus_subscribers.pull import JetStreamRefusal
from hookbus_subscribers.reading import last_sequence
from hookbus_subscribers.replaying import StoredEvent, newest, replay
from hookbus_subscribers.semantic_kernel_policy import SemanticKernelPolicy, SemanticKernelSettings
from hookbus_subscribers.serve import serve
from hookbus_subscribers.server import HookServer
from hookbus_subscribers.taken import Consumed
from hookbus_subscribers.whole import TextGone, whole

__all__ = [
    "BUILT_IN",
    "PLUGIN_REGISTRATION",
    "SETTINGS",
    "AuditLog",
    "Autonomy",
    "AutonomySettings",
    "BuiltIn",
    "Consumed",
    "Consumer",
    "ContractScope",
    "Decision",
    "EventFilter",
    "FunctionHook",
    "HookRegistration",
    "HookServer",
    "JetStreamRefusal",
    "PluginHook",
    "PluginSettings",
    "PluginUnavailable",
    "SemanticKernelPolicy",
    "SemanticKernelSettings",
    "Served",
    "StoredEvent",
    "TextGone",
    "ToolAfterEvent",
    "ToolDeniedEvent",
    "ToolHook",
    "ToolHookContext",
    "ToolHookWithContext",
    "hook",
    "last_sequence",
    "load_hooks",
    "load_plugin",
    "load_plugins",
    "make_built_in",
    "newest",
    "replay",
    "serve",
    "whole",
]
