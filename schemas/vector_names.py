"""The golden vectors of subjects, globs and digests, as tables."""

from hashlib import sha256

from hookbus_schemas import subjects

NAMES = (
    "no-drops",
    "agent_1",
    "",
    "db.drop",
    "a b",
    "*",
    ">",
    "=",
    "=41",
    "a/b\\c",
    "\u0000\n",
    "zażółć",
    "❄\U0001f600",
    "$JS",
    "x" * 256,
    "é" * 128,
)
"""Names that have a token: all text of at most 256 bytes of UTF-8."""

BAD_NAMES = (("x" * 257, "over 256 bytes"), ("é" * 129, "over 256 bytes, though of 129 characters"))
"""Names that have none."""

BAD_TOKENS = (
    ("", "no token is empty"),
    ("a.b", "two tokens"),
    ("*", "a wildcard"),
    (">", "a wildcard"),
    ("a b", "white space"),
    ("=4", "half an escape"),
    ("a=", "half an escape"),
    ("=2e", "lower-case hexadecimal: each name has one token only"),
    ("=41", "an escape of a plain letter: each name has one token only"),
    ("=ZZ", "not hexadecimal"),
    ("=C3", "not UTF-8"),
    ("=ED=A0=80", "half a surrogate pair"),
    ("a\n", "a newline"),
    ("é", "not escaped"),
    ("x" * 257, "over 256 bytes"),
)
"""Tokens that stand for no name."""

REQUESTS = (("no-drops", "agent-1"), ("db.drop", "a b"), ("", "❄"))
"""Hooks that are asked and executors that ask."""

BAD_REQUESTS = (
    "",
    "tool.before",
    "tool.before.h",
    "tool.before.h.e.x",
    "tool.after.e.t",
    "reply.e.h.t",
    "Tool.before.h.e",
)
"""Subjects that are no request."""

GLOBS = (
    ("*", "", True, "a star is any run of characters, none among them"),
    ("*", "a/b.c\n", True, "slashes, dots and newlines are characters"),
    ("db_*", "db_drop", True, "a beginning"),
    ("db_*", "db_", True, "a beginning alone"),
    ("db_*", "xdb_drop", False, "the whole value, not a part of it"),
    ("*_file", "read_file", True, "an end"),
    ("*_file", "read_files", False, "the whole value, not a part of it"),
    ("a*b*c", "a-b-b-c", True, "stars between"),
    ("a*b*c", "acb", False, "in this order"),
    ("ab*ba", "aba", False, "beginning and end do not overlap"),
    ("a**b", "ab", True, "two stars are one"),
    ("shell", "shell", True, "no star: equal"),
    ("shell", "Shell", False, "case counts"),
    ("file?", "file1", False, "only the star is special"),
    ("[ab]", "a", False, "only the star is special"),
    ("[ab]*", "[ab]c", True, "only the star is special"),
    ("a\\*", "a\\b", True, "a backslash escapes nothing"),
    ("", "", True, "equal"),
    ("", "a", False, "the whole value"),
    ("❄*", "❄\U0001f600", True, "any text"),
)
"""Globs, values, whether the one matches the other, and why."""

BODIES = (b"", b"\x81\xa8decision\xa5allow", bytes(range(256)))
"""What is digested."""


def subject_vectors() -> dict[str, object]:
    """Return the file of subjects."""
    return {
        "tokens": [{"name": name, "token": subjects.token(name)} for name in NAMES],
        "bad_names": [{"name": name, "why": why} for name, why in BAD_NAMES],
        "bad_tokens": [{"token": token, "why": why} for token, why in BAD_TOKENS],
        "requests": [_request(hook, executor) for hook, executor in REQUESTS],
        "bad_requests": list(BAD_REQUESTS),
    }


def _request(hook: str, executor: str) -> dict[str, str]:
    subject = subjects.before(hook, executor)
    return {
        "hook": hook,
        "executor": executor,
        "subject": subject,
        "reply_prefix": subjects.reply_prefix_for(subject),
        "hook_subscribes": subjects.before_filter(hook),
        "queue_group": subjects.queue_group(hook),
        "executor_subscribes": subjects.reply_filter(executor),
        "after": subjects.after(executor, hook),
        "denied": subjects.denied(executor, hook),
    }


def glob_vectors() -> list[dict[str, object]]:
    """Return the file of globs."""
    return [dict(zip(("glob", "value", "match", "why"), row, strict=True)) for row in GLOBS]


def digest_vectors() -> list[dict[str, str]]:
    """Return the file of digests, by `hashlib` and not by the code under test."""
    return [{"body_hex": body.hex(), "digest": sha256(body).hexdigest()} for body in BODIES]
