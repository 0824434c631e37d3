"""The hooks of the demo, and a small program that serves one: ``python -m hookbus_cli.demo_hooks NAME``.

They show what a hook looks like. The policies to rely on are the built-in hooks. Below is only the hook kit.
"""

import asyncio
import json
import os
import shlex
import sys
from pathlib import PurePath

import structlog
from structlog.typing import Processor

from hookbus_broker import BusSettings
from hookbus_schemas.hook import Hook
from hookbus_subscribers import Decision, ToolHookContext, hook, serve

SECRETS = (".env", "*.pem", "*.key", "id_*", "credentials*")
"""Names of files that hold secrets, as globs."""

LOOKUP = 0.3
"""Seconds that `budget` takes, as a look-up at another service would."""

LONGEST_WRITE = 200
"""Characters of arguments that `budget` lets pass."""


@hook("no-secrets", tools=["*_file"])
async def no_secrets(context: ToolHookContext) -> Decision:
    """Deny files that look like secrets, by the name that they really have, not by that of a link to them."""
    for path in context.resolved_paths:
        real = PurePath(path.real or path.given)
        if any(real.match(glob) for glob in SECRETS):
            template = {path.argument: f"{real.name}.example"}
            return Decision.deny(f"{real.name} may hold secrets", reason_code="secret", suggested_arguments=template)
    return Decision.allow()


@hook("shell-guard", tools=["shell"])
async def shell_guard(context: ToolHookContext) -> Decision:
    """Deny a few commands that destroy much. It is a demonstration: the real policy comes with the built-in hooks.

    A command that it cannot split makes it raise, which counts as its registration says.
    """
    words = shlex.split(json.loads(context.arguments_json)["command"])
    if "rm" in words and any(word.startswith("-") and "r" in word for word in words):
        return Decision.deny("it would remove a whole folder; name single files", reason_code="destructive")
    return Decision.allow()


@hook("budget", tools=["write_file"])
async def budget(context: ToolHookContext) -> Decision:
    """Deny long writes, after a look-up that takes its time."""
    await asyncio.sleep(LOOKUP)
    length = len(context.arguments_json)
    if length > LONGEST_WRITE:
        return Decision.deny(f"{length} characters; {LONGEST_WRITE} are left", reason_code="over_budget")
    return Decision.allow()


HOOKS: dict[str, Hook] = {each.name: each for each in (no_secrets, shell_guard, budget)}


async def _serve(served: Hook, url: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_stdin() -> None:
        if not os.read(0, 64):  # whoever started this process has gone
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, on_stdin)
    await serve(served, bus=BusSettings(url=url), stop=stop, ready=lambda: os.write(1, b"ready\n"))


def main() -> None:
    """Serve the hook that the first argument names until standard input ends; its first line is the bus's URL.

    A URL with a password has no place in a list of processes, so it is not an argument.
    """
    # Plain tracebacks: to draw one with colours and variables takes half a second, in which no hook answers.
    processors: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    factory = structlog.PrintLoggerFactory(sys.stderr)
    structlog.configure([*processors, structlog.processors.KeyValueRenderer()], logger_factory=factory)
    asyncio.run(_serve(HOOKS[sys.argv[1]], sys.stdin.readline().strip()))


if __name__ == "__main__":
    main()
