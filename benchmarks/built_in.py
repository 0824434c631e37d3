"""The built-in hooks as contestants: served as an operator would have them who lets agents work in one folder."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from hookbus_schemas import Decision, HookRegistration, ToolHookContext
from hookbus_schemas.hook import Hook
from hookbus_subscribers import BUILT_IN, Autonomy, AutonomySettings

NAMES = ("AuditLog", "Autonomy", "ContractScope")
"""Those that are asked together; the session has no contract."""

TOOL = "read_file"
ARGUMENTS = {"path": "/srv/agent/src/main.py", "note": "x" * 400}
SETTINGS = {
    "workspace_only": True,
    "workspace_root": "/srv/agent",
    "forbidden_path_globs": ["*.pem", "~/.ssh/*"],
    "allowed_shell_command_globs": ["git *", "ls*"],
}


def write_settings(folder: Path) -> Path:
    """Write a configuration file with the settings; these values are written alike in TOML and JSON."""
    lines = ["[autonomy]", *(f"{name} = {json.dumps(value)}" for name, value in SETTINGS.items())]
    path = folder / "hookbus.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def made(config: Path, names: list[str]) -> list[Hook]:
    """Return the hooks with the settings of a configuration file."""
    return [BUILT_IN[name].make(config) for name in names]


def registrations() -> dict[str, HookRegistration]:
    """Return how each is registered: as it comes, for the one tool."""
    return {name: BUILT_IN[name].registration.model_copy(update={"tools": (TOOL,)}) for name in NAMES}


def path_check(context: ToolHookContext) -> Callable[[], Awaitable[Decision]]:
    """Return Autonomy's judgement of a call by itself, no executor and no bus about it."""
    autonomy = Autonomy(AutonomySettings.model_validate(SETTINGS))

    async def work() -> Decision:
        return await autonomy.before_execute(context)

    return work
