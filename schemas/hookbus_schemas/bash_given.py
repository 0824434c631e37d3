"""Text that a command is given to run: by `bash -c`, `eval` and `trap`, or on the standard input of a shell."""

import re
from dataclasses import dataclass

from hookbus_schemas.bash_syntax import Unclear, names

Words = list[str | None]
"""A command's words in order; None stands for one that is known only when it runs."""

SHELLS = names("ash bash csh dash elvish fish ksh mksh nu oksh pwsh rbash sh tcsh xonsh yash zsh")
_READ = frozenset(("bash", "sh", "dash", "ash"))
_ON_STDIN = SHELLS | {"at", "batch", "parallel", "ssh", "su", "xargs"}
_FLAGS = re.compile(r"[-+][abefhmnuvxiklprsc]+")
_OPTIONS = names("errexit nounset pipefail xtrace")
_LONG = frozenset(("--login", "--noprofile", "--norc", "--posix", "--verbose"))
_STDIN = frozenset(("-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))


@dataclass(frozen=True, slots=True)
class Given:
    """A text that some shell is going to run; `plain` when that shell is not bash."""

    text: str
    plain: bool


def given(name: str, words: Words) -> Given | None:
    """Return what a command, by its name and the words after it, is given to run.

    Raises:
        Unclear: that is known only when it runs, or it is for a shell whose language is not read.
    """
    base = name.rpartition("/")[2]
    if base == "eval":
        return Given(" ".join(_known(words[words[:1] == ["--"] :])), plain=False)
    if base == "trap":
        return _trap(words)
    if base in SHELLS:
        return _shell(base, words)
    return _started(words)


def runs_its_input(name: str, words: Words) -> bool:
    """Tell whether a command may run what it reads from its standard input."""
    bases = [word.rpartition("/")[2] for word in words if word is not None]
    base = name.rpartition("/")[2]
    if base in SHELLS:
        operands = [word for word in words if word is None or not word.startswith(("-", "+"))]
        return not operands or any(word in _STDIN or word is None for word in words)
    if base in ("source", "."):
        return any(word in _STDIN or word is None for word in words)
    return base in _ON_STDIN or any(other in SHELLS for other in bases)


def _known(words: Words) -> list[str]:
    known = [word for word in words if word is not None]
    if len(known) != len(words):
        raise Unclear("a text that is to be run as commands is known only when it runs")
    return known


def _trap(words: Words) -> Given | None:
    first, *rest = [*words[words[:1] == ["--"] :], ""]
    if first is None:
        raise Unclear("a text that is to be run as commands is known only when it runs")
    return None if first == "-" or first.startswith(("-l", "-p")) or not rest else Given(first, plain=False)


def _started(words: Words) -> Given | None:
    """Return what a shell is given that another program starts, as in `timeout 5 sh -c ls`."""
    flags = [at for at, word in enumerate(words) if word and _FLAGS.fullmatch(word) and "c" in word]
    before = words[: flags[-1]] if flags else []
    shells = [at for at, word in enumerate(before) if word and word.rpartition("/")[2] in SHELLS]
    if len(shells) > 1:
        raise Unclear("which of two shells is given commands cannot be told")
    return _shell(str(words[shells[0]]).rpartition("/")[2], words[shells[0] + 1 :]) if shells else None


def _shell(base: str, words: Words) -> Given | None:
    """Follow the options of a shell up to the text of its -c."""
    command = False
    for position, word in enumerate(words):
        if word is None:
            raise Unclear("whether a shell is given commands is known only when it runs")
        previous = words[position - 1] if position else ""
        if word in _LONG or word == "--":
            continue
        if word in ("-o", "+o") or (previous in ("-o", "+o") and word in _OPTIONS):
            continue
        if previous in ("-o", "+o"):
            raise Unclear("a shell is given an option that is not known")
        if _FLAGS.fullmatch(word):
            command = command or "c" in word
            continue
        if word.startswith(("-", "+")) and word not in _STDIN:
            raise Unclear("a shell is given an option that is not known")
        return _text(base, word) if command else None
    return None


def _text(base: str, text: str) -> Given:
    if base not in _READ:
        raise Unclear("commands for a shell whose language is not read")
    return Given(text, plain=base != "bash")
