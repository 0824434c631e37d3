"""One text of bash, walked without recursion: its commands, the files it opens and the texts it hands to shells.

Below it: `bash_syntax` (what may be believed), `bash_words`, `bash_builtins`, `bash_given`. Above it: `command_line`.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from hookbus_schemas.bash_builtins import check_builtin, check_declaration, check_double, check_single
from hookbus_schemas.bash_given import Given, given, runs_its_input
from hookbus_schemas.bash_heredoc import here_document
from hookbus_schemas.bash_syntax import (
    BASH_ONLY,
    DASH,
    REDIRECTS,
    Unclear,
    check,
    check_arithmetic,
    names,
    start,
    tokens_of,
    written,
)
from hookbus_schemas.bash_words import static

DEPTH = 200
"""How deep a tree is followed; what people write stays under 40."""

SIGNS = 3000
"""How many lines and signs of the shell are parsed: for broken text, time and memory grow with their square."""
WORDS = 60_000
"""How many words, and quotes in them, are looked at; the time is half a second then."""
_WORD = re.compile(rb"[ \t]+|['\"]")
_SIGN = re.compile(rb"[|&;()<>$`{}\[\]=!#\n]")
_LANGUAGE = Language(tree_sitter_bash.language())
_ASCII = bytes(byte if byte < 128 else ord("x") for byte in range(256))
"""The grammar's scanner reads past its tables, and crashes, on characters that are not ASCII: it never sees one."""
_NAME = re.compile(r"[\w./+:@%,-]+")
_RESERVED = names("! { } [[ ]] case do done elif else esac fi for function if in select then until while")
_LOOP_VARIABLE = re.compile(rb"(?!.*_proxy$)[a-z_][a-z0-9_]*")
_TO_DESCRIPTOR = re.compile(rb"[0-9]+-?|-")


