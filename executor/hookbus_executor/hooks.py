"""The hooks that an executor asks: a table that is swapped whole, never changed in place. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hookbus_schemas import Enforcement, FailurePolicy, HookRegistration, InvalidMessage, subjects
from hookbus_schemas.globs import matches_any
from hookbus_schemas.hook import Decide


@dataclass(frozen=True)
class RegisteredHook:
    """One hook and how to ask it.

    Attributes:
        name, registration: as the operator wrote them.
        revision: of the registration in its bucket; 0 for a hook in the agent's own process.
        decide: how to ask a hook in the agent's own process; None for one on the bus.
        problem: why the registration cannot be read, and what to do; such a hook denies, since nobody can tell what it
            was to guard.
        key: of the registration in its bucket; empty for a hook in the agent's own process.
    """

    name: str
    registration: HookRegistration
    revision: int = 0
    decide: Decide | None = field(default=None, compare=False)
    problem: str = ""
    key: str = ""

    @cached_property
    def enforced(self) -> bool:
        """Whether its deny stops a call."""
        return self.registration.enforcement is Enforcement.ENFORCE

    @property
    def fails_open(self) -> bool:
        """Whether a call passes when no usable answer comes."""
        return self.registration.failure_policy is FailurePolicy.ALLOW

    @property
    def has_side_effects(self) -> bool:
        """Whether it counts or spends, and so is not asked on a dry run."""
        return self.registration.side_effects == "some"

    def asked_about(self, tool: str) -> bool:
        """Tell whether it is to be asked before a call of this tool."""
        return "before" in self.registration.events and matches_any(self.registration.tools, tool)

    def told_of(self, tool: str) -> bool:
        """Tell whether it is to be told after a call of this tool."""
        return "after" in self.registration.events and matches_any(self.registration.tools, tool)


def from_bucket(key: str, value: bytes, revision: int) -> RegisteredHook:
    """Return the hook that one entry of the bucket ``HOOKS`` registers, with its `problem` if it cannot be read."""
    try:
        name = subjects.name(key)
    except InvalidMessage as error:
        return _unreadable(_recordable(key), key, revision, f"{error}; remove it")
    if not name:
        return _unreadable(key, key, revision, "registration has no name; remove it")
    try:
        return RegisteredHook(name, HookRegistration.from_json(value), revision, key=key)
    except InvalidMessage as error:
        return _unreadable(name, key, revision, f"{error}; register it anew")


def _unreadable(name: str, key: str, revision: int, problem: str) -> RegisteredHook:
    return RegisteredHook(name, HookRegistration(), revision, problem=problem, key=key)


def _recordable(key: str) -> str:
    """Return as much of a key as a name can hold."""
    return key.encode()[: subjects.MAX_NAME_BYTES].decode(errors="ignore")


class HookTable:
    """All hooks of one moment, in the order in which their decisions are reported."""

    def __init__(self, on_bus: Iterable[RegisteredHook] = (), in_process: Iterable[RegisteredHook] = ()) -> None:
        # A hook on the bus wins over one of its name in the process: nobody answers in another's name.
        # One that cannot be read wins over both, since it denies.
        by_problem = sorted((*in_process, *on_bus), key=lambda hook: bool(hook.problem))
        by_name: Mapping[str, RegisteredHook] = {hook.name: hook for hook in by_problem}
        self.hooks = tuple(sorted(by_name.values(), key=lambda hook: (hook.registration.order, hook.name)))
        self._by_name = by_name
        self._by_tool: dict[str, tuple[tuple[RegisteredHook, ...], tuple[RegisteredHook, ...]]] = {}

    def gap(self, name: str, tool: str) -> str:
        """Return why a hook that is required does not guard calls of this tool, and what to do; empty if it does."""
        hook = self._by_name.get(name)
        if hook is None:
            return f"not registered; `hookbus up` serves the built-in ones, `hookbus hooks add {name}` registers it"
        said = hook.registration
        if not hook.enforced:
            return f"only a shadow, which never blocks; `hookbus hooks enforce {name}` lets it"
        if "before" not in said.events:
            return "only told after calls; register it anew with `before` among its events"
        if not hook.asked_about(tool):
            return f"not asked about this tool; register it anew with tools that match (now {', '.join(said.tools)})"
        return ""

    def for_tool(self, tool: str) -> tuple[RegisteredHook, ...]:
        """Return the hooks to ask before a call of this tool."""
        return self._chosen(tool)[0]

    def told_of(self, tool: str) -> tuple[RegisteredHook, ...]:
        """Return the hooks to tell after a call of this tool."""
        return self._chosen(tool)[1]

    def _chosen(self, tool: str) -> tuple[tuple[RegisteredHook, ...], tuple[RegisteredHook, ...]]:
        if tool not in self._by_tool:
            if len(self._by_tool) >= 1024:  # models make names up
                self._by_tool.clear()
            asked = tuple(hook for hook in self.hooks if hook.asked_about(tool))
            self._by_tool[tool] = asked, tuple(hook for hook in self.hooks if hook.told_of(tool))
        return self._by_tool[tool]
