"""Plain functions in threads that nobody has to wait for."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias, TypeVar

T = TypeVar("T")
_Job: TypeAlias = Callable[[], bool]
"""What a thread is to do; it returns whether there may be more."""


class Threads:
    """Runs plain functions, at most `limit` at once.

    The threads of an executor of `concurrent.futures` are joined when Python exits, so one function that hangs would
    hang the process; and a caller that gives up frees a place that its function still holds. Here a thread is a daemon,
    and its place is free only when its function has returned; then it waits for the next one.
    """

    def __init__(self, limit: int = 64) -> None:
        self._places = asyncio.Semaphore(limit)
        self._idle: list[SimpleQueue[_Job | None]] = []

    def __del__(self) -> None:
        for jobs in self._idle:
            jobs.put(None)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what the function returns; when cancelled, leave it to end by itself.

        Raises:
            RuntimeError: no thread can be started, or the function raised `StopIteration`.
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        jobs: SimpleQueue[_Job | None] | None = None

        def settle(result: T | None, error: BaseException | None) -> None:
            self._places.release()
            if jobs is not None:
                self._idle.append(jobs)
            if ended.done():
                return
            if error is None:
                ended.set_result(result)  # type: ignore[arg-type]  # T may itself be None
            else:
                ended.set_exception(error)

        def work() -> bool:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(function, *arguments)
            except StopIteration as stop:  # no future takes one
                error = RuntimeError(f"{function} raised StopIteration")
                error.__cause__ = stop
            except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return False  # the loop is closed: nobody waits any more
            return True

        try:
            jobs = self._idle.pop() if self._idle else _started()
        except BaseException:  # the machine has no more threads: nobody holds the place
            self._places.release()
            raise
        jobs.put(work)
        return await ended


def _started() -> "SimpleQueue[_Job | None]":
    """Start a thread that does the jobs of a queue, until one is None."""
    jobs: SimpleQueue[_Job | None] = SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), name="hookbus-work", daemon=True).start()
    return jobs


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    more = True
    while more and (job := jobs.get()) is not None:
        more = job()
        del job  # what it holds is not to live until the next
