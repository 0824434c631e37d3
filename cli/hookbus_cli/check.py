"""``hookbus check``: what the hooks would say, with nothing run and nothing counted."""

import asyncio
import dataclasses
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from rich.table import Table

from hookbus_broker import BusSettings, connect, ensure_streams, find_running, open_bus
from hookbus_cli.command import DENIED, Options, command, options, out, plain, reader_may_leave
from hookbus_cli.signals import ended_by_signals
from hookbus_cli.up import make_hooks, register
from hookbus_schemas import ConfigError, Hook, HookDecision
from hookbus_schemas.threads import Threads

if TYPE_CHECKING:
    from hookbus_executor import Admission, Executor

EPILOG = (
    'Examples: hookbus check db_query \'{"sql": "DROP TABLE users"}\'  ·  hookbus check --calls calls.jsonl  ·  '
    "hookbus check --config new.toml --calls - < calls.jsonl"
)

AT_ONCE = 64
"""Calls of a file that are asked about at once."""


class Call(BaseModel):
    """One line of a file of calls; give either `arguments` or, as raw text, `arguments_json`."""

    model_config = ConfigDict(extra="ignore")

    id: str | int
    tool: str
    arguments: dict[str, JsonValue] | None = None
    arguments_json: str | None = None
    session_id: str = ""
    channel_id: str = ""
    sender_id: str = ""


@command()
async def check(
    context: typer.Context,
    tool: Annotated[str | None, typer.Argument(help="Any tool; it is not run.", show_default=False)] = None,
    arguments: Annotated[
        str | None, typer.Argument(metavar="ARGS", help="A JSON object, or - for standard input.", show_default=False)
    ] = None,
    calls: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help='Lines such as {"id": 1, "tool": "ls", "arguments": {}}; - for standard input.'
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file, as before the command.")] = None,
    session: Annotated[str, typer.Option(help="Session id.")] = "",
    channel: Annotated[str, typer.Option(help="Channel id.")] = "",
    sender: Annotated[str, typer.Option(help="Sender id.")] = "",
    json: Annotated[bool, typer.Option("--json", help="JSON for programs.")] = False,
) -> int:
    """Ask every hook about a call: nothing runs, nothing is counted. Exit code 0 allow, 1 deny, 2 error.

    With --calls each line gives one line of JSON, in order, and the exit code is 0 when all were answered.

    Where no bus runs, one is started for this command alone, with the built-in hooks and the plugins of [plugins].
    """
    from hookbus_executor import Session

    before = options(context)
    said = dataclasses.replace(before, config=config or before.config)
    if calls is not None:
        if tool is not None:
            raise ConfigError("give either a tool or --calls, not both")
        async with _asking(said) as executor:
            await _check_all(executor, calls)
        return 0
    if tool is None or arguments is None:
        raise ConfigError('give a tool and its arguments, such as `hookbus check shell \'{"command": "ls"}\'`')
    if arguments == "-":
        with _opened("-") as given:
            arguments = await Threads(1).run(given.read)
    async with _asking(said) as executor:
        of = Session(session, channel_id=channel, sender_id=sender)
        admission = await executor.admit(tool, arguments, session=of, dry_run=True)
    with reader_may_leave():  # the exit code is an answer, too
        if json:
            out.print_json(data=_as_json(admission))
        else:
            _show(admission)
    return 0 if admission.allowed else DENIED


@asynccontextmanager
async def _asking(said: Options) -> "AsyncIterator[Executor]":
    """Return an executor on the bus that runs, or else on one made for this command."""
    from hookbus_executor import Executor

    settings = said.bus()
    async with AsyncExitStack() as stack:
        if await find_running(settings) is None:
            settings = await _own_bus(stack, settings, make_hooks(said.config))
        yield await stack.enter_async_context(Executor("hookbus-check", bus=settings, settings=said.executor()))


async def _own_bus(stack: AsyncExitStack, settings: BusSettings, hooks: Sequence[Hook]) -> BusSettings:
    from hookbus_subscribers import HookServer

    stack.enter_context(ended_by_signals())
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hookbus-check-"))
    own = settings.model_copy(update={"state_dir": Path(folder), "port": None})
    url = await stack.enter_async_context(open_bus(own))
    connection = await stack.enter_async_context(await connect(own, name="hookbus check", url=url))
    await ensure_streams(connection, own)
    await register(connection, hooks)
    for hook in hooks:
        await stack.enter_async_context(HookServer(hook, connection))
    return own.model_copy(update={"url": url})


