"""The agent's side: tools that run only when every hook lets them, and leave a record.

Above it are agents and adapters; below it `asking` sends the requests, `running` runs, `outbox` carries the record.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, overload

from hookbus_broker import BusSettings, Connection, UsesBus, connect, ensure_streams, open_bus
from hookbus_executor.arguments import Arguments
from hookbus_executor.asking import Asker
from hookbus_executor.calls import Calls, within
from hookbus_executor.counters import HookCounters
from hookbus_executor.declared import UNDECLARED, Declared
from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.journal import JournalUnwritable
from hookbus_executor.outbox import Outbox
from hookbus_executor.poll import Poll
from hookbus_executor.progress import Progress
from hookbus_executor.record import Recorder
from hookbus_executor.registrations import Registrations
from hookbus_executor.result import EXECUTOR, Admission, ToolResult
from hookbus_executor.running import Ran, Runner
from hookbus_executor.session import Session
from hookbus_executor.settings import ExecutorSettings
from hookbus_executor.tool import OnDelta, Tool, ToolFunction
from hookbus_schemas import ConfigError, Hook, HookbusError, HookRegistration, Outcome, ToolHookContext, subjects
from hookbus_schemas.arguments import InvalidArguments
from hookbus_schemas.hook import decider
from hookbus_schemas.threads import Threads

FunctionT = TypeVar("FunctionT", bound=ToolFunction)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What lives from start to close."""

    connection: Connection
    registrations: Registrations
    asker: Asker
    outbox: Outbox
    recorder: Recorder
    runner: Runner
    progress: Progress


