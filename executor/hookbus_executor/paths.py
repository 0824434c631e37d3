"""Where the paths among a call's arguments lead on this machine, for hooks that run on another."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

from hookbus_schemas import ResolvedPath, ToolHookContext
from hookbus_schemas.command_line import parse
from hookbus_schemas.path_arguments import command_texts, names_directory, path_texts

MOVES = frozenset({"cd", "pushd", "popd", "builtin", "command", "eval", "source", "trap", "alias", "shopt", "enable"})
"""Words of a shell after which nobody can tell where its relative paths begin."""

STARTERS = frozenset({"chroot", "env", "sudo"})
"""Programs that may start a shell in another directory."""

LONGEST = 4096
"""Bytes of the longest path that Linux takes; a longer one would take seconds to resolve."""

LINKS = 40
"""How many links the kernel follows in one path."""

_STREAMS = frozenset({"/dev/stdin", "/dev/stdout", "/dev/stderr"})
_OF_A_PROCESS = re.compile(r"/proc/(?:self|thread-self|[0-9]+)")
_FIRST_CD = re.compile(r"[ \n]*cd +(?!-)([\w./-]+) *(?:&&|;|\n)", re.ASCII)


def has_paths(context: ToolHookContext, values: Mapping[str, object]) -> bool:
    """Tell whether there is anything to resolve."""
    return bool(path_texts(context, values) or command_texts(context, values))


def resolve(context: ToolHookContext, values: Mapping[str, object]) -> tuple[ResolvedPath, ...]:
    """Return each path of the call with each real one that it may have; this reads the disk: it belongs in a thread."""
    here: list[str | None] = [context.working_directory]
    paths = path_texts(context, values)
    directories = [path for argument, path in paths if names_directory(argument)]
    bases = [real for path in directories for real in _reals(path, here)] or here
    found: list[ResolvedPath] = []
    for argument, path in paths:
        found += _resolved(argument, path, _reals(path, here if names_directory(argument) else bases))
    for argument, text in command_texts(context, values):
        found += _redirections(argument, text, bases)
    return tuple(dict.fromkeys(found))


def _redirections(argument: str, text: str, bases: list[str | None]) -> Iterator[ResolvedPath]:
    line = parse(text)
    first = _FIRST_CD.match(text)
    commands = line.commands
    if first and commands[:1] == (f"cd {first[1]}",) and ".." not in first[1] and "CDPATH" not in os.environ:
        inside = _reals(first[1], bases)
        entered = all(real is not None and os.access(os.path.join(real, "."), os.X_OK) for real in inside)  # noqa: PTH118
        bases = inside if entered else [*bases, *inside]
        commands = commands[1:]
    moves = any((MOVES | STARTERS).intersection(command.split()) or command.startswith(". ") for command in commands)
    for path in line.files:
        unknown = moves and not path.startswith("/")
        reals = [
            None if unknown or _is_of_a_process(base, path) else real for base in bases for real in _reals(path, [base])
        ]
        yield from _resolved(argument, path, dict.fromkeys(reals))


def _is_of_a_process(base: str | None, path: str) -> bool:
    """Tell whether the way there leads through a process, such as ``/proc/self/cwd``: the shell is another one."""
    if len(path) > LONGEST:
        return True
    at, left, links = "/" if path.startswith("/") else base or "/", path.split("/")[::-1], 0
    while left and path not in _STREAMS:
        part = left.pop()
        at = os.path.normpath(os.path.join(at, part))  # noqa: PTH118 - pathlib would keep ".."
        if _OF_A_PROCESS.fullmatch(at) or links > LINKS:
            return True
        try:
            target = os.readlink(at)  # noqa: PTH115 - as text
        except (OSError, ValueError):  # no link
            continue
        links += 1
        at = os.path.dirname(at)  # noqa: PTH120 - as text
        left += target.split("/")[::-1] if not target.startswith("/") else [*target.split("/")[:0:-1], "/"]
    return False


def _resolved(argument: str, path: str, reals: Iterable[str | None]) -> Iterator[ResolvedPath]:
    for real in reals:
        yield ResolvedPath(argument=argument, given=path, real=real)


def _reals(path: str, bases: Iterable[str | None]) -> list[str | None]:
    """Return where the path may lead: from each base, and as each of what tools take it for."""
    return list(dict.fromkeys(_real(base, meant) for meant in _meanings(path) for base in bases))


def _meanings(path: str) -> Iterator[str]:
    """Yield the path as it is and, where a tool may do so, trimmed, with ``~`` expanded or as a file's URL."""
    yield path
    if path != path.strip():
        yield from _meanings(path.strip())
    if path.startswith("~"):
        yield os.path.expanduser(path)  # noqa: PTH111 - pathlib would drop a trailing slash
    if path[:5].lower() == "file:":
        yield unquote("/" + path[5:].lstrip("/"))


def _real(base: str | None, path: str) -> str | None:
    """Return the path with links followed first, then ``..``; None for a loop or what the system does not show."""
    if (base is None and not path.startswith("/")) or len(path) > LONGEST:
        return None
    try:
        real = os.path.realpath(os.path.join(base or "/", path))  # noqa: PTH118 - pathlib would drop a trailing slash
    except (OSError, ValueError):  # a NUL byte, a working directory that is gone
        return None
    try:
        return None if stat.S_ISLNK(os.lstat(real).st_mode) else real
    except (FileNotFoundError, NotADirectoryError):
        return real
    except OSError:  # a loop of links, a name that is too long, a folder that may not be searched
        return None
