"""From what a model asked for to the context that hooks judge."""

import asyncio
import contextvars
import os
import secrets

from hookbus_executor.arguments import Arguments
from hookbus_executor.declared import UNDECLARED, Declared
from hookbus_executor.paths import has_paths, resolve
from hookbus_executor.session import Session
from hookbus_schemas import HookbusError, ToolHookContext, subjects
from hookbus_schemas.registration import MAX_TIMEOUT_MS
from hookbus_schemas.threads import Threads
from hookbus_schemas.times import now_ms

PATHS_TIMEOUT = 2.0
"""Seconds that resolving a call's paths may take; a dead network disk must not hold the call for ever."""

NOBODY = Session()
"""The session of a call that names none."""

_HOME = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - "~" stays where there is no home

_current: contextvars.ContextVar[ToolHookContext | None] = contextvars.ContextVar("hookbus_call", default=None)


class Calls:
    """Makes the contexts of one executor's calls."""

    def __init__(self, executor_id: str, threads: Threads) -> None:
        self._executor_id = executor_id
        self._threads = threads

    def as_given(self, tool: str, arguments: object, session: Session | None) -> ToolHookContext:
        """Return the context of a call that reaches no hook, as near to what was given as the record can hold."""
        text = arguments if isinstance(arguments, str) else repr(arguments)
        return self._make(_recordable(tool, subjects.MAX_NAME_BYTES), _recordable(text), session)

    def context(
        self,
        tool: str,
        arguments: Arguments,
        session: Session | None,
        declared: Declared = UNDECLARED,
        *,
        is_streaming: bool = False,
        dry_run: bool = False,
    ) -> ToolHookContext:
        """Return the context that hooks are asked about, its paths not resolved yet."""
        return self._make(tool, arguments.json, session, declared, _working_directory(), is_streaming, dry_run)

    async def resolved(self, context: ToolHookContext, arguments: Arguments) -> ToolHookContext:
        """Return the context with the paths among the arguments resolved.

        Raises:
            HookbusError: that took too long; no hook can judge what is not known.
        """
        if not has_paths(context, arguments.values):
            return context
        try:
            async with asyncio.timeout(PATHS_TIMEOUT):
                paths = await self._threads.run(resolve, context, arguments.values)
        except TimeoutError:
            raise HookbusError(f"the paths could not be resolved within {PATHS_TIMEOUT:g} s") from None
        now = now_ms()
        update = {"resolved_paths": paths, "sent_at_ms": now, "deadline_ms": now + MAX_TIMEOUT_MS}
        return context.model_copy(update=update)

    def _make(
        self,
        tool: str,
        arguments_json: str,
        session: Session | None,
        declared: Declared = UNDECLARED,
        working_directory: str = "",
        is_streaming: bool = False,
        dry_run: bool = False,
    ) -> ToolHookContext:
        of = session or NOBODY
        parent = _current.get()
        now = now_ms()
        return ToolHookContext(
            session_id=of.id,
            channel_id=of.channel_id,
            sender_id=of.sender_id,
            correlation_id=of.correlation_id,
            agent_id=of.agent_id,
            tool_name=tool,
            arguments_json=arguments_json,
            is_streaming=is_streaming,
            call_id=secrets.token_hex(16),
            executor_id=self._executor_id,
            parent_call_id=parent.call_id if parent else "",
            depth=parent.depth + 1 if parent else 0,
            sent_at_ms=now,
            deadline_ms=now + MAX_TIMEOUT_MS,
            dry_run=dry_run,
            working_directory=working_directory,
            home_directory=_HOME,
            path_arguments=declared.paths,
            command_arguments=declared.commands,
            read_only=declared.read_only,
        )


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - as text
    except FileNotFoundError:  # somebody removed it
        return ""


def within(call: ToolHookContext) -> contextvars.Context:
    """Return a context of variables in which calls name this one as their parent."""
    inside = contextvars.copy_context()
    inside.run(_current.set, call)
    return inside


def _recordable(text: str, limit: int | None = None) -> str:
    """Return the text as the record can hold it: valid UTF-8, at most `limit` bytes of it."""
    return text.encode("utf-8", "backslashreplace")[:limit].decode("utf-8", "ignore")