class Executor:
    """Runs an agent's tools: asks every hook before, tells the record after.

    Use it as an async context manager. Any number of calls may be in progress at once.
    """

    def __init__(self, name: str, *, bus: BusSettings | None = None, settings: ExecutorSettings | None = None) -> None:
        """Make an executor that connects when it is entered.

        Args:
            name: who asks; credentials and the record know the executor by it.
            bus: where the bus is; by default the embedded one in this folder.
            settings: required hooks and limits.

        Raises:
            ConfigError: the name is empty or too long.
        """
        if not name:
            raise ConfigError("an executor needs a name")
        subjects.token(name)
        self.name = name
        self._bus = bus or BusSettings()
        self._settings = settings or ExecutorSettings()
        self._tools: dict[str, Tool] = {}
        self._threads = Threads()
        self._calls = Calls(name, self._threads)
        self._in_process: dict[str, tuple[Hook, RegisteredHook]] = {}
        self._stack = AsyncExitStack()
        self._parts: _Parts | None = None

    async def __aenter__(self) -> Self:
        """Connect and learn which hooks there are.

        Raises:
            BusUnavailable: the bus cannot be reached; PermissionRefused: it does not let this executor listen.
        """
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(open_bus(self._bus))
            connection = await connect(self._bus, name=f"executor {self.name}", url=url, no_echo=True)
            stack.push_async_callback(connection.close)
            if self._bus.url is None:
                await ensure_streams(connection, self._bus)
            registrations, asker = Registrations(connection), Asker(connection, self.name)
            outbox = Outbox(connection, self._bus.state_dir / "outbox", self._settings)
            runner = Runner(self._threads)
            observers = [hook for hook, _ in self._in_process.values()]
            recorder = Recorder(outbox, registrations, observers, self._threads)
            parts = _Parts(connection, registrations, asker, outbox, recorder, runner, Progress())
            for hook, _ in self._in_process.values():
                if isinstance(hook, UsesBus):
                    await hook.attach(connection)
                    stack.push_async_callback(hook.detach)
            stack.push_async_callback(_close, parts)
            for part in (registrations, asker, outbox):
                await part.start()
            for _, registered in self._in_process.values():
                registrations.add_in_process(registered)
            self._parts = parts
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send what is left of the record, and disconnect."""
        self._parts = None
        await self._stack.aclose()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return self._tools

    @property
    def hooks(self) -> tuple[RegisteredHook, ...]:
        """The hooks that are registered now, in the order in which they are reported."""
        return self._running.registrations.table.hooks

    @property
    def counters(self) -> Mapping[str, HookCounters]:
        """What each hook came to since the start."""
        return self._running.asker.counters

    @property
    def connected(self) -> bool:
        """Whether the bus can be reached now; without it hooks on the bus are unavailable."""
        return self._running.connection.is_connected

    @property
    def awaited(self) -> int:
        """How many answers of hooks on the bus are awaited now."""
        return self._running.asker.awaited

    @property
    def dropped_events(self) -> int:
        """How many events are in the log alone: of stopped calls for lack of room, and those that cannot be sent."""
        return self._running.outbox.dropped

    @property
    def stray_answers(self) -> int:
        """How many answers nobody waited for, or the server itself had made; none of them counted."""
        return self._running.asker.stray_answers

    @overload
    def tool(self, function: FunctionT) -> FunctionT: ...
    @overload
    def tool(
        self,
        *,
        name: str = "",
        timeout: float | None = None,
        paths: Sequence[str] | None = None,
        command: str | None = None,
        read_only: bool | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(
        self,
        function: FunctionT | None = None,
        *,
        name: str = "",
        timeout: float | None = None,
        paths: Sequence[str] | None = None,
        command: str | None = None,
        read_only: bool | None = None,
    ) -> FunctionT | Callable[[FunctionT], FunctionT]:
        """Make a function a tool; arguments are checked against its signature before any hook is asked.

        Args:
            function: async, plain (run in a thread), or an async generator (streaming).
            name: what the model calls; the function's name by default.
            timeout: seconds that it may run, 0 for no limit; the setting `tool_timeout` by default.
            paths: parameters that hold paths, for the hooks that judge them; by default those with the usual names.
            command: the parameter that holds a command line for bash, "" for none; by default one with a usual name.
            read_only: whether the tool changes nothing; by default hooks go by its name.

        Raises:
            ConfigError: the signature cannot be called by name, it has no parameter that is named here, or the tool's
                name is taken.
        """
        declared = Declared.of(paths, command, read_only)

        def register(function: FunctionT) -> FunctionT:
            limit = self._settings.tool_timeout if timeout is None else timeout
            tool = Tool(function, name=name, timeout=limit, declared=declared)
            if tool.name in self._tools:
                raise ConfigError(f"there is a tool {tool.name} already")
            self._tools[tool.name] = tool
            return function

        return register if function is None else register(function)

    def add_hook(self, hook: Hook, registration: HookRegistration | None = None) -> None:
        """Add a hook that lives in this process, before the executor starts; a hook of its name on the bus wins.

        Args:
            hook: asked beside the requests to hooks on the bus, under the same rules.
            registration: as an operator would write it; by default enforced, fail closed, reported last.

        Raises:
            ConfigError: the executor has started, or the name is empty or taken.
        """
        if self._parts is not None:
            raise ConfigError(f"hook {hook.name}: add it before the executor starts")
        if not hook.name or hook.name in self._in_process:
            raise ConfigError(f"hook {hook.name!r}: a hook needs a name that no other has")
        decide = decider(hook, self._threads)
        registered = RegisteredHook(hook.name, registration or HookRegistration(order=200), decide=decide)
        self._in_process[hook.name] = (hook, registered)

    async def execute(
        self,
        name: str,
        arguments: str | Mapping[str, object],
        *,
        session: Session | None = None,
        on_delta: OnDelta | None = None,
    ) -> ToolResult:
        """Ask every hook, run the tool if none objects, and record what happened.

        Args:
            name: the tool.
            arguments: a JSON object, as text from a model or as a mapping.
            session: for whom.
            on_delta: given each piece of a streaming tool's result as it comes; plain or async.

        Raises:
            asyncio.CancelledError: the caller was cancelled; the record says ``interrupted``.
            HookbusError: the executor is not started.
        """
        parts = self._running
        with parts.outbox.place(), parts.progress:
            return await self._execute(name, arguments, session, on_delta)

    async def _execute(
        self, name: str, arguments: str | Mapping[str, object], session: Session | None, on_delta: OnDelta | None
    ) -> ToolResult:
        parts = self._running
        tool = self._tools.get(name)
        if tool is None:
            context = self._calls.as_given(name, arguments, session)
            return parts.recorder.denied(_refusal(context, "Unknown tool", "unknown_tool"))
        try:
            read = Arguments.read(arguments)
            bound = tool.bind(read.values)
        except InvalidArguments as error:
            context = self._calls.as_given(name, arguments, session)
            return parts.recorder.denied(_refusal(context, str(error), "invalid_arguments"))
        context = self._calls.context(name, read, session, tool.declared, is_streaming=tool.is_streaming)
        return await self._judged(tool, bound, context, read, on_delta)

    async def _judged(
        self,
        tool: Tool,
        bound: Mapping[str, object],
        context: ToolHookContext,
        arguments: Arguments,
        on_delta: OnDelta | None,
    ) -> ToolResult:
        parts = self._running
        try:
            admission, poll = await self._admit(context, arguments)
        except asyncio.CancelledError:
            why = "the caller went away before the hooks had decided"
            parts.recorder.denied(_refusal(context, why, "cancelled"))
            raise
        if not admission.allowed:
            return parts.recorder.denied(admission, poll)
        try:
            admitted = parts.recorder.admitted(admission)
        except JournalUnwritable as error:
            return parts.recorder.denied(_refusal(context, str(error), "outbox_unwritable"), poll)
        started = time.perf_counter()
        try:
            await parts.outbox.safe()
            started = time.perf_counter()
            ran = await parts.runner.run(tool, bound, on_delta, within(admission.context))
        except JournalUnwritable as error:
            parts.outbox.withdraw(admitted.event_id)
            return parts.recorder.denied(_refusal(context, str(error), "outbox_unwritable"), poll)
        except asyncio.CancelledError:
            parts.recorder.ran(admitted, admission, poll, Ran(Outcome.INTERRUPTED, "", time.perf_counter() - started))
            raise
        return parts.recorder.ran(admitted, admission, poll, ran)

    async def admit(
        self,
        name: str,
        arguments: str | Mapping[str, object],
        *,
        session: Session | None = None,
        dry_run: bool = False,
    ) -> Admission:
        """Ask every hook about a call that this executor does not run, and wait for all of them.

        Args:
            name: any tool; it need not be one of this executor's.
            arguments: as in `execute`.
            session: for whom.
            dry_run: nothing is counted or spent; hooks with side effects are not asked.

        Raises:
            HookbusError: the executor is not started.
        """
        try:
            read = Arguments.read(arguments)
        except InvalidArguments as error:
            return _refusal(self._calls.as_given(name, arguments, session), str(error), "invalid_arguments")
        tool = self._tools.get(name)
        declared = tool.declared if tool else UNDECLARED
        context = self._calls.context(name, read, session, declared, dry_run=dry_run)
        admission, _ = await self._admit(context, read, patient=True)
        return admission

    async def flush(self, timeout: float = 5.0) -> None:
        """Wait until the record of all calls that have ended is in the stream.

        Raises:
            TimeoutError: it is not, within `timeout` seconds.
            HookbusError: the executor is not started.
        """
        async with asyncio.timeout(timeout):
            await self._running.recorder.settle()
            await self._running.outbox.flush(timeout)

    @property
    def _running(self) -> _Parts:
        if self._parts is None:
            raise HookbusError(f"executor {self.name} is not started: use `async with`")
        return self._parts

    async def _admit(
        self, context: ToolHookContext, arguments: Arguments, *, patient: bool = False
    ) -> tuple[Admission, Poll | None]:
        parts = self._running
        refusal = self._refused_unasked(context)
        if refusal is not None:
            return refusal, None
        started = time.perf_counter()
        hooks = parts.registrations.table.for_tool(context.tool_name)
        skipped = tuple(hook.name for hook in hooks if context.dry_run and hook.has_side_effects)
        asked = [hook for hook in hooks if hook.name not in skipped] if skipped else hooks
        try:
            poll = Poll(await self._calls.resolved(context, arguments), asked, patient=patient)
            await parts.asker.ask(poll, asked)
        except HookbusError as error:  # the call cannot be put to the hooks: none has judged it
            return _refusal(context, str(error), "not_askable"), None
        return poll.admission(skipped=skipped, elapsed=time.perf_counter() - started), poll

    def _refused_unasked(self, context: ToolHookContext) -> Admission | None:
        parts = self._running
        if parts.registrations.problem:
            why = f"no hook can be asked, since the registrations could not be read: {parts.registrations.problem}"
            return _refusal(context, why, "registrations_unread")
        for name in self._settings.required_hooks:
            if gap := parts.registrations.table.gap(name, context.tool_name):
                return _refusal(context, f"it is required and {gap}", "not_guarding", denied_by=name)
        if parts.outbox.is_full:
            waiting = f"{len(parts.outbox)} events wait for the bus"
            why = f"the record is full: {waiting}; bring the bus back, or raise outbox_limit or outbox_limit_bytes"
            return _refusal(context, why, "outbox_full")
        return None


async def _close(parts: _Parts) -> None:
    """End what is in progress, then send its record, then stop listening."""
    await parts.asker.close()
    await parts.runner.close()
    await parts.progress.wait()
    await parts.recorder.settle()
    await parts.outbox.close()
    await parts.registrations.close()


def _refusal(context: ToolHookContext, reason: str, code: str, *, denied_by: str = EXECUTOR) -> Admission:
    return Admission(allowed=False, context=context, denied_by=denied_by, reason=reason, reason_code=code)
