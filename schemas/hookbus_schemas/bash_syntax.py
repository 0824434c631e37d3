"""Which parts of a syntax tree of bash are known, and where the tree may be believed: the grammar is laxer than bash.

Above it: `bash_reading`, which walks the tree. A part that is not in these tables is never guessed at.
"""

import re

from tree_sitter import Node

from hookbus_schemas.errors import HookbusError


class Unclear(HookbusError):
    """A command line that cannot be read for certain; the message says why and quotes nothing of it."""


def names(text: str) -> frozenset[str]:
    """Return the names that a text lists."""
    return frozenset(text.split())


STATEMENTS = names(
    "case_statement command compound_statement c_style_for_statement declaration_command for_statement"
    " function_definition if_statement list negated_command pipeline redirected_statement subshell test_command"
    " unset_command variable_assignment variable_assignments while_statement"
)
BLOCKS = names(
    "program case_item case_statement command_substitution compound_statement do_group elif_clause else_clause"
    " for_statement function_definition if_statement list pipeline process_substitution subshell"
    " while_statement"
)
LINES = names(
    "binary_expression command command_name declaration_command expansion file_redirect herestring_redirect"
    " negated_command parenthesized_expression redirected_statement test_command unary_expression unset_command"
    " variable_assignments"
)
TIGHT = names("brace_expression concatenation simple_expansion subscript variable_assignment")
TEXTS = frozenset(("string", "heredoc_body"))
APART = names("command declaration_command for_statement test_command unset_command variable_assignments")
REDIRECTS = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect"))
KNOWN = STATEMENTS | BLOCKS | LINES | TIGHT | TEXTS | REDIRECTS | {"array", "arithmetic_expansion"}

BASH_ONLY = names("(( [[ $[ <( >( &> &>> |& ;& ;;& <<< function select array ansi_c_string += =~ extglob_pattern")
"""What a plain `sh` reads in another way, or not at all."""

_OPERATORS = names("; & && || | |& ;; ;& ;;& ( ) (( )) $( ` <( >(")
_BLANKS = re.compile(rb"[ \t]*")
DASH = re.compile(rb"[ \t]+-[ \t]+")
"""What the grammar leaves out before a here-document, as in `python3 - <<E`."""
_SPACES = re.compile(rb"[ \t\n]*")
_WORD = re.compile(rb"(?!#)(?:[^\s|&;()<>$`'\"\\]|\\[^\n])+")
_LEAVES = {
    # Without \', where a `sh` that is not bash ends it.
    "ansi_c_string": re.compile(rb"\$'(?:[^'\\]|\\[^'])*'", re.DOTALL),
    "comment": re.compile(rb"#[^\n]*"),
    "extglob_pattern": re.compile(rb"[^\s|&;()<>$`'\"\\#]+"),
    "file_descriptor": re.compile(rb"[0-9]+"),
    "number": _WORD,
    "raw_string": re.compile(rb"'[^']*'"),
    "regex": re.compile(rb"(?:[^\s&;<>$`'\"\\]|\$(?![\w({'\"\[!@*#?$-]))+"),
    "special_variable_name": re.compile(rb"[*@?!#$0_-]"),
    "test_operator": re.compile(rb"-[A-Za-z]+"),
    "variable_name": re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|[0-9]+"),
    "word": _WORD,
}
_DOLLAR = rb"\$(?=[ \t\n'%.,/:;=)\]]|\Z)"
_TEXT = {
    "string": re.compile(rb"(?:[^\\$`\"]|\\.|" + _DOLLAR + rb")*", re.DOTALL),
    "heredoc_body": re.compile(rb"(?:[^\\$`]|\\.|" + _DOLLAR + rb")*", re.DOTALL),
}
_EXPANSION = re.compile(
    rb"\$\{#?(?:[A-Za-z_]\w*|[0-9]+|[@*?$-])(?:\[[0-9]+\]|\[[@*]\])?"
    rb"(?:\}|:[0-9]+(?::[0-9]+)?\}|@[QUuLE]\}|:?[-+?]|##?|%%?|//?|/[#%]|\^\^?|,,?)",
    re.ASCII,
)
_ARITHMETIC = re.compile(rb"[0-9 \t\n+*/%()<>=!&|^~?:,-]*")


def start(node: Node, source: bytes) -> int:
    """Return where a node begins in bytes, without the blanks that the grammar counts to some tokens."""
    first = node.start_byte
    while first < node.end_byte and source[first] in b" \t\n":
        first += 1
    return first


def written(node: Node, source: bytes) -> bytes:
    """Return a node's text as written."""
    return source[start(node, source) : node.end_byte]


