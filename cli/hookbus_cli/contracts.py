"""``hookbus contracts``: what one session may do. An operator's command."""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from hookbus_broker import CONTRACTS, Connection, Entry, delete, ensure_streams, put, read_bucket, read_key
from hookbus_broker.counts import forget, read
from hookbus_cli.command import command, options, out, plain, running_bus
from hookbus_schemas import ConfigError, InvalidMessage, subjects
from hookbus_schemas.contract import Contract

app = typer.Typer(help="Attach contracts to sessions: tools, paths, number of calls, time.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Session = Annotated[str, typer.Argument(help="The session's id.", show_default=False)]


EXAMPLES = (
    "Examples: hookbus contracts attach session-1 contract.json  ·  hookbus contracts attach s2 --max-tool-calls 100"
)


@app.command(epilog=EXAMPLES)
@command()
async def attach(
    context: typer.Context,
    session: Session,
    file: Annotated[
        str | None, typer.Argument(help="A contract as JSON, or - for standard input.", show_default=False)
    ] = None,
    contract_id: Annotated[str | None, typer.Option("--id", help="Names it in reasons; random if not given.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option(help="Calls that may run.")] = None,
    max_runtime_seconds: Annotated[float | None, typer.Option(help="Seconds in which calls may run.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it ends, such as 2030-01-01T00:00:00Z.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the contract that there is.")] = False,
) -> int:
    """Attach a contract to a session. It holds within a moment; its calls and its time begin at 0."""
    from hookbus_subscribers.contracts import calls_of

    bounds = {"max_tool_calls": max_tool_calls, "max_runtime_seconds": max_runtime_seconds, "expires_at": expires_at}
    contract = _given(file, contract_id, {name: value for name, value in bounds.items() if value is not None})
    settings = options(context).bus()
    async with running_bus(settings, "hookbus contracts") as connection:
        await ensure_streams(connection, settings)
        old = await read_key(connection, CONTRACTS, _key(session))
        if old is not None and not replace:
            raise ConfigError(f"session {session} has a contract already: change it with --replace")
        await put(connection, CONTRACTS, _key(session), contract.to_json(), old.revision if old else 0)
        if old is not None:
            await forget(connection, calls_of(session, old))
    out.print(f"{plain(contract.id)} attached to {plain(session)}", highlight=False, soft_wrap=True)
    return 0


@app.command(epilog="Example: hookbus contracts show session-1")
@command()
async def show(context: typer.Context, session: Session) -> int:
    """Show a session's contract as JSON, and how many of its calls are used."""
    from hookbus_subscribers.contracts import calls_of

    async with running_bus(options(context).bus(), "hookbus contracts") as connection:
        entry = await _one(connection, session)
        used = await read(connection, calls_of(session, entry))
    out.print_json(data=_as_json(session, entry) | {"calls_used": used})
    return 0


@app.command("list", epilog="Example: hookbus contracts list --json")
@command()
async def list_(context: typer.Context, as_json: Json = False) -> int:
    """List the sessions that have a contract."""
    async with running_bus(options(context).bus(), "hookbus contracts") as connection:
        entries = (await read_bucket(connection, CONTRACTS)).entries
    rows = [_as_json(_session(key), entry) for key, entry in sorted(entries.items())]
    if as_json:
        out.print_json(data=rows)
    elif rows:
        out.print(_table(rows))
    else:
        out.print("no session has a contract: attach one with `hookbus contracts attach SESSION FILE`")
    return 0


@app.command(epilog="Example: hookbus contracts remove session-1")
@command()
async def remove(context: typer.Context, session: Session) -> int:
    """Remove a session's contract: nothing bounds the session any more."""
    from hookbus_subscribers.contracts import calls_of

    async with running_bus(options(context).bus(), "hookbus contracts") as connection:
        entry = await _one(connection, session)
        await delete(connection, CONTRACTS, _key(session), entry.revision)
        await forget(connection, calls_of(session, entry))
    out.print(f"contract of {plain(session)} removed", highlight=False, soft_wrap=True)
    return 0


def _given(file: str | None, contract_id: str | None, bounds: dict[str, object]) -> Contract:
    """Return the contract of a file, or the one that the options make."""
    if file is None:
        if not bounds:
            raise ConfigError("give a contract: a file, - for standard input, or a bound such as --max-tool-calls 100")
        named = f"ctr_{secrets.token_hex(4)}" if contract_id is None else contract_id
        return Contract.of({"id": named} | bounds)
    if bounds or contract_id is not None:
        raise ConfigError("give either a file or the fields of a contract, not both")
    return _read(file)


def _read(file: str) -> Contract:
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"contract {file} cannot be read: {error.strerror}") from error
    return Contract.from_json(body)


def _key(session: str) -> str:
    if not session.strip():
        raise ConfigError("a session's id should be text that is not blank")
    return subjects.token(session)


def _session(key: str) -> str:
    try:
        return subjects.name(key)
    except InvalidMessage:  # another tool wrote it; no session has it
        return key


async def _one(connection: Connection, session: str) -> Entry:
    entry = await read_key(connection, CONTRACTS, _key(session))
    if entry is None:
        raise ConfigError(f"session {session} has no contract: `hookbus contracts list` shows those that have")
    return entry


def _as_json(session: str, entry: Entry) -> dict[str, object]:
    about: dict[str, object] = {"session": session, "revision": entry.revision}
    try:
        return about | Contract.from_json(entry.value).model_dump(mode="json")
    except ConfigError as error:
        return about | {"problem": f"{error}; every call of the session is denied"}


def _table(rows: list[dict[str, object]]) -> Table:
    heads = ("session", "contract", "calls", "tools", "seconds", "expires")
    fields = ("id", "max_tool_calls", "scoped_capabilities", "max_runtime_seconds", "expires_at")
    table = Table(*(Column(head, overflow="fold") for head in heads))
    for row in rows:
        said = [row.get("problem", "")] if "problem" in row else [row[field] for field in fields]
        table.add_row(plain(str(row["session"])), *(plain(_cell(value)) for value in said))
    return table


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{one['tool_name']} {' '.join(one['allowed_paths'])}".strip() for one in value)
    return str(value) if value else ""
