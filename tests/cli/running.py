"""Running the real command in a process of its own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

COMMAND = (sys.executable, "-m", "hookbus_cli")


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left: its exit code, and all that it printed."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: this one's import path, none of its ``HOOKBUS_`` variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOOKBUS_")}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "120"} | more


async def hookbus(folder: Path, *arguments: str, stdin: str = "", **more: str) -> Ended:
    """Run ``hookbus`` with these arguments in a folder, to its end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        cwd=folder,
        env=environment(**more),
        stdin=-1,
        stdout=-1,
        stderr=-1,
    )
    try:
        async with asyncio.timeout(40):
            out, err = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(process.returncode or 0, out.decode(), err.decode())


ONE_BY_ONE = """
import contextlib, io, json, sys
from hookbus_cli.main import main
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(command)
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


async def one_by_one(folder: Path, *commands: tuple[str, ...], **more: str) -> list[Ended]:
    """Run many commands in one process, since each process needs a second to begin."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ONE_BY_ONE, cwd=folder, env=environment(**more), stdin=-1, stdout=-1
    )
    try:
        async with asyncio.timeout(40):
            out, _ = await process.communicate(json.dumps(commands).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return [Ended(*json.loads(line)) for line in out.splitlines()]


class Running:
    """A command that runs until it is told to stop."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self, words: str) -> str:
        """Wait for a line on its standard output that begins with these words."""
        assert self._process.stdout is not None
        async with asyncio.timeout(20):
            while line := (await self._process.stdout.readline()).decode():
                if line.startswith(words):
                    return line
        raise AssertionError(f"it ended without saying {words!r}")

    async def end(self, how: signal.Signals) -> int:
        """Send it a signal and return its exit code."""
        self._process.send_signal(how)
        async with asyncio.timeout(20):
            return await self._process.wait()


@asynccontextmanager
async def running(folder: Path, *arguments: str, **more: str) -> AsyncIterator[Running]:
    """Run ``hookbus`` with these arguments beside the test; kill it at the end if it still runs."""
    with (folder / f"{arguments[0]}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            cwd=folder,
            env=environment(**more),
            stdout=-1,
            stderr=log,
        )
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
