"""Ending tasks, and how long to wait between tries."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import Any


def backoff(wait: float, wait_max: float) -> Iterator[float]:
    """Yield seconds to wait before each try: doubling up to `wait_max`, each cut at random by up to a half."""
    while True:
        yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, protects nothing
        wait = min(wait_max, wait * 2)


async def end_tasks(tasks: Iterable[asyncio.Future[Any]], timeout: float) -> None:
    """Cancel the tasks and wait for them, `timeout` seconds at most, except for the one that asks.

    They are cancelled twice if need be, since `asyncio.wait_for` of Python 3.11 may swallow a cancellation.
    """
    left = {task for task in tasks if task is not asyncio.current_task()}
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=timeout / 2)
