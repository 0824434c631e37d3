"""``hookbus up`` and ``hookbus serve``: what runs until it is told to stop."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hookbus_broker import (
    HOOKS,
    BusSettings,
    Connection,
    RevisionConflict,
    connect,
    embedded,
    ensure_streams,
    open_bus,
    put,
    read_bucket,
    redacted,
)
from hookbus_cli.command import command, options, out, plain
from hookbus_schemas import Hook, HookbusError, subjects

UP_EPILOG = "Example: hookbus up  ·  hookbus --url nats://bus.example:4222 up"
SERVE_EPILOG = "Example: hookbus serve examples.hook:no_drops  ·  hookbus serve plugin:examples/plugin"


@command(level=logging.INFO)
async def up(context: typer.Context) -> int:
    """Run the bus, the built-in hooks and the plugins of [plugins] here until Ctrl-C.

    Without --url the bus is an embedded NATS server.
    """
    settings = options(context).bus()
    hooks = make_hooks(options(context).config)
    if settings.url:
        await _serve_built_in(hooks, settings, settings.url, f"bus {redacted(settings.url)}")
        return 0
    async with embedded(settings) as server:
        where = f"bus {redacted(server.url)}, kept in {settings.state_dir}"
        serving = asyncio.create_task(_serve_built_in(hooks, settings, server.url, where))
        await asyncio.wait((serving, server.failed), return_when=asyncio.FIRST_COMPLETED)
        if server.failed.done():
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            raise server.failed.result()
        await serving
    return 0


async def _serve_built_in(hooks: Sequence[Hook], settings: BusSettings, url: str, where: str) -> None:
    from hookbus_subscribers import BUILT_IN
    from hookbus_subscribers import serve as serve_hooks

    async with await connect(settings, name="hookbus up", url=url) as connection:
        await ensure_streams(connection, settings)
        added = await register(connection, hooks)

    def ready() -> None:
        out.print(f"[green]up[/]: {plain(where)}", soft_wrap=True)
        yours = "add yours with `hookbus serve MODULE:HOOK` and `hookbus hooks add`"
        names = ", ".join(plain(hook.name) for hook in hooks)
        out.print(f"hooks: {names}; {yours}", highlight=False, soft_wrap=True)
        for hook in added:
            if hook.name not in BUILT_IN:
                warn_of_open_failure(hook.name)

    bus = settings.model_copy(update={"url": url})
    await serve_hooks(*hooks, bus=bus, ready=ready)


def make_hooks(config: Path | None) -> tuple[Hook, ...]:
    """Return the built-in hooks and the plugins that a configuration file names."""
    from hookbus_subscribers import PluginSettings, load_plugins, make_built_in

    return (*make_built_in(config), *load_plugins(PluginSettings.load(config)))


def warn_of_open_failure(name: str) -> None:
    """Say that calls pass a hook that cannot be asked, and what to do about it."""
    fix = f"`hookbus hooks add {plain(name)} --replace --failure-policy deny`"
    said = f"warning: {plain(name)} fails open: a call runs when it gives no usable answer; {fix} stops it"
    out.print(said, highlight=False, soft_wrap=True)


async def register(connection: Connection, hooks: Sequence[Hook]) -> list[Hook]:
    """Register the hooks that are not registered yet, and return them; what an operator has written stays as it is."""
    from hookbus_subscribers import BUILT_IN, PluginHook

    added = []
    for hook in hooks:
        said = hook.registration if isinstance(hook, PluginHook) else BUILT_IN[hook.name].registration
        try:
            await put(connection, HOOKS, subjects.token(hook.name), said.to_json(), 0)
        except RevisionConflict:
            continue
        added.append(hook)
    return added


@command(level=logging.INFO)
async def serve(
    context: typer.Context,
    targets: Annotated[
        list[str], typer.Argument(metavar="MODULE[:HOOK]|plugin:FOLDER...", help="Where the hooks are.")
    ],
) -> int:
    """Serve hooks of your own as one replica, until Ctrl-C or SIGTERM; then answer what was taken, and take no more.

    Serve the same hook as often as you like; replicas share its work. FOLDER is that of a plugin in JavaScript.
    """
    from hookbus_subscribers import PluginSettings, load_hooks
    from hookbus_subscribers import serve as serve_hooks

    settings = options(context).bus()
    hooks = load_hooks(*targets, plugins=PluginSettings.load(options(context).config))
    names = [hook.name for hook in hooks]

    def ready() -> None:
        out.print(f"[green]serving[/]: {plain(', '.join(names))}", soft_wrap=True)

    async with asyncio.TaskGroup() as group:
        advice = group.create_task(_advise(settings, names))
        await serve_hooks(*hooks, bus=settings, ready=ready)
        advice.cancel()
    return 0


async def _advise(settings: BusSettings, names: list[str]) -> None:
    """Say which of the hooks nobody asks, since they are not registered."""
    try:
        async with open_bus(settings) as url, await connect(settings, name="hookbus serve", url=url) as connection:
            if settings.url is None:
                await ensure_streams(connection, settings)
            registered = (await read_bucket(connection, HOOKS)).entries
    except HookbusError:
        return  # serving says what is wrong
    for name in names:
        if subjects.token(name) not in registered:
            said = f"{plain(name)} is not registered, so nobody asks it: `hookbus hooks add {plain(name)}`"
            out.print(said, highlight=False, soft_wrap=True)