class Reading:
    """What was found in one text.

    Attributes:
        commands: each simple command, in the order of the text.
        files: targets of redirections.
        texts: what shells are given to run.
    """

    def __init__(self, text: bytes, *, plain: bool) -> None:
        self._source = text
        self._plain = plain
        self._moved: dict[int, list[Node]] = {}
        self._inputs: list[str | None] = []
        self._runs_input = False
        self.commands: list[str] = []
        self.files: list[str] = []
        self.texts: list[Given] = []

    def read(self) -> None:
        """Walk the whole tree.

        Raises:
            Unclear: some part cannot be read for certain.
        """
        if len(_SIGN.findall(self._source)) > SIGNS:
            raise Unclear(f"it holds more than {SIGNS} lines and signs of the shell's language")
        if len(_WORD.findall(self._source)) > WORDS:
            raise Unclear(f"it holds more than {WORDS} words")
        tree = Parser(_LANGUAGE).parse(self._source.translate(_ASCII))
        if tree.root_node.has_error:
            raise Unclear("it does not parse as bash")
        stack = [(tree.root_node, 0, False)]
        while stack:
            node, depth, expansion = stack.pop()
            if depth > DEPTH:
                raise Unclear(f"it is nested deeper than {DEPTH} levels")
            self._visit(node, expansion)
            inner = node.type == "expansion" or (expansion and node.type != "command_substitution")
            stack.extend((child, depth + 1, inner) for child in reversed(node.children))
        if self._runs_input:
            self._run_inputs()

    def _visit(self, node: Node, expansion: bool) -> None:
        check(node, self._source)
        if self._plain and node.type in BASH_ONLY:
            raise Unclear("a shell that may not be bash is given something that only bash reads so")
        if expansion and node.type in ("raw_string", "ansi_c_string"):
            raise Unclear("quotes in a parameter expansion are not read")
        visit = self._VISITS.get(node.type)
        if visit is not None:
            visit(self, node)

    def _text(self, node: Node) -> str:
        return written(node, self._source).decode()

    def _command(self, node: Node) -> None:
        parts = [child for child in node.children if child.type not in REDIRECTS]
        redirects = [child for child in node.children if child.type in REDIRECTS]
        named = next((part for part in parts if part.type == "command_name"), None)
        late = [extra for redirect in redirects for extra in self._extras(redirect)]
        if named is None or (late and redirects[0].start_byte < named.start_byte):
            raise Unclear("which word is the command cannot be told")
        words = [*parts[parts.index(named) + 1 :], *late, *self._moved.pop(node.id, [])]
        words.sort(key=lambda word: word.start_byte)
        before = [self._text(part) for part in parts[: parts.index(named)]]
        after = node.next_sibling
        dashed = after is not None and DASH.fullmatch(self._source[node.end_byte : start(after, self._source)])
        self._simple(before, self._named(named), words, ["-"] if dashed else [])

    def _named(self, node: Node) -> str:
        name = static(node.children[0], self._source)
        if name is None:
            raise Unclear("which program is started is known only when it runs")
        if self._text(node) in _RESERVED:
            raise Unclear("a word of the shell's own language stands where it has no meaning")
        if not _NAME.fullmatch(name):
            raise Unclear("the name of a command holds unusual characters")
        return name

    def _simple(self, before: list[str], name: str, words: list[Node], dash: list[str]) -> None:
        values = [static(word, self._source) for word in words]
        texts = [self._text(word) for word in words] + dash
        alone = " ".join([name, *texts])
        # By itself too: otherwise a glob for a program would be met by the name of a variable, as in `ls=1 rm`.
        self.commands += [" ".join([*before, alone]), alone] if before else [alone]
        self._runs_input = self._runs_input or runs_its_input(name, values)
        check_builtin(name, words, self._source)
        text = given(name, values)
        if text is not None:
            self.texts.append(text)
        if name in ("time", "coproc"):
            rest = [word for word in texts if word not in ("-p", "--")]
            self.texts.append(Given(" ".join(rest), plain=self._plain))

    def _declaration(self, node: Node) -> None:
        parts = [child for child in node.children if child.type not in REDIRECTS]
        check_declaration(parts, self._source)
        self.commands.append(" ".join(self._text(part) for part in parts))

    def _assignment(self, node: Node) -> None:
        parent = node.parent
        if parent is None or parent.type not in ("command", "declaration_command", "variable_assignments"):
            self.commands.append(self._text(node))

    def _assignments(self, node: Node) -> None:
        self.commands.append(" ".join(self._text(child) for child in node.children))

    def _subscript(self, node: Node) -> None:
        if not re.fullmatch(rb"\w+\[(?:[0-9]+|[@*])\]", written(node, self._source)):
            raise Unclear("a subscript is only read when it is a number")

    def _test(self, node: Node) -> None:
        """List `[`, which is a command; `[[` is none."""
        tokens = tokens_of(node)
        if node.children[0].type == "[[":
            check_double(tokens, self._source)
            return
        check_single(tokens[1:-1], self._source)
        self.commands.append(" ".join(self._text(token) for token in tokens))

    def _compound(self, node: Node) -> None:
        if node.children[0].type == "((":
            check_arithmetic(node, self._source)

    def _arithmetic(self, node: Node) -> None:
        check_arithmetic(node, self._source)

    def _substitution(self, node: Node) -> None:
        text = written(node, self._source)
        if text[:1] == b"`" and (b"`" in text[1:-1] or b"\\" in text):
            raise Unclear("backticks hold a backslash or other backticks")
        if text[:3] == b"$((":
            raise Unclear("a substitution that may be arithmetic")

    def _subshell(self, node: Node) -> None:
        if written(node, self._source)[:2] == b"((":
            raise Unclear("a subshell that may be arithmetic")

    def _for(self, node: Node) -> None:
        name = written(node.children[1], self._source)
        if not _LOOP_VARIABLE.fullmatch(name):
            raise Unclear("a loop sets a variable that may mean something to programs")

    def _function(self, node: Node) -> None:
        name = next(child for child in node.children if child.type == "word")
        if not _NAME.fullmatch(self._text(name)) or self._text(name) in _RESERVED:
            raise Unclear("the name of a function holds unusual characters")

    def _extras(self, redirect: Node) -> list[Node]:
        """Return the words after a redirection's target: the grammar counts them to it, bash to the command."""
        if redirect.type == "heredoc_redirect":
            return []
        named = [child for child in redirect.named_children if child.type != "file_descriptor"]
        closes = redirect.type == "file_redirect" and any(child.type in ("<&-", ">&-") for child in redirect.children)
        return named if closes else named[1:]

    def _redirected(self, node: Node) -> None:
        extras = [extra for child in node.children if child.type in REDIRECTS for extra in self._extras(child)]
        body = node.children[0]
        if body.type in REDIRECTS:
            if extras:
                raise Unclear("which word is the command cannot be told")
            self.commands.append(" ".join(self._text(child) for child in node.children))
            return
        while body.type in ("list", "pipeline", "negated_command"):
            body = body.children[-1]
        if extras and body.type != "command":
            raise Unclear("words follow a redirection of more than a command")
        if extras:
            self._moved[body.id] = extras

    def _file(self, node: Node) -> None:
        sign = next(child for child in node.children if child.type != "file_descriptor")
        closes = sign.type in ("<&-", ">&-")
        gaps = [one.end_byte == start(two, self._source) for one, two in pairwise(node.children)]
        targets = [child for child in node.named_children if child.type != "file_descriptor"]
        if (closes and targets and gaps[-len(targets)]) or any(gaps[len(node.children) - len(targets) :]):
            raise Unclear("two words stand side by side")
        if closes or (sign.type in ("<&", ">&") and _TO_DESCRIPTOR.fullmatch(written(targets[0], self._source))):
            return
        if targets[0].type != "process_substitution":
            self._target(targets[0])

    def _target(self, node: Node) -> None:
        name = static(node, self._source)
        if name is None:
            raise Unclear("which file a redirection opens is known only when it runs")
        self.files.append(name)

    def _here_string(self, node: Node) -> None:
        self._inputs.append(static(node.named_children[0], self._source))

    def _here_document(self, node: Node) -> None:
        if any(self._extras(child) for child in node.children if child.type in REDIRECTS):
            raise Unclear("words follow a here-document on its line")
        self._inputs.append(here_document(node, self._source))

    def _run_inputs(self) -> None:
        for text in self._inputs:
            if text is None:
                raise Unclear("what a shell reads from its input is known only when it runs")
            self.texts.append(Given(text, plain=True))

    _VISITS: ClassVar[dict[str, Callable[["Reading", Node], None]]] = {
        "command": _command,
        "declaration_command": _declaration,
        "unset_command": _declaration,
        "variable_assignment": _assignment,
        "variable_assignments": _assignments,
        "subscript": _subscript,
        "test_command": _test,
        "compound_statement": _compound,
        "arithmetic_expansion": _arithmetic,
        "command_substitution": _substitution,
        "subshell": _subshell,
        "for_statement": _for,
        "function_definition": _function,
        "redirected_statement": _redirected,
        "file_redirect": _file,
        "herestring_redirect": _here_string,
        "heredoc_redirect": _here_document,
    }
