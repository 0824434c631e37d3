"""Builtins that may run what is in a value, or change how the text after them is read; tests among them."""

import re

from tree_sitter import Node

from hookbus_schemas.bash_syntax import Unclear, names, written
from hookbus_schemas.bash_words import static

_NEW_MEANINGS = frozenset(("alias", "unalias", "shopt", "enable"))
_SET = re.compile(r"[-+][aefuvxo]+|pipefail|errexit|nounset|xtrace|--")
_EVALUATE = names("mapfile printf read readarray test unset wait")
_DECLARE = names("declare export local readonly typeset unset")
_RUN_TEXT = re.compile(r"-\w*[CFW]")
_ARITHMETIC_TESTS = frozenset((b"-eq", b"-ne", b"-lt", b"-le", b"-gt", b"-ge", b"-v", b"-R"))
_FOREIGN = frozenset(("<", ">", "(", ")", "&&", "||"))
_ONE_NUMBER = frozenset((b"$?", b"$#", b"$$"))
_OPERATOR = re.compile(rb"-\w+|[=!]?=|[)\]]")


def check_builtin(name: str, words: list[Node], source: bytes) -> None:
    """Hold a command against what its builtin may do with the words after it.

    Raises:
        Unclear: it may run more than is seen.
    """
    values = [static(word, source) for word in words]
    if name in _NEW_MEANINGS:
        raise Unclear(f"{name} changes how the text after it is read")
    if name == "set" and not all(value is not None and _SET.fullmatch(value) for value in values):
        raise Unclear("set may change how the text after it is read")
    if name == "let":
        raise Unclear("arithmetic is only read when it holds nothing but numbers")
    if name in _DECLARE:
        raise Unclear("a builtin that declares variables is not written as one")
    if name in ("compgen", "mapfile", "readarray") and any(value and _RUN_TEXT.match(value) for value in values):
        raise Unclear("a builtin is given a text that it may run")
    if name in _EVALUATE:
        for word in words:
            _check_evaluated(word, source)
        named = name not in ("printf", "test") or "-v" in values or (name == "printf" and values[:1] == [None])
        if named and None in values:
            raise Unclear("a builtin is given the name of a variable that is known only when it runs")
    if name == "test":
        _check_splits(words, source)


def check_declaration(parts: list[Node], source: bytes) -> None:
    """Hold the words of `declare` and its like: bash runs what is in the value that it gives to an array.

    Raises:
        Unclear: a variable is more than text, or may be.
    """
    arrays = written(parts[0], source) in (b"declare", b"typeset", b"local")
    for part in parts[1:]:
        _check_evaluated(part, source)
        value = static(part, source)
        if part.type not in ("variable_assignment", "variable_name") and value is None:
            raise Unclear("a builtin is given the name of a variable that is known only when it runs")
        if value and value[0] in "-+" and not value[1:].isdigit():
            if set(value[1:]) - set("agxrfptF"):
                raise Unclear("a variable is declared to be more than text")
            arrays = arrays or "a" in value
        if value and "=(" in value:
            raise Unclear("an array is given a value that may be run")
    if arrays and not all(_is_plain(part, source) for part in parts if part.type == "variable_assignment"):
        raise Unclear("an array is given a value that may be run")


def check_single(tokens: list[Node], source: bytes) -> None:
    """Hold what stands between single brackets.

    Raises:
        Unclear: it may be another test than is seen.
    """
    if any(not token.is_named and token.type in _FOREIGN | {"=~"} for token in tokens):
        raise Unclear("a test in single brackets holds a sign that means something else there")
    if any(written(token, source) in (b"-v", b"-R") for token in tokens):
        raise Unclear("a test asks for a variable: its name may be run")
    _check_splits(tokens, source)


def check_double(tokens: list[Node], source: bytes) -> None:
    """Hold what stands between double brackets, which is a command like others for a `sh` that is not bash.

    Raises:
        Unclear: it looks into values, or such a `sh` would start or open something.
    """
    if any(written(token, source) in _ARITHMETIC_TESTS for token in tokens):
        raise Unclear("a test compares numbers, or asks for a variable: values may be run")
    if any(token.type in _FOREIGN or (token.type == "regex" and b"|" in written(token, source)) for token in tokens):
        raise Unclear("a test in double brackets holds a sign that another shell takes for its own")


def _check_evaluated(node: Node, source: bytes) -> None:
    """Refuse a subscript with a substitution in quotes: these builtins expand it once more."""
    text = written(node, source)
    if b"[" in text and any(sign in text for sign in (b"$", b"`", b"\\")):
        raise Unclear("a builtin is given a subscript that it may run")


def _check_splits(words: list[Node], source: bytes) -> None:
    """Refuse a word that, when it runs, could be the operator -v before a name."""
    for word, after in zip(words, [*words[1:], None], strict=True):
        text = written(word, source)
        if not word.is_named or word.type in ("test_operator", "arithmetic_expansion") or text in _ONE_NUMBER:
            continue
        alone = word.type == "string" and b"@" not in text
        last = after is None or _OPERATOR.fullmatch(written(after, source))
        if static(word, source) in ("-v", "-R") or (static(word, source) is None and not (alone and last)):
            raise Unclear("a test asks for a variable, or may when it runs: its name may be run")


def _is_plain(assignment: Node, source: bytes) -> bool:
    """Tell whether a value is written as an array, or is a text that is known and no array."""
    value = assignment.children[-1]
    if value.type in ("array", "=", "+="):
        return True
    known = static(value, source)
    return known is not None and not known.startswith("(")
