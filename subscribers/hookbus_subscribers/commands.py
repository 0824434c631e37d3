"""The command lines of a call, and which of them an operator's globs let run."""

import re
from dataclasses import dataclass

from hookbus_schemas import ToolHookContext
from hookbus_schemas.arguments import JsonObject
from hookbus_schemas.command_line import CommandLine, parse
from hookbus_schemas.globs import matches, matches_any
from hookbus_schemas.path_arguments import command_texts
from hookbus_subscribers.mutating import starts_process

SHELLS = frozenset(
    {"shell", "bash", "sh", "zsh", "fish", "dash", "ksh", "powershell", "pwsh", "cmd", "terminal", "local_shell"}
    | {"run_command", "run_shell_command", "run_terminal_cmd", "run_in_terminal", "execute_command", "exec_command"}
)
"""Tools, in lower case, whose every call runs a command line, also one that is in no argument of a usual name."""

ALL = "*"
"""The glob that lets every command line run, read or not."""

_QUOTING = re.compile(r"""['"\\]|\$(?=['"])""")
_HOME = re.compile(r"\$(HOME\b|\{HOME\})")


@dataclass(frozen=True, slots=True)
class Command:
    """One command line of a call.

    Attributes:
        text: as given.
        line: what bash would make of it.
    """

    text: str
    line: CommandLine

    def mentions(self, glob: str) -> bool:
        """Tell whether what the glob describes stands anywhere in it, quoted or not, ``$HOME`` for ``~`` included."""
        plain = _HOME.sub("~", _QUOTING.sub("", self.text))
        return any(matches(f"*{glob}*", text) for text in (self.text, plain))


def commands_of(context: ToolHookContext, values: JsonObject) -> tuple[Command, ...]:
    """Return the command lines of a call."""
    return tuple(Command(text, parse(text)) for _, text in command_texts(context, values))


def is_shell(context: ToolHookContext, values: JsonObject, commands: tuple[Command, ...]) -> bool:
    """Tell whether a call runs a command line, be it one that cannot be told."""
    named = context.tool_name.strip().lower() in SHELLS
    return named or bool(commands) or bool(context.command_arguments) or starts_process(context, values)


def not_allowed(commands: tuple[Command, ...], globs: tuple[str, ...]) -> str:
    """Return why a call that runs command lines may not run, in words for the model; empty if it may.

    Each command in each line must match one of the globs by itself.
    """
    if not globs:
        return "no shell command is allowed"
    if not commands:
        return "it cannot be told which command would run, so not that it is an allowed one"
    for command in commands:
        if command.line.unclear:
            return f"the command line cannot be read for certain, so not be allowed: {command.line.unclear}"
        for part in command.line.commands:
            if not matches_any(globs, part):
                return f"shell command {program(part)} is not among the allowed ones"
    return ""


def program(command: str) -> str:
    """Return which program a command starts, and none of its arguments: they may hold secrets."""
    word = command.split(maxsplit=1)[0] if command.strip() else ""
    name, is_assignment, _ = word.partition("=")
    return shown(f"{name}=..." if is_assignment else word)


def shown(text: str, limit: int = 200) -> str:
    """Return text of others as part of a reason: one line, not too long."""
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: limit + 1])
    return plain if len(plain) <= limit else plain[:limit] + "…"
