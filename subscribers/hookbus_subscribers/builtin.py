"""The hooks that come with hookbus, and how they are registered unless the operator says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hookbus_broker import Section
from hookbus_schemas import FailurePolicy, HookRegistration
from hookbus_schemas.hook import Hook
from hookbus_subscribers.audit_log import AuditLog
from hookbus_subscribers.autonomy import Autonomy
from hookbus_subscribers.autonomy_settings import AutonomySettings
from hookbus_subscribers.contract_scope import ContractScope
from hookbus_subscribers.plugin_bridge import PluginSettings
from hookbus_subscribers.semantic_kernel_policy import TOOLS, SemanticKernelPolicy, SemanticKernelSettings


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One built-in hook.

    Attributes:
        make: returns the hook with the settings of a configuration file; None is as in `Section.load`. It raises
            `ConfigError` for settings that cannot mean anything.
        registration: the default.
    """

    make: Callable[[Path | None], Hook]
    registration: HookRegistration


def _registration(order: int, description: str, tools: tuple[str, ...] = ("*",)) -> HookRegistration:
    return HookRegistration(
        order=order, tools=tools, failure_policy=FailurePolicy.DENY, owner="hookbus", description=description
    )


BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "AuditLog": BuiltIn(lambda _: AuditLog(), _registration(0, "Logs each call, never denies.")),
        "Autonomy": BuiltIn(
            lambda config: Autonomy(AutonomySettings.load(config)),
            _registration(10, "Says what agents may change, where, and by which commands."),
        ),
        "ContractScope": BuiltIn(
            lambda _: ContractScope(),
            _registration(20, "Keeps a session within its contract: tools, paths, calls, time."),
        ),
        "SemanticKernelPolicy": BuiltIn(
            lambda config: SemanticKernelPolicy(SemanticKernelSettings.load(config)),
            _registration(30, "Says which tools of Semantic Kernel may run, and how often.", TOOLS),
        ),
    }
)
"""By name, in the order in which their decisions are reported."""

SETTINGS: tuple[type[Section], ...] = (AutonomySettings, SemanticKernelSettings, PluginSettings)
"""The tables of ``hookbus.toml`` that built-in hooks and plugins read."""


def make_built_in(config: Path | None = None) -> tuple[Hook, ...]:
    """Return the built-in hooks with the settings of a configuration file.

    Raises:
        ConfigError: a setting cannot mean anything; the message names it.
    """
    return tuple(built_in.make(config) for built_in in BUILT_IN.values())
