"""Times as people write and read them."""

import re
import time
from datetime import UTC, datetime, timedelta

from hookbus_schemas import ConfigError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, now: float | None = None) -> float:
    """Return seconds since 1970 for a time as people write it: ``10m`` ago, or a date and time, local without a zone.

    Raises:
        ConfigError: it is neither.
    """
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip()):
        return (time.time() if now is None else now) - float(match[1]) * UNITS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"time {text!r} should be such as 30s, 10m, 2h, 7d or 2026-11-30T10:00") from error


def parse_bound(text: str | None) -> float | None:
    """Return what `parse_time` returns, or None for no bound; raises what it raises."""
    return None if text is None else parse_time(text)


def local_time(at_ms: int) -> str:
    """Return a time, given in milliseconds since 1970, to the second where the reader is."""
    try:
        return (EPOCH + timedelta(milliseconds=at_ms)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"  # whoever wrote the event has a clock that no calendar knows


def utc_time(at_ms: int) -> str:
    """Return a time, given in milliseconds since 1970, as ISO 8601 has it, to the millisecond."""
    try:
        return (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{at_ms} ms"