def tokens_of(test: Node) -> list[Node]:
    """Return the tokens of a test, not those inside its words."""
    found, stack = [], [test]
    while stack:
        part = stack.pop()
        if part.type in ("test_command", "binary_expression", "unary_expression", "parenthesized_expression"):
            stack.extend(reversed(part.children))
        else:
            found.append(part)
    return found


def check(node: Node, source: bytes) -> None:
    """Hold one node, and what stands between its parts, against what bash would see.

    Raises:
        Unclear: the grammar knows it and we do not, or the two may see different things.
    """
    if node.is_missing or node.is_error:
        raise Unclear("it is not complete bash")
    if node.type == "string":
        check_text(node, source, start(node, source))
    elif node.type == "heredoc_body":
        return  # whoever knows whether it is quoted checks it
    elif node.children:
        if node.type == "array" and any(written(child, source)[:1] == b"[" for child in node.children):
            raise Unclear("an array names its subscripts")
        _check_between(node, source)
    elif node.is_named:
        _check_leaf(node, source)


def check_arithmetic(node: Node, source: bytes) -> None:
    """Take numbers only: bash evaluates the value of a variable too, and may find a command in it.

    Raises:
        Unclear: there is more than numbers in it.
    """
    if not _ARITHMETIC.fullmatch(written(node, source).strip(b"$[]")):
        raise Unclear("arithmetic is only read when it holds nothing but numbers")


def _check_leaf(node: Node, source: bytes) -> None:
    text = written(node, source)
    rule = _LEAVES.get(node.type)
    if node.type in ("program", "heredoc_start", "heredoc_end", "heredoc_content", "string_content"):
        return
    if rule is None or not rule.fullmatch(text):
        raise Unclear(f"this form of {node.type} is not known")
    if node.type == "word" and not text.isascii() and not text.decode().replace(" ", "").isprintable():
        raise Unclear("a word holds an unusual space or control character")
    begin = start(node, source)
    before = source[max(0, begin - 2) : begin]
    if node.type == "comment" and before and (before[-1:] not in b" \t\n;|&()" or before == b"\\\n"):
        raise Unclear("what looks like a comment may be none")
    if node.type == "file_descriptor" and before and before[-1:] not in b" \t\n;|&()<>":
        raise Unclear("a redirection follows a word without a space")


def check_text(node: Node, source: bytes, position: int) -> None:
    """Hold a double-quoted text or a here-document: all that bash would expand, from a position on, is in the tree.

    Raises:
        Unclear: there may be more.
    """
    for child in [*node.children, None]:
        if child is not None and child.type in ("string_content", "heredoc_content", "$"):
            continue
        text = source[position : start(child, source) if child else node.end_byte]
        if not _TEXT[node.type].fullmatch(text):
            raise Unclear("a text in double quotes or a here-document may hold more than is seen")
        position = child.end_byte if child else node.end_byte


def _check_between(node: Node, source: bytes) -> None:
    if node.type not in KNOWN:
        raise Unclear(f"{node.type} is not known" if node.is_named else "a token is not known")
    if node.type == "expansion" and not _EXPANSION.match(written(node, source)):
        raise Unclear("this form of parameter expansion is not read")
    if node.type in ("heredoc_redirect", "arithmetic_expansion"):
        return
    previous: Node | None = None
    for child in node.children:
        _check_gap(node, previous, child, source)
        previous = child
    if node.type == "program" and previous:
        _check_blank(source[previous.end_byte :], _SPACES)


def _check_gap(node: Node, previous: Node | None, child: Node, source: bytes) -> None:
    begin = previous.end_byte if previous else 0 if node.type == "program" else start(node, source)
    gap = source[begin : start(child, source)]
    allowed = _SPACES if node.type in BLOCKS or node.type == "array" else _BLANKS
    if previous and (previous.type, child.type) == ("command", "heredoc_redirect") and DASH.fullmatch(gap):
        return
    if node.type in TIGHT and gap:
        raise Unclear("parts of one word stand apart")
    joined = _check_blank(gap, allowed)
    if previous is None:
        return
    if node.type in BLOCKS and b"\n" not in joined and {previous.type, child.type} <= STATEMENTS:
        raise Unclear("two commands stand side by side")
    if child.type in REDIRECTS and not gap and source[begin - 1 : begin] == b"}":
        raise Unclear("a redirection may set a variable")
    apart = node.type in APART or node.type in BLOCKS
    if apart and not gap and not {previous.type, child.type} & (_OPERATORS | REDIRECTS) and child.type != "comment":
        raise Unclear("two words stand side by side")


def _check_blank(gap: bytes, allowed: re.Pattern[bytes]) -> bytes:
    joined = gap.replace(b"\\\n", b"")
    if not allowed.fullmatch(joined) or (gap and not joined):
        raise Unclear("there is something between two words that is no plain space")
    return joined
