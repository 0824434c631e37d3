"""The tools of the demo's agent. They are real: files of a temporary workspace, and commands that run there."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from hookbus_executor import Executor

SHELL_TIMEOUT = 2.0
"""Seconds that a command may run."""

SEARCH_TIME = 0.7
"""Seconds that the slow tool takes."""

FILES = {
    "notes.txt": "Hooks are asked before a tool runs.\nAny deny stops the call.\nThe record says what happened.\n",
    ".env": "API_TOKEN=not-a-real-token\n",
    ".env.example": "API_TOKEN=\n",
    "app.py": "print('hello')\n",
}


def make_workspace(parent: Path) -> Path:
    """Make the folder with the files that the agent works on, and a link that hides where it leads."""
    workspace = parent / "workspace"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    (workspace / "settings.txt").symlink_to(".env")
    return workspace


class Shell:
    """Runs commands in a folder, each in a process group that ends with its call.

    Attributes:
        running: ids of the processes that run now.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: set[int] = set()

    async def run(self, command: str) -> str:
        """Run the command and return what it printed."""
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self.running.add(process.pid)
        try:
            output, _ = await process.communicate()
            return output.decode(errors="replace")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            self.running.discard(process.pid)


def add_tools(executor: Executor, workspace: Path) -> Shell:
    """Give the executor its seven tools, and return what runs the commands."""
    shell_in_workspace = Shell(workspace)

    @executor.tool(timeout=SHELL_TIMEOUT)
    async def shell(command: str) -> str:
        """Run a command in the workspace."""
        return await shell_in_workspace.run(command)

    _add_file_tools(executor, workspace)
    _add_odd_tools(executor, workspace)
    return shell_in_workspace


def _add_file_tools(executor: Executor, workspace: Path) -> None:
    @executor.tool
    def list_files() -> list[str]:
        """List the files of the workspace."""
        return sorted(path.name for path in workspace.iterdir())

    @executor.tool
    def read_file(path: str) -> str:
        """Return a file's text."""
        return (workspace / path).read_text()

    @executor.tool
    def write_file(path: str, text: str) -> str:
        """Write a file."""
        return f"{(workspace / path).write_text(text)} characters written"

    @executor.tool
    async def stream_file(path: str) -> AsyncIterator[str]:
        """Hand out a file line by line."""
        for line in FILES[path].splitlines(keepends=True):
            yield line
            await asyncio.sleep(0.02)


def _add_odd_tools(executor: Executor, workspace: Path) -> None:
    @executor.tool
    def search(word: str) -> list[str]:
        """Find the files that hold a word, slowly; a plain function, so it runs in a thread."""
        time.sleep(SEARCH_TIME)
        return [path.name for path in workspace.glob("*.txt") if word in path.read_text()]

    @executor.tool
    def fetch_rate(currency: str) -> float:
        """Fail, as a service that is down would make it."""
        raise ConnectionError(f"no rates for {currency}")
