"""What is set for an executor: table ``[executor]``, environment ``HOOKBUS_EXECUTOR_*``."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from hookbus_broker import Section
from hookbus_executor.redaction import FIELDS, PATTERNS

KIB = 1024


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

    inline_limit: int = Field(default=256 * KIB, ge=1024)
    """Bytes of arguments, or of a result, above which they are stored beside the event. Default 256 KiB: a consumer
    that asks for a thousand events is not sent gigabytes, and no message is larger than a bus takes."""

    outbox_limit: int = Field(default=10_000, ge=1)
    """Events that may wait for the bus, on disk and in memory. Default 10,000, minutes of a busy agent."""

    outbox_limit_bytes: int = Field(default=256 * KIB * KIB, ge=1)
    """Bytes of events that may wait for the bus, on disk and in memory. Default 256 MiB, which a machine has."""

    outbox_full: Literal["refuse", "drop"] = "refuse"
    """What happens beyond either limit: calls are refused, or the oldest events are dropped, logged and counted.
    Default refuse: a call that leaves no trace should not run."""

    outbox_fsync: Literal["never", "interval", "always"] = "never"
    """When events on disk are forced to it: never, every second, or before each tool runs. All survive the death of
    the process; of the machine, in turn, none, all but the last second, and all. Default never: it costs nothing."""
