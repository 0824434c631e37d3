"""Plain functions that a connection calls, none of which can harm it; and how often it may complain."""

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable
from typing import Generic, ParamSpec

import structlog

from hookbus_broker.log import say

log = structlog.get_logger()
P = ParamSpec("P")


COMPLAINT_INTERVAL = 10.0
"""Seconds between two log lines about the same thing."""


class Throttle:
    """Lets one of each kind pass per `interval` seconds, and counts what it held back."""

    def __init__(self, interval: float = COMPLAINT_INTERVAL, kinds: int = 1000) -> None:
        """Take the interval in seconds and how many kinds are remembered: beyond that the oldest is forgotten."""
        self._interval = interval
        self._kinds = kinds
        self._passed: dict[object, tuple[float, int]] = {}

    def passes(self, kind: object) -> int:
        """Return how many there were since the last that passed, this one included; 0 when it is held back."""
        now = time.monotonic()
        since, held = self._passed.pop(kind, (-self._interval, 0))
        if now - since < self._interval:
            self._passed[kind] = (since, held + 1)
            return 0
        if len(self._passed) >= self._kinds:
            self._passed.pop(next(iter(self._passed)))
        self._passed[kind] = (now, 0)
        return held + 1


class Callbacks(Generic[P]):
    """Functions to call when one thing happens: in the order of adding, each in isolation."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._functions: dict[int, Callable[P, object]] = {}
        self._throttle = Throttle()

    def add(self, function: Callable[P, object]) -> Callable[[], None]:
        """Add a function; the function returned removes it again.

        Raises:
            TypeError: it is a coroutine function, which nobody would await.
        """
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function} should be a plain function: nobody awaits it")
        number = next(self._numbers)
        self._functions[number] = function

        def remove() -> None:
            self._functions.pop(number, None)

        return remove

    def call(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call each; what one raises is logged and keeps nobody from being called."""
        for number, function in list(self._functions.items()):
            try:
                function(*args, **kwargs)
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - a cancelled future's result() raises the latter
                if count := self._throttle.passes(number):
                    say(log.exception, "bus.callback_failed", callback=repr(function), count=count)
