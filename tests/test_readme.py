"""The README and the other pages are true: their code runs, their commands and links exist."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from hookbus_broker import BusSettings, find_running
from hookbus_executor import Executor
from hookbus_schemas.globs import matches_any
from hookbus_subscribers import BUILT_IN
from support import eventually

ASKED = [name for name, one in BUILT_IN.items() if matches_any(one.registration.tools, "db_query")]

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
EXAMPLES = ("hook.py", "agent.py")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_the_code_of_the_readme_is_that_of_the_examples() -> None:
    """The Python blocks are the files, to the letter."""
    assert blocks("python") == [(ROOT / "examples" / name).read_text() for name in EXAMPLES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_this_repository(page: Path) -> None:
    """Every relative link has its target."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = {link.partition("#")[0] for link in links if "://" not in link} - {""}
    assert [target for target in sorted(targets) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    """Every `make` command in a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)) <= targets


class Folder:
    """An empty folder with the examples in it, as a reader would have it, and the commands run there."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self.bus = BusSettings(state_dir=path / ".hookbus")
        self._stack = stack

    async def run(self, command: str) -> tuple[int, str]:
        """Run a command to its end; return its exit status and output."""
        process = await self._start(command)
        async with asyncio.timeout(15):
            output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def start(self, command: str) -> None:
        """Start a command that runs until Ctrl-C, pressed at the end of the test."""
        process = await self._start(command)
        self._stack.push_async_callback(self._interrupt, process)

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        program, *arguments = shlex.split(command, comments=True)
        programs = {"hookbus": [sys.executable, "-m", "hookbus_cli"], "python": [sys.executable]}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOOKBUS_")}
        return await asyncio.create_subprocess_exec(
            *programs[program],
            *arguments,
            cwd=self.path,
            env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def _interrupt(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(15):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert process.returncode == 0, output.decode()

    async def answered_by(self, *hooks: str) -> None:
        """Wait until these hooks, and no others, are registered and answer."""
        await eventually(lambda: self._is_answered_by(set(hooks)), timeout=15)

    async def _is_answered_by(self, hooks: set[str]) -> bool:
        url = await find_running(self.bus)
        if url is None:
            return False
        async with Executor("probe", bus=BusSettings(url=url)) as executor:
            admission = await executor.admit("db_query", {}, dry_run=True)
        return {one.hook for one in admission.decisions if one.decision in ("allow", "deny")} == hooks


@asynccontextmanager
async def folder(path: Path) -> AsyncIterator[Folder]:
    """Copy the examples into the folder."""
    shutil.copytree(ROOT / "examples", path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    async with AsyncExitStack() as stack:
        yield Folder(path, stack)


async def test_the_commands_of_the_readme_do_what_it_says(tmp_path: Path) -> None:
    """Bus, hook, registration and agent, each a process of its own; the agent prints what the README shows."""
    up, serve, add, agent = next(block for block in blocks("sh") if "hookbus up" in block).splitlines()
    (shown,) = blocks("text")
    async with folder(tmp_path) as here:
        await here.start(up)
        await here.answered_by(*ASKED)
        await here.start(serve)
        assert (await here.run(add))[0] == 0
        await here.answered_by(*ASKED, "no-drops")
        status, output = await here.run(agent)
        assert (status, _lines(output, shown)) == (0, shown.splitlines()), output
        (check,) = re.findall(r"`(hookbus check [^`]+)`", README)
        status, output = await here.run(check)
        assert (status, "no-drops" in output) == (1, True), output


def _lines(output: str, shown: str) -> list[str]:
    """Return the lines of the output that are also shown, in the order of the output."""
    return [line for line in output.splitlines() if line in shown.splitlines()]
