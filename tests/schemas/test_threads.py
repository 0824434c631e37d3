"""Plain functions in threads: a limit that holds, and nobody who has to wait for a function that hangs."""

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from children import Child
from hookbus_schemas.threads import Threads
from support import until


class Held:
    """A function that returns only when the test lets it."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.freed = threading.Semaphore(0)

    def __call__(self) -> int:
        """Wait to be freed; return how many were before."""
        self.begun += 1
        assert self.freed.acquire(timeout=10)
        self.ended += 1
        return self.ended


async def _settle() -> None:
    """Let everything run that can run now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_function_runs_beside_the_loop_with_its_arguments() -> None:
    """In another thread, which is not waited for at exit."""

    def work(one: int, two: str) -> tuple[int, str, threading.Thread]:
        return one, two, threading.current_thread()

    async with asyncio.timeout(5):
        one, two, thread = await Threads().run(work, 1, "b")
    assert (one, two) == (1, "b")
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name == "hookbus-work"


async def test_no_more_functions_run_than_the_limit() -> None:
    """The next begins when one of them has returned."""
    held, threads = Held(), Threads(limit=2)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        tasks = [group.create_task(threads.run(held)) for _ in range(5)]
        await until(lambda: held.begun == 2)
        for freed in range(1, 6):
            await _settle()
            assert held.begun == min(1 + freed, 5)
            held.freed.release()
            await until(lambda: held.ended == freed and held.begun == min(2 + freed, 5))  # noqa: B023 - awaited here
    assert sorted(task.result() for task in tasks) == [1, 2, 3, 4, 5]


async def test_a_caller_that_gives_up_goes_at_once_and_the_function_keeps_its_place() -> None:
    """Or a function that hangs would be started without end."""
    hanging, next_one, threads = Held(), Held(), Threads(limit=1)
    async with asyncio.timeout(5):
        given_up = asyncio.create_task(threads.run(hanging))
        await until(lambda: hanging.begun)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        waiting = asyncio.create_task(threads.run(next_one))
        await _settle()
        assert next_one.begun == 0
        hanging.freed.release()
        next_one.freed.release()
        assert await waiting == 1


async def test_a_caller_that_gives_up_in_the_queue_takes_no_place() -> None:
    """Its function never runs, and the next in the queue does."""
    held, never, threads = Held(), Held(), Threads(limit=1)
    async with asyncio.timeout(5):
        first = asyncio.create_task(threads.run(held))
        await until(lambda: held.begun)
        queued = asyncio.create_task(threads.run(never))
        await _settle()
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        last = asyncio.create_task(threads.run(held))
        held.freed.release(2)
        assert {await first, await last} == {1, 2}
    assert never.begun == 0


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_what_a_function_raises_is_raised_where_it_is_awaited(error: BaseException) -> None:
    """The very exception; the place is free again."""
    threads = Threads(limit=1)

    def work() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            await asyncio.wait_for(threads.run(work), 5) if isinstance(error, Exception) else await threads.run(work)
        assert raised.value is error


async def test_a_stop_iteration_is_told_as_another_error() -> None:
    """No future takes one: the caller would wait for ever."""

    def work() -> None:
        next(iter(()))

    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match=r"work.* raised StopIteration") as raised:
            await Threads().run(work)
    assert isinstance(raised.value.__cause__, StopIteration)


async def test_a_function_sees_the_context_variables_of_its_caller() -> None:
    """So that log lines of a hook name its call; what it sets stays with it."""
    call = contextvars.ContextVar("call", default="none")
    call.set("c-1")

    def work() -> str:
        seen = call.get()
        call.set("changed")
        return seen

    async with asyncio.timeout(5):
        assert await Threads().run(work) == "c-1"
    assert call.get() == "c-1"


async def test_a_thread_that_cannot_start_takes_no_place() -> None:
    """The caller hears of it, and later ones are served."""
    threads = Threads(limit=1)
    before = threading.stack_size(2**46)  # no machine has such stacks
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(str)
    finally:
        threading.stack_size(before)
    async with asyncio.timeout(5):
        assert await threads.run(lambda: "served") == "served"


@pytest.mark.parametrize("ends", [lambda: None, lambda: 1 / 0], ids=["returns", "raises"])
async def test_a_function_that_outlives_its_loop_ends_in_peace(ends: Callable[[], object]) -> None:
    """Nobody waits any more, and nothing is printed about it."""
    held = Held()
    ended = threading.Event()
    before = set(threading.enumerate())

    def work() -> None:
        try:
            held()
            ends()
        finally:
            ended.set()

    async def give_up() -> None:
        task = asyncio.create_task(Threads().run(work))
        await until(lambda: held.begun)
        task.cancel()

    other = threading.Thread(target=lambda: asyncio.run(give_up()))
    other.start()
    await until(lambda: not other.is_alive())
    held.freed.release()
    await until(ended.is_set)
    await until(lambda: set(threading.enumerate()) <= before)


HANG = """
import asyncio, threading
from hookbus_schemas.threads import Threads

async def main():
    hanging = threading.Event()
    def hang():
        hanging.set()
        threading.Event().wait()
    task = asyncio.create_task(Threads().run(hang))
    while not hanging.is_set():
        await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
print("ended", flush=True)
"""


async def test_a_process_ends_though_a_function_hangs() -> None:
    """Python waits for the threads of `concurrent.futures`, and not for these."""
    async with Child(HANG) as child:
        assert await child.line() == "ended"
        async with asyncio.timeout(5):
            assert await child.process.wait() == 0
