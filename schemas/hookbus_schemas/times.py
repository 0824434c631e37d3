"""Time as the wire and the logs have it: in milliseconds. Inside Python it is float seconds."""

import time


def now_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def to_ms(seconds: float) -> float:
    """Return seconds in milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)
