"""Child processes for tests: real ones, to be killed, with what they print read line by line."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return True


class Child:
    """A Python process that runs `code` with the arguments as ``sys.argv[1:]``, in a session of its own."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._command = ["-c", code, *arguments]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The running process."""
        assert self._process is not None
        return self._process

    async def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(15):
            return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def send_line(self) -> None:
        """Give it an empty line to read."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()

    async def end(self, how: signal.Signals) -> int:
        """Send a signal to it and its children in the same session, as a terminal would; wait for it to end."""
        os.killpg(self.process.pid, how)
        async with asyncio.timeout(15):
            return await self.process.wait()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()
