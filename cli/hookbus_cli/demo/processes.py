"""The processes of the demo's hooks: started, killed, started again, and never left behind."""

import asyncio
import sys
import time
from pathlib import Path

from hookbus_schemas import HookbusError

START_TIMEOUT = 20.0
"""Seconds for a Python process to start and serve its hook."""
STOP_TIMEOUT = 3.0
"""Seconds between asking a process to end and killing it."""


class HookProcess:
    """One process that serves one hook. It ends when its standard input does, so it cannot outlive the demo.

    Attributes:
        name: the hook.
    """

    def __init__(self, name: str, url: str, *, logs: Path, directory: Path) -> None:
        """Make it, not started yet.

        Args:
            name: one of `hookbus_cli.demo_hooks.HOOKS`.
            url: of the bus.
            logs: folder for what it logs.
            directory: where it runs: that of the command, so that relative import paths hold.
        """
        self.name = name
        self._url = url
        self._log = logs / f"{name}.log"
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    async def start(self) -> float:
        """Start it and return the seconds until it served.

        Raises:
            HookbusError: it ended, or did not serve in time.
        """
        began = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "hookbus_cli.demo_hooks", self.name),
                cwd=self._directory,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the demo's to handle
            )
        await self._served(self._process)
        return time.perf_counter() - began

    async def _served(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(f"{self._url}\n".encode())
        try:
            async with asyncio.timeout(START_TIMEOUT):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if line != b"ready\n":
            raise HookbusError(f"the process of hook {self.name} did not start: {self._last_words()}")

    def _last_words(self) -> str:
        return (self._log.read_text(errors="replace").strip().splitlines() or ["it logged nothing"])[-1]

    async def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would, and wait until it is gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Let it drain and end; kill it when that takes too long."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:  # cancelled too: nothing is left
            await self.kill()
