"""Signals that end a command which has something to clean up."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signalled(Exception):
    """The command was ended by a signal, and has cleaned up.

    Attributes:
        signal: which.
        exit_code: 128 + n after signal n, as a shell has it.
    """

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number
        self.exit_code = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Cancel this task at the first signal, so that it cleans up; a second one has its usual effect.

    Raises:
        Signalled: there was one.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    received: list[signal.Signals] = []
    heeded = [each for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN]  # as under nohup

    def remove() -> None:
        for each in heeded:
            loop.remove_signal_handler(each)

    def on_signal(number: signal.Signals) -> None:
        remove()
        received.append(number)
        if task is not None:
            task.cancel()

    for each in heeded:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        remove()
        if received:
            if task is not None:
                task.uncancel()
            raise Signalled(received[0])
