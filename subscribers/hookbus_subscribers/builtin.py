"""The hooks that come with hookbus, and how they are registered unless the operator says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hookbus_schemas import FailurePolicy, HookRegistration
from hookbus_schemas.hook import Hook
from hookbus_subscribers.audit_log import AuditLog


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One built-in hook.

    Attributes:
        make: returns the hook.
        registration: the default.
    """

    make: Callable[[], Hook]
    registration: HookRegistration


def _registration(order: int, description: str) -> HookRegistration:
    return HookRegistration(order=order, failure_policy=FailurePolicy.DENY, owner="hookbus", description=description)


BUILT_IN: Mapping[str, BuiltIn] = MappingProxyType(
    {
        "AuditLog": BuiltIn(AuditLog, _registration(0, "Logs each call, never denies.")),
    }
)
"""By name, in the order in which their decisions are reported."""
