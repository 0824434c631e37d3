"""Which calls change something: what the mode ``readonly`` of Autonomy stops."""

from collections.abc import Mapping

from hookbus_schemas import ToolHookContext
from hookbus_schemas.arguments import JsonObject
from hookbus_schemas.globs import matches_any

ALWAYS = frozenset(
    {"write_file", "file_write", "edit_file", "apply_patch", "shell", "code_exec", "git", "database"}
    | {"home_assistant_write", "mqtt_publish", "notion_write", "inbox_zero", "email", "calendar", "delegate_agent"}
)
"""Tools, in lower case, that change something whatever they are asked and whatever they say of themselves."""

READING_ACTIONS: Mapping[str, tuple[str, frozenset[str]]] = {
    "process": ("start", frozenset({"list", "poll", "log", "status", "read", "output", "wait"})),
    "automation": ("list", frozenset({"list", "get", "show", "status", "history", "preview"})),
    "external_cli": ("", frozenset({"list", "describe", "status", "help", "preview"})),
    "todo": ("list", frozenset({"list"})),
}
"""Tools for which it depends on the argument `action`: the default one, and those that only read."""

READERS = (
    *(
        "read_file",
        "file_read",
        "list",
        "list_*",
        "search",
        "search_*",
        "fetch",
        "fetch_*",
        "get_*",
        "read_*",
        "find_*",
    ),
    *("glob", "grep", "ls", "web_search", "web_fetch", "memory_search", "memory_get", "sessions_list"),
    *("image_analyze", "pdf_read", "vision_analyze", "home_assistant", "mqtt", "notion", "session_search"),
)
"""Globs of the tools that are known to read only."""


def changes_something(context: ToolHookContext, values: JsonObject, readers: tuple[str, ...]) -> bool:
    """Tell whether a call may change something; what is neither known nor declared is taken to.

    Args:
        context: the call.
        values: its arguments.
        readers: globs of tools that only read.
    """
    tool = context.tool_name.strip().lower()
    if context.read_only is False or tool in ALWAYS:
        return True
    if tool in READING_ACTIONS:
        return not _actions(tool, values) <= READING_ACTIONS[tool][1]
    return not (context.read_only or matches_any(readers, tool))


def starts_process(context: ToolHookContext, values: JsonObject) -> bool:
    """Tell whether this is a call of `process` that may start one."""
    return context.tool_name.strip().lower() == "process" and bool(_actions("process", values) - _HARMLESS)


_HARMLESS = READING_ACTIONS["process"][1] | {"write", "kill"}


def _actions(tool: str, values: JsonObject) -> set[str]:
    """Return the action; several where the name is written in several ways, for nobody knows which the tool reads."""
    given = [value for name, value in values.items() if name.lower() == "action"] or [READING_ACTIONS[tool][0]]
    return {value.strip().lower() if isinstance(value, str) else "" for value in given}
