"""The built-in hook that says how far an agent may go by itself: what it may change, where, and by which commands."""

import os
from dataclasses import dataclass
from functools import cached_property

from hookbus_schemas import Decision, InvalidArguments, ToolHookContext, ToolHookWithContext, parse_arguments
from hookbus_schemas.arguments import JsonObject
from hookbus_schemas.globs import matches, matches_any
from hookbus_schemas.threads import Threads
from hookbus_subscribers.autonomy_settings import AutonomySettings, Mode
from hookbus_subscribers.commands import Command, commands_of, is_shell, not_allowed, shown
from hookbus_subscribers.located import Located, located, within
from hookbus_subscribers.mutating import changes_something

LONG = 4096
"""Characters of arguments beyond which a call is judged in a thread, so that it delays no other."""

STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
"""Files outside every workspace that any command may write to."""


class Autonomy(ToolHookWithContext):
    """Denies calls that change something, leave the workspace, touch forbidden paths, or run other commands."""

    name = "Autonomy"

    def __init__(self, settings: AutonomySettings | None = None) -> None:
        self._settings = settings or AutonomySettings()
        root = self._settings.workspace_root
        self._root = os.path.realpath(root.expanduser()) if root else ""
        self._threads = Threads(4)

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Judge a call by its arguments and by where the executor says that its paths lead."""
        if len(context.arguments_json) > LONG:
            return await self._threads.run(self._judge, context)
        return self._judge(context)

    def _judge(self, context: ToolHookContext) -> Decision:
        try:
            call = _Call(context, parse_arguments(context.arguments_json))
        except InvalidArguments as error:
            return Decision.deny(str(error), reason_code="invalid_arguments")
        for code, rule in _RULES.items():
            if problem := rule(self._settings, self._root, call):
                return Decision.deny(problem, reason_code=code)
        return Decision.allow()


@dataclass
class _Call:
    """A call, read no further than the rules that apply need."""

    context: ToolHookContext
    values: JsonObject

    @cached_property
    def paths(self) -> tuple[Located, ...]:
        return located(self.context, self.values)

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        return commands_of(self.context, self.values)

    @property
    def unclear(self) -> str:
        """Why the files that the call's command lines open cannot be told; empty if they can."""
        return next(
            (
                f"the command line cannot be read: {command.line.unclear}"
                for command in self.commands
                if command.line.unclear
            ),
            "",
        )


def _readonly(settings: AutonomySettings, root: str, call: _Call) -> str:
    if settings.mode is not Mode.READONLY or not changes_something(call.context, call.values, settings.read_only_tools):
        return ""
    return f"{shown(call.context.tool_name)} may change something, and the mode is readonly"


def _workspace(settings: AutonomySettings, root: str, call: _Call) -> str:
    if not settings.workspace_only:
        return ""
    for path in call.paths:
        if path.real is None:
            return (
                f"it cannot be told where path {shown(path.given)} leads, so not that it is inside the workspace {root}"
            )
        if not within(path.real, root) and path.given not in STANDARD_STREAMS:
            leads = "" if path.given == path.real else f": it leads to {shown(path.real)}"
            return f"path {shown(path.given)} is outside the workspace {root}{leads}"
    return call.unclear


def _forbidden_path(settings: AutonomySettings, root: str, call: _Call) -> str:
    if not settings.forbidden_path_globs:
        return ""
    globs = _expanded(settings.forbidden_path_globs, call.context.home_directory)
    for path in call.paths:
        if path.real is None:
            return (
                f"it cannot be told where path {shown(path.given)} leads, so not that it is none of the forbidden ones"
            )
        if matches_any(globs, path.given) or matches_any(globs, path.real):
            glob = next(glob for glob in globs if matches(glob, path.given) or matches(glob, path.real))
            return f"path {shown(path.given)} is forbidden by {glob}"
    return ""


def _forbidden_command(settings: AutonomySettings, root: str, call: _Call) -> str:
    if not settings.forbidden_path_globs:
        return ""
    for glob in _expanded(settings.forbidden_path_globs, call.context.home_directory):
        if any(command.mentions(glob) for command in call.commands):
            return f"the command line names a path that is forbidden by {glob}"
    return call.unclear


def _shell(settings: AutonomySettings, root: str, call: _Call) -> str:
    if settings.allow_shell and settings.allowed_shell_command_globs == ("*",):
        return ""
    if not is_shell(call.context, call.values, call.commands):
        return ""
    if not settings.allow_shell:
        return "shell commands are not allowed"
    return not_allowed(call.commands, settings.allowed_shell_command_globs)


_RULES = {
    "readonly": _readonly,
    "outside_workspace": _workspace,
    "forbidden_path": _forbidden_path,
    "forbidden_command": _forbidden_command,
    "shell": _shell,
}
"""By reason code, in the order of the reference system."""


def _expanded(globs: tuple[str, ...], home: str) -> tuple[str, ...]:
    """Return the globs, those that begin with ``~`` also with the executor's home."""
    at_home = tuple(home + glob[1:] for glob in globs if glob == "~" or glob.startswith("~/")) if home else ()
    return (*globs, *at_home)
