"""The built-in hook that says how far an agent may go by itself: what it may change, where, and by which commands."""

import os
from dataclasses import dataclass
from functools import cached_property

from hookbus_schemas import Decision, InvalidArguments, ToolHookContext, ToolHookWithContext, parse_arguments
from hookbus_schemas.arguments import JsonObject
from hookbus_schemas.decision import PLAIN_ALLOW
from hookbus_schemas.globs import matches
from hookbus_schemas.threads import Threads
from hookbus_subscribers.autonomy_settings import AutonomySettings, Mode
from hookbus_subscribers.commands import ALL, Command, commands_of, is_shell, not_allowed, shown
from hookbus_subscribers.located import Located, located, within
from hookbus_subscribers.mutating import changes_something

LONG = 4096
"""Characters of arguments beyond which a call is judged in a thread, so that it delays no other."""

STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
"""Files outside every workspace that any command may write to."""


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
        problems = [command.line.unclear for command in self.commands if command.line.unclear]
        return f"it cannot be told which files the command line opens: {problems[0]}" if problems else ""


class Autonomy(ToolHookWithContext):
    """Denies calls that change something, leave the workspace, touch forbidden paths, or run other commands."""

    name = "Autonomy"

    def __init__(self, settings: AutonomySettings | None = None) -> None:
        self._settings = settings or AutonomySettings()
        root = self._settings.workspace_root
        self._root = os.path.realpath(root.expanduser()) if root else ""
        self._threads = Threads(4)
        self._rules = {  # by reason code, in the order of the reference system
            "readonly": self._readonly,
            "outside_workspace": self._workspace,
            "forbidden_path": self._forbidden_path,
            "forbidden_command": self._forbidden_command,
            "shell": self._shell,
        }

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
        for code, rule in self._rules.items():
            if problem := rule(call):
                return Decision.deny(problem, reason_code=code)
        return PLAIN_ALLOW

    def _readonly(self, call: _Call) -> str:
        readers = self._settings.read_only_tools
        if self._settings.mode is not Mode.READONLY or not changes_something(call.context, call.values, readers):
            return ""
        return f"{shown(call.context.tool_name)} may change something, and the mode is readonly"

    def _workspace(self, call: _Call) -> str:
        if not self._settings.workspace_only:
            return ""
        for path in call.paths:
            if path.real is None:
                return f"it cannot be told whether path {shown(path.given)} is inside the workspace {self._root}"
            if not within(path.real, self._root) and path.given not in STANDARD_STREAMS:
                leads = "" if path.given == path.real else f": it leads to {shown(path.real)}"
                return f"path {shown(path.given)} is outside the workspace {self._root}{leads}"
        return call.unclear

    def _forbidden_path(self, call: _Call) -> str:
        for path in call.paths if self._settings.forbidden_path_globs else ():
            if path.real is None:
                return f"it cannot be told whether path {shown(path.given)} is a forbidden one"
            for glob in self._forbidden(call):
                if matches(glob, path.given) or matches(glob, path.real):
                    return f"path {shown(path.given)} is forbidden by {glob}"
        return ""

    def _forbidden_command(self, call: _Call) -> str:
        if not self._settings.forbidden_path_globs:
            return ""
        for glob in self._forbidden(call):
            if any(command.mentions(glob) for command in call.commands):
                return f"the command line names a path that is forbidden by {glob}"
        return call.unclear

    def _shell(self, call: _Call) -> str:
        globs = self._settings.allowed_shell_command_globs
        if (self._settings.allow_shell and ALL in globs) or not is_shell(call.context, call.values, call.commands):
            return ""
        return not_allowed(call.commands, globs) if self._settings.allow_shell else "shell commands are not allowed"

    def _forbidden(self, call: _Call) -> tuple[str, ...]:
        """Return the globs, those that begin with ``~`` also with the executor's home."""
        globs, home = self._settings.forbidden_path_globs, call.context.home_directory
        return (*globs, *(home + glob[1:] for glob in globs if home and (glob == "~" or glob.startswith("~/"))))
