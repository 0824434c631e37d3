"""The golden vectors of subjects and digests, as tables."""

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


def digest_vectors() -> list[dict[str, str]]:
    """Return the file of digests, by `hashlib` and not by the code under test."""
    return [{"body_hex": body.hex(), "digest": sha256(body).hexdigest()} for body in BODIES]
