"""What a tool says of itself, for the hooks that judge its calls."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Declared:
    """Names of parameters, and whether the tool only reads; None where the tool says nothing.

    Attributes:
        paths: parameters that hold paths.
        commands: parameters that hold command lines for bash.
        read_only: the tool changes nothing.
    """

    paths: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    read_only: bool | None = None

    @classmethod
    def of(cls, paths: Sequence[str] | None, command: str | None, read_only: bool | None) -> "Declared":
        """Return what the options of `Executor.tool` declare; an empty `command` says that there is none."""
        commands = None if command is None else tuple(name for name in (command,) if name)
        return cls(None if paths is None else tuple(paths), commands, read_only)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that are named."""
        return (*(self.paths or ()), *(self.commands or ()))


UNDECLARED = Declared()
"""Of a tool that says nothing, or that another executor runs."""
