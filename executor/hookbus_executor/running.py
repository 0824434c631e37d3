"""Running a tool: its time limit, its exceptions, and a caller that goes away."""

import asyncio
import contextvars
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from hookbus_broker.log import say
from hookbus_executor.tool import OnDelta, Tool
from hookbus_schemas import Outcome
from hookbus_schemas.event import AfterOutcome
from hookbus_schemas.threads import Threads

CLOSE_TIMEOUT = 1.0
"""Seconds that tools which ignore their cancellation are given when the executor closes."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended: what the model reads, and the seconds it took."""

    outcome: AfterOutcome
    text: str
    duration: float


class Runner:
    """Runs tools, each in a task of its own, so that one which ignores cancellation hangs nobody."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._tasks: set[asyncio.Task[str]] = set()

    async def run(
        self, tool: Tool, arguments: Mapping[str, Any], on_delta: OnDelta | None, context: contextvars.Context
    ) -> Ran:
        """Run the tool and say how it ended; a cancelled caller cancels it and waits for nothing."""
        started = time.perf_counter()
        work = tool.run(arguments, self._threads, on_delta)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait((task,), timeout=tool.timeout or None)
        finally:
            duration = time.perf_counter() - started
            if not task.done():
                task.cancel()
                task.add_done_callback(_forget)
        return _ended(tool, task, duration)

    async def close(self) -> None:
        """Cancel what still runs, and give it a moment."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT)
            if left:
                say(_log.warning, "tools.abandoned", count=len(left), why="they ignored their cancellation")


def _ended(tool: Tool, task: asyncio.Task[str], duration: float) -> Ran:
    if not task.done():
        return Ran(Outcome.TIMED_OUT, "Error: Tool execution timed out.", duration)
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is None:
        return Ran(Outcome.COMPLETED, task.result(), duration)
    say(_log.warning, "tool.failed", tool=tool.name, error=type(error).__name__, exc_info=error)
    return Ran(Outcome.FAILED, "Error: Tool execution failed.", duration)


def _forget(task: asyncio.Task[str]) -> None:
    """Take the exception of a task that nobody waits for, so that it is not reported as never retrieved."""
    if not task.cancelled():
        task.exception()
