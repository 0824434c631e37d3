"""Which arguments are paths and which are command lines: read in one way by whoever asks and whoever judges.

A tool may declare them by name; where it does not, the names count by which tools commonly take them.
"""

from collections.abc import Iterable, Iterator, Mapping

from hookbus_schemas.context import ToolHookContext


def _plain(name: str) -> str:
    """Return a name without regard to case and separators: ``filePath`` and ``File-Path`` are ``file_path``."""
    return name.lower().replace("_", "").replace("-", "")


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(_plain(name) for name in names)


DIRECTORY_ARGUMENTS = ("cwd", "working_directory", "working_dir", "workdir")
"""Usual names of the directory in which a call's other relative paths begin."""

PATH_ARGUMENTS = (
    *DIRECTORY_ARGUMENTS,
    *("path", "paths", "file", "files", "file_path", "file_paths", "filename", "directory", "dir", "folder", "root"),
    *("source", "src", "destination", "dest", "dst", "target", "output", "output_path", "output_file", "output_dir"),
    *(
        "input_path",
        "input_file",
        "image_path",
        "image_paths",
        "absolute_path",
        "notebook_path",
        "old_path",
        "new_path",
        "pathname",
        "filenames",
        "source_path",
        "destination_path",
        "target_path",
        "target_file",
        "target_directory",
        "directory_path",
        "folder_path",
        "local_path",
        "repo_path",
    ),
)
"""Usual names of paths."""

COMMAND_ARGUMENTS = ("command", "commands", "cmd", "cmdline", "command_line", "shell_command", "bash_command")
"""Usual names of command lines."""

_DIRECTORIES = _names(DIRECTORY_ARGUMENTS)
_PATHS = _names(PATH_ARGUMENTS)
_COMMANDS = _names(COMMAND_ARGUMENTS)

Found = tuple[str, str]
"""An argument, with dots between the names on the way to it, and a text in it."""


def path_texts(context: ToolHookContext, values: Mapping[str, object]) -> list[Found]:
    """Return each path among a call's arguments; `values` is what ``arguments_json`` parses to."""
    return _texts(values, _PATHS if context.path_arguments is None else _names(context.path_arguments))


def command_texts(context: ToolHookContext, values: Mapping[str, object]) -> list[Found]:
    """Return each command line among a call's arguments; `values` is what ``arguments_json`` parses to."""
    return _texts(values, _COMMANDS if context.command_arguments is None else _names(context.command_arguments))


def names_directory(argument: str) -> bool:
    """Tell whether other relative paths begin in what this argument names; not for a nested one."""
    return _plain(argument) in _DIRECTORIES


def _texts(values: Mapping[str, object], names: frozenset[str]) -> list[Found]:
    return list(_walk(values, names)) if names else []


def _walk(values: Mapping[str, object], names: frozenset[str]) -> Iterator[Found]:
    """Yield each text under one of the names, however deep; without recursion, which arguments could exhaust.

    Under a name that counts everything counts: the items of a list and, of an object in which no name counts by
    itself, its keys and values. Who judges would rather look at too much.
    """
    left: list[tuple[str, object, bool]] = [("", values, False)]
    while left:
        argument, value, counts = left.pop()
        if isinstance(value, str):
            if counts:
                yield argument, value
        elif isinstance(value, list):
            left.extend((argument, item, counts) for item in reversed(value))
        elif isinstance(value, Mapping):
            named = {key for key in value if _plain(key) in names}
            everything = counts and not named
            for key, below in reversed(tuple(value.items())):
                left.append((f"{argument}.{key}" if argument else key, below, everything or key in named))
            if everything:
                yield from ((argument, key) for key in value)
