"""What all commands share: their settings, and how they end.

Modules of commands import the executor's and the hooks' side where they use them: help need not wait for those.
"""

import asyncio
import functools
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import typer
from rich.console import Console
from rich.markup import escape

from hookbus_broker import BusSettings, Connection, check_known_tables, connect, find_running
from hookbus_cli import logs
from hookbus_cli.signals import Signalled
from hookbus_schemas import BusUnavailable, HookbusError

if TYPE_CHECKING:
    from hookbus_executor import ExecutorSettings

P = ParamSpec("P")

DENIED, ERROR, INTERRUPTED = 1, 2, 130
"""Exit codes; 0 is success, and for `check` an allow."""


class _Output(Console):
    """A console whose reader may leave: rich would exit with 1 there, whatever the command has to say by its code."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Output(emoji=False)


@dataclass(frozen=True, slots=True)
class Options:
    """What was said before the name of the command."""

    config: Path | None = None
    url: str | None = None
    state_dir: Path | None = None
    verbose: bool = False

    def bus(self, **overrides: Any) -> BusSettings:
        """Return the settings of the bus; the command line wins over the environment, that over the file.

        Raises:
            ConfigError: the file or environment has what nobody knows, or a value cannot mean anything.
        """
        from hookbus_executor import ExecutorSettings
        from hookbus_subscribers import SETTINGS

        check_known_tables((BusSettings, ExecutorSettings, *SETTINGS), self.config)
        given = {"url": self.url, "state_dir": self.state_dir} | overrides
        return BusSettings.load(self.config, **{name: value for name, value in given.items() if value is not None})

    def executor(self) -> "ExecutorSettings":
        """Return the settings of an executor; raises as `bus` does."""
        from hookbus_executor import ExecutorSettings

        return ExecutorSettings.load(self.config)


def options(context: typer.Context) -> Options:
    """Return what the callback of the app has kept."""
    found = context.find_object(Options)
    return found if found is not None else Options()


@asynccontextmanager
async def running_bus(settings: BusSettings, name: str) -> AsyncIterator[Connection]:
    """Connect to a bus that runs; start none.

    Raises:
        BusUnavailable: none runs; the message says how to start one.
    """
    url = await find_running(settings)
    if url is None:
        raise BusUnavailable("no bus is running here: start one with `hookbus up`, or name one with --url")
    async with await connect(settings, name=name, url=url) as connection:
        yield connection


def run(work: Coroutine[Any, Any, int | None], *, verbose: bool) -> int:
    """Run a command to its end and return its exit code; every error becomes one line."""
    try:
        code = 0
        with reader_may_leave(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(work) or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Signalled as ended:
        return ended.exit_code
    except Exception as error:  # noqa: BLE001 - a person gets one line; --verbose has the rest
        return _failed(error, verbose=verbose)
    return code


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Take it for no error that whoever reads our output has seen enough, such as ``| head``."""
    try:
        yield
        sys.stdout.flush()
    except* BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Let what is still to be printed vanish: where it should go it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain(text: str) -> str:
    """Return text of others, such as a model, as rich shows it: no markup, one line, nothing that steers a terminal."""
    return escape("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def command(
    *, level: int = logging.WARNING
) -> Callable[[Callable[P, Coroutine[Any, Any, int | None]]], Callable[P, None]]:
    """Make an async function a command: its result is the exit code.

    Args:
        level: what is logged without ``--verbose``.
    """

    def wrap(function: Callable[P, Coroutine[Any, Any, int | None]]) -> Callable[P, None]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
            verbose = options(cast("typer.Context", kwargs["context"])).verbose  # typer gives all by name
            logs.configure(logging.DEBUG if verbose else level)
            raise typer.Exit(run(function(*args, **kwargs), verbose=verbose))

        return wrapped

    return wrap


def _failed(error: BaseException, *, verbose: bool) -> int:
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    expected = isinstance(first, HookbusError)
    text = str(first) if expected else f"unexpected {type(first).__name__}: {first} (more with --verbose)"
    line = " ".join(text.split())
    print(f"hookbus: {line}", file=sys.stderr)  # noqa: T201 - rich would wrap it
    if verbose:
        traceback.print_exception(error)
    return ERROR


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return None
    return uvloop.new_event_loop
