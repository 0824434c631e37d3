"""Words of bash: what they say when nothing in them has to be expanded, and how they are written."""

import re

from tree_sitter import Node

from hookbus_schemas.bash_syntax import written

_SPECIAL = re.compile(rb"(?<!\\)(?:\\\\)*[*?\[{}]|^~|[:=]~|^[^\\]*=\(")


def static(node: Node, source: bytes) -> str | None:
    """Return the word as bash would pass it on, or None when that is known only when it runs."""
    parts = node.children if node.type == "concatenation" else [node]
    values = [_part(part, source) for part in parts]
    known = [value for value in values if value is not None]
    return b"".join(known).decode() if len(known) == len(values) else None


def _part(node: Node, source: bytes) -> bytes | None:
    text = written(node, source)
    if node.type in ("word", "number"):
        return None if _SPECIAL.search(text) else re.sub(rb"\\(.)", rb"\1", text)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "ansi_c_string":
        return None if b"\\" in text else text[2:-1]
    if node.type == "string" and all(child.type in ('"', "string_content") for child in node.children):
        return re.sub(rb"\\([$`\"\\\n])", lambda found: found[1].strip(b"\n"), text[1:-1])
    return None
