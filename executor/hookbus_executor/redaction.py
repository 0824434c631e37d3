"""What of a call is not recorded: values of fields with telling names, and texts that look like secrets.

Hooks judge the call as it is; only the event that is written and published holds less.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from hookbus_schemas import HookDecision, InvalidArguments, ToolAfterEvent, ToolDeniedEvent, parse_arguments

Event: TypeAlias = ToolAfterEvent | ToolDeniedEvent

REDACTED = "[redacted]"

FIELDS = (
    *("password", "passwd", "passphrase", "secret", "token", "api_key", "authorization", "cookie", "credential"),
    *("private_key", "access_key", "connection_string"),
)
"""Parts of names of fields whose values are secret, without regard to case, ``_`` and ``-``."""

_HINTS: Mapping[str, tuple[str, ...]] = {
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b": ("AKIA", "ASIA"),  # an access key of AWS
    r"\bgh[pousr]_[0-9A-Za-z]{36,}": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    r"\bgithub_pat_[0-9A-Za-z_]{22,}": ("github_pat_",),
    r"\bglpat-[0-9A-Za-z_-]{20,}": ("glpat-",),
    r"\bsk-[0-9A-Za-z_-]{20,}": ("sk-",),  # of OpenAI, Anthropic and others
    r"\b[rs]k_live_[0-9A-Za-z]{20,}": ("k_live_",),  # of Stripe
    r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}": ("xox",),  # of Slack
    r"\bAIza[0-9A-Za-z_-]{35}": ("AIza",),  # of Google
    r"\bpypi-[0-9A-Za-z_-]{50,}": ("pypi-",),
    r"\bnpm_[0-9A-Za-z]{36}": ("npm_",),
    r"(?<![0-9A-Za-z_-])[0-9A-Za-z_-]{11,}+\.eyJ[0-9A-Za-z_-]{8,}+\.[0-9A-Za-z_-]*": (".eyJ",),  # a JSON web token
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-{1,4}[^-]++)*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?": (
        "PRIVATE KEY",
    ),
    r"(?<=://)[^/\s:@]{1,200}:[^/\s@]{1,200}(?=@)": ("://",),  # user and password in a URL
    r"(?i:\bbearer )[0-9A-Za-z._~+/-]{16,}=*": ("earer ", "EARER "),
}
"""Texts that are secret wherever they stand, each with what it holds: to look for that first is 20 times as fast.

None takes more than a time in proportion to the text, which may be an attacker's.
"""

PATTERNS = tuple(_HINTS)
"""Regular expressions of texts that are secret wherever they stand."""


REMEMBERED, SHORT = 256, 4096
"""Arguments that are remembered, and characters that these have at most: a call's come when it is admitted and ends."""


class Redactor:
    """Takes secrets out of events."""

    def __init__(self, fields: Sequence[str] = FIELDS, patterns: Sequence[str] = PATTERNS) -> None:
        """Prepare.

        Args:
            fields: parts of names of fields.
            patterns: regular expressions that compile.
        """
        self._names = tuple(_plain(field) for field in fields if _plain(field))
        compiled = [(re.compile(pattern, re.DOTALL), _HINTS.get(pattern, ("",))) for pattern in patterns]
        self._by_hint = [(hint, pattern) for pattern, hints in compiled for hint in hints]
        self._remembered = lru_cache(REMEMBERED)(self._arguments)

    def event(self, event: Event) -> Event:
        """Return an event without secrets; one that holds none is returned as it is."""
        context = event.context
        arguments = self.arguments(context.arguments_json)
        update: dict[str, object] = {}
        if arguments != context.arguments_json:
            paths = tuple(path for path in context.resolved_paths if path.given in arguments)
            update["context"] = context.model_copy(update={"arguments_json": arguments, "resolved_paths": paths})
        decisions = tuple(map(self._decision, event.decisions))
        if decisions != event.decisions:
            update["decisions"] = decisions
        words, text = ("result", event.result) if isinstance(event, ToolAfterEvent) else ("reason", event.reason)
        if (redacted := self.text(text)) != text:
            update[words] = redacted
        return event.model_copy(update=update) if update else event

    def arguments(self, text: str) -> str:
        """Return a JSON object without secrets, still one; what is none is treated as any text."""
        return self._remembered(text) if len(text) <= SHORT else self._arguments(text)

    def _arguments(self, text: str) -> str:
        told = self._tells(text)
        if not told and self.text(text) == text:
            return text
        try:
            written = _dump(self._value(parse_arguments(text)))
            written.encode()
        except (InvalidArguments, RecursionError, ValueError):  # such as half of a surrogate pair, or 1e999
            return REDACTED if told else self.text(text)
        return written

    def text(self, text: str) -> str:
        """Return a text without what looks like a secret."""
        if not text:
            return text
        for hint, pattern in self._by_hint:
            if hint in text:
                text = pattern.sub(REDACTED, text)
        return text

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): REDACTED if self._tells(name) else self._value(one) for name, one in value.items()}
        return value

    def _tells(self, name: str) -> bool:
        plain = _plain(name)
        for secret in self._names:  # noqa: SIM110 - a loop is three times as fast as any() of a generator
            if secret in plain:
                return True
        return False

    def _decision(self, decision: HookDecision) -> HookDecision:
        if not decision.reason and not decision.warning and not decision.suggested_arguments:  # most of them
            return decision
        update: dict[str, object] = {}
        for words in ("reason", "warning"):
            text = str(getattr(decision, words))
            if (redacted := self.text(text)) != text:
                update[words] = redacted
        if decision.suggested_arguments:
            suggested = json.dumps(decision.suggested_arguments, ensure_ascii=False)
            if self.arguments(suggested) != suggested:
                update["suggested_arguments"] = self._value(decision.suggested_arguments)
        return decision.model_copy(update=update) if update else decision


_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
