"""Where the paths among a call's arguments lead on this machine, for hooks that run on another."""

import os

from hookbus_executor.arguments import JsonObject
from hookbus_schemas import ResolvedPath

PATH_ARGUMENTS = frozenset(
    {"path", "paths", "file", "file_path", "file_paths", "filename", "files", "cwd", "working_directory", "directory"}
    | {"dir", "folder", "root", "source", "src", "destination", "dest", "dst", "target", "output", "output_path"}
    | {"output_file", "input_path", "input_file", "image_path", "image_paths"}
)
"""Names by which tools commonly take paths, compared without regard to case."""


def given_paths(values: JsonObject) -> list[tuple[str, str]]:
    """Return (argument, path) for each text, or text in a list, under one of `PATH_ARGUMENTS`."""
    found: list[tuple[str, str]] = []
    for argument, value in values.items():
        if argument.lower() in PATH_ARGUMENTS:
            several = value if isinstance(value, list) else [value]
            found.extend((argument, path) for path in several if isinstance(path, str))
    return found


def resolve(given: list[tuple[str, str]], working_directory: str) -> tuple[ResolvedPath, ...]:
    """Return each path with its real one; this reads the disk, so it belongs in a thread."""
    return tuple(
        ResolvedPath(argument=argument, given=path, real=_real(path, working_directory)) for argument, path in given
    )


def _real(path: str, working_directory: str) -> str | None:
    try:
        return os.path.realpath(os.path.join(working_directory, os.path.expanduser(path)))  # noqa: PTH111, PTH118
    except (OSError, ValueError):  # a NUL byte, a loop of links, a name that the system does not take
        return None
