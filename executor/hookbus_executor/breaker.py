"""A circuit breaker: a hook that hangs again and again is not waited for. Pure; the caller brings the clock."""

FAILURES = 3
"""Timeouts in a row after which a hook is not waited for."""

PAUSE = 10.0
"""Seconds until such a hook is tried again, with one call."""


class Breaker:
    """Closed: ask. Open: do not. After the pause one call tries; its answer closes it, its timeout opens it anew."""

    __slots__ = ("_failures", "_open_until", "_trying")

    def __init__(self) -> None:
        self._failures = 0
        self._open_until = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether the hook has timed out too often in a row and has not answered since."""
        return self._failures >= FAILURES

    def asks(self, now: float) -> bool:
        """Tell whether to ask; a `True` while open is the trial, to be ended by one of the three methods below."""
        if not self.is_open:
            return True
        if self._trying or now < self._open_until:
            return False
        self._trying = True
        return True

    def answered(self) -> None:
        """The hook, or the bus for it, said something in time."""
        self._failures = 0
        self._trying = False

    def timed_out(self, now: float) -> bool:
        """The hook said nothing in time; tell whether the breaker is open now."""
        self._failures += 1
        self._trying = False
        self._open_until = now + PAUSE
        return self.is_open

    def abandoned(self) -> None:
        """The request ended before the hook had its time: nothing is learned."""
        self._trying = False
