"""``hookbus hooks``: which hooks are asked, and what their failure means. An operator's command."""

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from hookbus_broker import HOOKS, Connection, delete, ensure_streams, put, read_bucket
from hookbus_cli.command import command, options, out, plain, running_bus
from hookbus_cli.up import warn_of_open_failure
from hookbus_schemas import ConfigError, Encoding, Enforcement, FailurePolicy, HookRegistration, subjects

if TYPE_CHECKING:
    from hookbus_executor import RegisteredHook

PLUGIN = "plugin:"
"""What the name of a plugin's hook begins with."""

app = typer.Typer(help="List, add and change the registrations of hooks.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The hook's name.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


@app.command("list", epilog="Example: hookbus hooks list --json")
@command()
async def list_(context: typer.Context, json: Json = False) -> int:
    """List the hooks in the order in which their decisions are reported."""
    async with running_bus(options(context).bus(), "hookbus hooks") as connection:
        hooks = await _registered(connection)
    if json:
        out.print_json(data=[_as_json(hook) for hook in hooks])
    elif hooks:
        out.print(_table(hooks))
    else:
        out.print("no hook is registered: add one with `hookbus hooks add NAME`")
    return 0


@app.command(epilog="Example: hookbus hooks show AuditLog")
@command()
async def show(context: typer.Context, name: Name) -> int:
    """Show one registration as JSON."""
    async with running_bus(options(context).bus(), "hookbus hooks") as connection:
        out.print_json(data=_as_json(await _one(connection, name)))
    return 0


@app.command(epilog="Example: hookbus hooks add no-drops --tools 'db_*' --owner payments --failure-policy deny")
@command()
async def add(
    context: typer.Context,
    name: Name,
    tools: Annotated[list[str] | None, typer.Option(help="Globs of tools to ask it about; repeat it.")] = None,
    events: Annotated[list[str] | None, typer.Option(help="before, after; repeat it.")] = None,
    order: Annotated[int | None, typer.Option(help="Its place in reports.")] = None,
    failure_policy: Annotated[FailurePolicy | None, typer.Option(help="What no usable answer counts as.")] = None,
    timeout_ms: Annotated[int | None, typer.Option(help="Milliseconds to wait for it, at most 5000.")] = None,
    enforcement: Annotated[Enforcement | None, typer.Option(help="shadow asks, records and never blocks.")] = None,
    side_effects: Annotated[str | None, typer.Option(help="none, or some: not asked on a dry run.")] = None,
    encoding: Annotated[Encoding | None, typer.Option(help="Of its requests and answers; json for people.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    file: Annotated[Path | None, typer.Option(help="A registration as JSON, instead of options.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the registration that there is.")] = False,
) -> int:
    """Register a hook. Every executor asks it from then on; none is restarted.

    A hook fails closed unless --failure-policy says otherwise; a plugin, whose name begins with plugin:, fails open.
    """
    given = {
        "tools": tools,
        "events": events,
        "order": order,
        "failure_policy": failure_policy,
        "timeout_ms": timeout_ms,
        "enforcement": enforcement,
        "side_effects": side_effects,
        "encoding": encoding,
        "owner": owner,
        "description": description,
    }
    fields = {key: value for key, value in given.items() if value is not None}
    if not name.strip():
        raise ConfigError("a hook's name should be text that is not blank")
    if file is not None and fields:
        raise ConfigError("give either --file or the fields, not both")
    registration = (
        _from_file(file) if file is not None else HookRegistration.from_person(dumps(_defaults(name) | fields))
    )
    settings = options(context).bus()
    async with running_bus(settings, "hookbus hooks") as connection:
        await ensure_streams(connection, settings)
        key = subjects.token(name)
        entries = (await read_bucket(connection, HOOKS)).entries
        if key in entries and not replace:
            raise ConfigError(f"hook {name} is registered already: change it with --replace, enforce or shadow")
        expected = entries[key].revision if key in entries else 0
        revision = await put(connection, HOOKS, key, registration.to_json(), expected)
    out.print(f"{plain(name)} registered, revision {revision}", highlight=False, soft_wrap=True)
    if name.startswith(PLUGIN) and registration.failure_policy is FailurePolicy.ALLOW:
        warn_of_open_failure(name)
    return 0


def _defaults(name: str) -> dict[str, object]:
    """Return what is not the usual default for a hook of this name."""
    from hookbus_subscribers import PLUGIN_REGISTRATION

    return {"failure_policy": PLUGIN_REGISTRATION.failure_policy} if name.startswith(PLUGIN) else {}


@app.command(epilog="Example: hookbus hooks remove no-drops")
@command()
async def remove(context: typer.Context, name: Name) -> int:
    """Remove a registration: nobody asks the hook any more. If an executor requires it, every call is denied."""
    async with running_bus(options(context).bus(), "hookbus hooks") as connection:
        hook = await _one(connection, name)
        await delete(connection, HOOKS, hook.key, hook.revision)
    out.print(f"{plain(name)} removed", highlight=False, soft_wrap=True)
    return 0


@app.command(epilog="Example: hookbus hooks enforce no-drops")
@command()
async def enforce(context: typer.Context, name: Name) -> int:
    """Let the hook's deny stop calls."""
    return await _change(context, name, lambda old: old.model_copy(update={"enforcement": Enforcement.ENFORCE}))


@app.command(epilog="Example: hookbus hooks shadow no-drops")
@command()
async def shadow(context: typer.Context, name: Name) -> int:
    """Ask and record the hook, and never let it block."""
    return await _change(context, name, lambda old: old.model_copy(update={"enforcement": Enforcement.SHADOW}))


async def _change(context: typer.Context, name: str, change: Callable[[HookRegistration], HookRegistration]) -> int:
    async with running_bus(options(context).bus(), "hookbus hooks") as connection:
        hook = await _one(connection, name)
        if hook.problem:
            raise ConfigError(f"hook {name}: {hook.problem}, with `hookbus hooks remove` or `add --replace`")
        changed = change(hook.registration)
        revision = await put(connection, HOOKS, subjects.token(name), changed.to_json(), hook.revision)
    out.print(f"{plain(name)}: {changed.enforcement}, revision {revision}", highlight=False, soft_wrap=True)
    return 0


def _from_file(file: Path) -> HookRegistration:
    try:
        return HookRegistration.from_person(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"registration {file} cannot be read: {error}") from error


async def _registered(connection: Connection) -> "tuple[RegisteredHook, ...]":
    from hookbus_executor.hooks import from_bucket

    entries = (await read_bucket(connection, HOOKS)).entries
    hooks = (from_bucket(key, entry.value, entry.revision) for key, entry in entries.items())
    return tuple(sorted(hooks, key=lambda hook: (hook.registration.order, hook.name, not hook.problem)))


async def _one(connection: Connection, name: str) -> "RegisteredHook":
    found = next((hook for hook in await _registered(connection) if hook.name == name), None)
    if found is None:
        raise ConfigError(f"hook {name} is not registered: `hookbus hooks list` shows those that are")
    return found


def _as_json(hook: "RegisteredHook") -> dict[str, object]:
    about: dict[str, object] = {"name": hook.name, "revision": hook.revision}
    return about | ({"problem": hook.problem} if hook.problem else hook.registration.model_dump(mode="json"))


def _table(hooks: "tuple[RegisteredHook, ...]") -> Table:
    """Return a table of which the built-in hooks fit in 80 characters, unbroken."""
    heads = ("hook", "order", "tools", "enforcement", "if it\nfails", "ms", "owner")
    table = Table(*(Column(head, overflow="fold") for head in heads), box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for hook in hooks:
        if hook.problem:
            name, problem = (f"[red]{plain(text)}[/]" for text in (hook.name, hook.problem))
            table.add_row(name, "", problem)
            continue
        said = hook.registration
        tools, order, timeout = "\n".join(map(plain, said.tools)), str(said.order), str(said.timeout_ms)
        row = (said.enforcement, said.failure_policy, timeout, said.owner)
        table.add_row(plain(hook.name), order, tools, *map(plain, row))
    return table
