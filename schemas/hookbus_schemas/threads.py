"""Plain functions in threads that nobody has to wait for."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """Runs plain functions, at most `limit` at once.

    The threads of an executor of `concurrent.futures` are joined when Python exits, so one function that hangs would
    hang the process; and a caller that gives up frees a place that its function still holds. Here a thread is a daemon,
    and its place is free only when its function has returned.
    """

    def __init__(self, limit: int = 64) -> None:
        self._places = asyncio.Semaphore(limit)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what the function returns; when cancelled, leave it to end by itself.

        Raises:
            RuntimeError: no thread can be started, or the function raised `StopIteration`.
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._places.release()
            if ended.done():
                return
            if error is None:
                ended.set_result(result)  # type: ignore[arg-type]  # T may itself be None
            else:
                ended.set_exception(error)

        def work() -> None:
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
                return  # the loop is closed: nobody waits any more

        thread = threading.Thread(target=work, name=f"hookbus-{getattr(function, '__name__', 'call')}", daemon=True)
        try:
            thread.start()
        except BaseException:  # the machine has no more threads: nobody holds the place
            self._places.release()
            raise
        return await ended
