"""What is set for an executor: table ``[executor]``, environment ``HOOKBUS_EXECUTOR_*``."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from hookbus_broker import Section
from hookbus_executor.redaction import FIELDS, PATTERNS


def _compiling(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} should be a regular expression: {error}") from None
    return patterns


class ExecutorSettings(Section, table="executor"):
    """Settings of one executor."""

    required_hooks: tuple[str, ...] = ("AuditLog", "Autonomy", "ContractScope")
    """Hooks that must be registered, enforced and asked about a call's tool, or that call is denied. Default the
    built-in ones: on a bus that nobody has set up yet an executor should say no, not run unguarded."""

    tool_timeout: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    """Seconds that a tool may run unless it says otherwise; 0 for no limit. Default 30, as the reference has it."""

    redact_fields: tuple[str, ...] = FIELDS
    """Parts of names of arguments whose values are not recorded. Default the usual ones. Hooks judge the real ones."""

    redact_patterns: Annotated[tuple[str, ...], AfterValidator(_compiling)] = PATTERNS
    """Regular expressions of texts that are not recorded, in arguments, results and reasons. Default common secrets."""

    outbox_limit: int = Field(default=10_000, ge=1)
    """Events that may wait for the bus, on disk and in memory; then calls are refused. Default 10,000, tens of MB."""
