"""The settings of the built-in hook Autonomy: table ``[autonomy]``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, model_validator

from hookbus_broker import Section
from hookbus_subscribers.mutating import READERS


class Mode(StrEnum):
    """How far an agent may go."""

    READONLY = "readonly"
    SUPERVISED = "supervised"
    FULL = "full"


def _trimmed(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _not_blank(globs: object) -> object:
    """Trim the globs and leave out blank ones; what is no list of texts is refused after this."""
    if not isinstance(globs, list | tuple):
        return globs
    trimmed = (glob.strip() if isinstance(glob, str) else glob for glob in globs)
    return tuple(glob for glob in trimmed if glob != "")


Globs = Annotated[tuple[str, ...], BeforeValidator(_not_blank)]


class AutonomySettings(Section, table="autonomy"):
    """What agents may do by themselves."""

    mode: Annotated[Mode, BeforeValidator(_trimmed)] = Mode.SUPERVISED
    """``readonly`` denies what may change something; ``supervised`` and ``full`` leave it to the other settings."""

    workspace_only: bool = False
    """Deny paths outside ``workspace_root``. Default false, as in the reference system."""

    workspace_root: Path | None = None
    """Folder on the executors' machines, absolute. No default: a workspace that nobody named would be a guess."""

    forbidden_path_globs: Globs = ()
    """Paths that no call may touch; ``*`` crosses ``/``, ``~`` is the home of the executor. Default none."""

    allow_shell: bool = True
    """Whether any command line may run. Default true: ``allowed_shell_command_globs`` says which."""

    allowed_shell_command_globs: Globs = ("*",)
    """Each command of a command line must match one; an empty list allows none. Default all."""

    read_only_tools: Globs = READERS
    """Globs of tools that change nothing, names in lower case. Default the known readers of the reference system."""

    @model_validator(mode="after")
    def _rooted(self) -> Self:
        if self.workspace_only and self.workspace_root is None:
            raise ValueError("workspace_root should be a folder where workspace_only is true")
        if self.workspace_root is not None and not _is_place(self.workspace_root):
            raise ValueError(f"workspace_root should be absolute, not {self.workspace_root}")
        return self

    @model_validator(mode="after")
    def _anchored(self) -> Self:
        for glob in self.forbidden_path_globs:
            anchored = glob == "~" or glob.startswith(("/", "*", "~/"))
            if not anchored or glob.rstrip("/") not in ("", glob):
                raise ValueError(f"forbidden_path_globs should begin with /, ~/ or * and not end with /, unlike {glob}")
        return self


def _is_place(path: Path) -> bool:
    try:
        return path.expanduser().is_absolute() and "\0" not in str(path)
    except RuntimeError:  # ~ of nobody
        return False