async def _check_all(executor: "Executor", path: str) -> None:
    """Write a line of JSON for each line of the file, in order, asking about many at once."""
    asked: asyncio.Queue[asyncio.Task[dict[str, object]] | None] = asyncio.Queue(AT_ONCE)
    with _opened(path) as lines:
        async with asyncio.TaskGroup() as group:
            group.create_task(_write_all(asked))
            async for number, line in _numbered(lines):
                await asked.put(group.create_task(_check_line(executor, number, line)))
            await asked.put(None)


async def _numbered(lines: TextIO) -> AsyncIterator[tuple[int, str]]:
    """Yield the lines that are not blank; whoever writes them may be slow, and meanwhile answers must be taken."""
    reading, number = Threads(1), 0
    while line := await reading.run(lines.readline):
        number += 1
        if line.strip():
            yield number, line


def _opened(path: str) -> AbstractContextManager[TextIO]:
    try:
        if path == "-":  # a file object of its own that nobody closes: while a read waits, that would wait as well
            return nullcontext(open(0, encoding="utf-8", errors="backslashreplace", closefd=False))
        return open(path, encoding="utf-8", errors="backslashreplace")  # noqa: PTH123
    except OSError as error:
        raise ConfigError(f"calls {path} cannot be read: {error.strerror}") from error


async def _write_all(asked: asyncio.Queue[asyncio.Task[dict[str, object]] | None]) -> None:
    while (answer := await asked.get()) is not None:
        sys.stdout.write(json.dumps(await answer, ensure_ascii=True) + "\n")
        if asked.empty():  # whoever asks line by line waits for this one
            sys.stdout.flush()


async def _check_line(executor: "Executor", number: int, line: str) -> dict[str, object]:
    from hookbus_executor import Session

    try:
        call = Call.model_validate_json(line)
        arguments = call.arguments_json if call.arguments_json is not None else (call.arguments or {})
        of = Session(call.session_id, channel_id=call.channel_id, sender_id=call.sender_id)
    except (ValidationError, ConfigError) as error:
        problem = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        where = "".join(f"{part}: " for part in problem.get("loc", ()))
        return _refused(_id(line), f"line {number} is no call: {where}{problem['msg']}")
    admission = await executor.admit(call.tool, arguments, session=of, dry_run=True)
    return {"id": call.id} | _as_json(admission)


def _id(line: str) -> object:
    """Return the id of a line that is no call, if it has one."""
    try:
        return json.loads(line).get("id")
    except (ValueError, AttributeError, RecursionError):
        return None


def _refused(call_id: object, reason: str) -> dict[str, object]:
    return {"id": call_id, "allowed": False, "denied_by": "executor", "reason": reason, "decisions": []}


def _as_json(admission: "Admission") -> dict[str, object]:
    return {
        "allowed": admission.allowed,
        "denied_by": admission.denied_by,
        "reason": admission.reason,
        "decisions": [_decision(decision) for decision in admission.decisions],
    }


def _decision(decision: HookDecision) -> dict[str, object]:
    return {
        "hook": decision.hook,
        "decision": decision.decision.value,
        "reason": decision.reason,
        "elapsed_ms": decision.elapsed_ms,
    }


def _show(admission: "Admission") -> None:
    table = Table("hook", "decision", "reason", "ms")
    for row in _rows(admission):
        table.add_row(*row)
    if table.row_count:
        out.print(table)
    if admission.allowed:
        out.print("[green]allowed[/]: no hook objects")
    else:
        said = f"[red]denied[/] by {plain(admission.denied_by)}: {plain(admission.reason)}"
        out.print(said, highlight=False, soft_wrap=True)


def _rows(admission: "Admission") -> Iterator[tuple[str, str, str, str]]:
    for decision in admission.decisions:
        notes = [decision.enforcement.value] if decision.enforcement != "enforce" else []
        notes += ["failed open"] if decision.failed_open else []
        said = decision.decision.value + (f" ({', '.join(notes)})" if notes else "")
        colour = "green" if decision.decision == "allow" else "red"
        reason = plain(decision.reason or decision.warning)
        yield plain(decision.hook), f"[{colour}]{said}[/]", reason, f"{decision.elapsed_ms:.1f}"
    for hook in admission.skipped:
        yield plain(hook), "not asked", "it has side effects, and this is a dry run", ""
