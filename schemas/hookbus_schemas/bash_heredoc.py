"""Here-documents: where bash ends them, found anew, since the grammar is not always of its opinion."""

import re

from tree_sitter import Node

from hookbus_schemas.bash_syntax import Unclear, check_text, written

_DELIMITER = re.compile(rb"(['\"]?)(\w+)\1|(\\)(\w+)", re.ASCII)


def here_document(node: Node, source: bytes) -> str | None:
    """Return the text of a here-document, or None when it is known only when it runs.

    Raises:
        Unclear: the tree may not see what bash does.
    """
    parts = {child.type: child for child in node.children}
    begin = parts["heredoc_start"]
    delimiter = _DELIMITER.fullmatch(written(begin, source))
    first = source.find(b"\n", begin.end_byte) + 1
    if delimiter is None or not first:
        raise Unclear("the delimiter of a here-document is not a plain word")
    if any(_is_late(child, first) for child in node.children):
        raise Unclear("words follow a here-document on its line")
    word, quoted = delimiter[2] or delimiter[4], bool(delimiter[1] or delimiter[3])
    body = _body(source, first, word, parts["heredoc_end"], tabs="<<-" in parts)
    if quoted and parts["heredoc_body"].children:
        raise Unclear("a quoted here-document is read as if it were not")
    if quoted:
        return body.decode()
    if b"\\\n" in body:
        raise Unclear("lines of a here-document are joined")
    check_text(parts["heredoc_body"], source, first)
    return None if any(sign in body for sign in (b"$", b"`", b"\\")) else body.decode()


def _is_late(child: Node, first: int) -> bool:
    late = child.end_byte >= first and child.type not in ("heredoc_body", "heredoc_end")
    return late or child.type in ("word", "heredoc_redirect")


def _body(source: bytes, first: int, word: bytes, end: Node, *, tabs: bool) -> bytes:
    """Return the lines up to the first that is the delimiter, which has to be the one in the tree."""
    lines = [line.lstrip(b"\t") if tabs else line for line in source[first : end.end_byte].split(b"\n")]
    closed = source[end.end_byte : end.end_byte + 1] in (b"", b"\n")
    if not closed or lines[-1] != word or word in lines[:-1]:
        raise Unclear("where a here-document ends cannot be told")
    return b"".join(line + b"\n" for line in lines[:-1])
