"""What asking hooks costs, beside a bare request and what a user would otherwise have."""

import asyncio
import itertools
import json
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import nats
from nats.aio.client import Client

from benchmarks import built_in
from benchmarks.report import Bar, Row
from benchmarks.rounds import latency, throughput
from benchmarks.serving import serving
from hookbus_broker import HOOKS, BusSettings, connect, ensure_streams, open_bus, put
from hookbus_executor import Admission, Executor, ExecutorSettings
from hookbus_schemas import HookRegistration, ToolHook, encode

EXECUTOR = "benchmark-executor1"
BARE = "benchmark-executor2"
"""Who the bare requests say they are of: on the executor's own reply subjects each side would get both answers."""

TEN = [f"h{number}" for number in range(10)]
ARGUMENTS = {"query": "SELECT name FROM users WHERE id = 7", "note": "x" * 400}
COMMAND = 'import json, sys; json.load(sys.stdin); print("allow")'
ONE = ("one", "one-shadow", "one-slow-shadow")
"""Tools that one enforced hook guards, some with a hook in shadow beside it."""

BURST = 16
AT_ONCE = 256


class InProcess(ToolHook):
    """The same decision, in the agent's own process."""

    name = "local"

    async def before_execute(self, tool_name: str, arguments: str) -> bool:  # noqa: ARG002
        """Decide as the others do."""
        return "DROP TABLE" not in arguments


class Stage:
    """An executor, and a bare client that asks the very same hooks."""

    def __init__(self, executor: Executor, client: Client, bodies: Iterator[bytes], urls: "Urls") -> None:
        self.executor = executor
        self._client = client
        self._bodies = bodies
        self.urls = urls

    async def bare(self, hook: str = "h0") -> None:
        """Ask one hook with nats-py's own request."""
        self._client._resp_sub_prefix = _prefix(hook)  # read before the request waits for anything
        await self._client.request(f"tool.before.{hook}.{BARE}", next(self._bodies), timeout=5)

    async def one_by_one(self) -> None:
        """Ask ten hooks one after the other."""
        for hook in TEN:
            await self.bare(hook)

    async def gathered(self) -> None:
        """Ask ten hooks with ten requests at once."""
        await asyncio.gather(*(self.bare(hook) for hook in TEN))

    def admit(
        self, tool: str, arguments: Mapping[str, object] = ARGUMENTS, *, allowed: bool = True
    ) -> Callable[[], Awaitable[Admission]]:
        """Return an admission of this tool; its registrations say who is asked."""

        async def work() -> Admission:
            admission = await self.executor.admit(tool, arguments)
            assert admission.allowed is allowed, admission
            return admission

        return work

    def run(self, tool: str) -> Callable[[], Awaitable[None]]:
        """Return a call that runs a tool which does nothing."""

        async def work() -> None:
            assert (await self.executor.execute(tool, ARGUMENTS)).text == "done"

        return work

    async def burst(self) -> None:
        """Run one turn of a model: sixteen calls at once, ten hooks each."""
        await asyncio.gather(*(self.admit("ten")() for _ in range(BURST)))

    async def burst_bare(self) -> None:
        """Ask one hook with sixteen bare requests at once."""
        await asyncio.gather(*(self.bare() for _ in range(BURST)))

    async def webhook(self) -> None:
        """Ask over HTTP, on a connection that is kept."""
        answer = await self.urls.http.post(self.urls.webhook, json={"arguments_json": json.dumps(ARGUMENTS)})
        assert answer.json()["decision"] == "allow"

    async def command(self, *argv: str) -> None:
        """Start a process for one call."""
        process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1)
        await process.communicate(json.dumps({"arguments_json": json.dumps(ARGUMENTS)}).encode())


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the webhook is, and the client that keeps its connection."""

    webhook: str
    http: httpx.AsyncClient


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Set everything up: bus, two processes of hooks, registrations, webhook, executor, bare client."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hookbus-bench-"))
        url = await stack.enter_async_context(open_bus(BusSettings(state_dir=Path(folder))))
        bus = BusSettings(url=url)
        await stack.enter_async_context(serving("hooks", url, *TEN[:5], "shadow", "slow", "slow-shadow", "raises"))
        await stack.enter_async_context(serving("hooks", url, *TEN[5:]))
        await _register(bus)
        guarding = ("built-in", url, str(built_in.write_settings(Path(folder))), *built_in.NAMES)
        await stack.enter_async_context(serving(*guarding, stderr=DEVNULL))
        port = await stack.enter_async_context(serving("webhook"))
        http = await stack.enter_async_context(httpx.AsyncClient())
        executor = Executor(EXECUTOR, bus=bus, settings=ExecutorSettings(required_hooks=()))
        executor.add_hook(InProcess(), HookRegistration(tools=("local",)))
        for tool in ONE:
            executor.tool(name=tool)(_done)
        await stack.enter_async_context(executor)
        client = await _bare_client(url)
        stack.push_async_callback(client.close)
        context = (await executor.admit("one", ARGUMENTS)).context
        far = {"deadline_ms": context.deadline_ms + 3_600_000, "executor_id": BARE}
        bodies = [encode(context.model_copy(update=far | {"call_id": f"{n:032d}"})) for n in range(4096)]
        yield Stage(executor, client, itertools.cycle(bodies), Urls(f"http://127.0.0.1:{port}/", http))


async def _done(query: str, note: str) -> str:  # noqa: ARG001
    return "done"


async def _register(bus: BusSettings) -> None:
    async with await connect(bus, name="operator") as operator:
        await ensure_streams(operator, bus)
        for number, name in enumerate(TEN):
            tools = ("ten", "ten-slow", *(ONE if number == 0 else ()))
            await put(operator, HOOKS, name, HookRegistration(tools=tools).to_json())
        for name, fields in {
            "shadow": {"tools": ("one-shadow",), "enforcement": "shadow"},
            "slow-shadow": {"tools": ("one-slow-shadow",), "enforcement": "shadow"},
            "slow": {"tools": ("ten-slow",)},
            "raises": {"tools": ("raises",)},
        }.items():
            await put(operator, HOOKS, name, HookRegistration.model_validate(fields).to_json())
        for name, registration in built_in.registrations().items():
            await put(operator, HOOKS, name, registration.to_json())


async def _bare_client(url: str) -> Client:
    """Return a plain client whose reply subjects have the form that a hook answers on: nats-py's own have a token more.

    Its private names are set to what the first `request` would set them to.
    """
    client = await nats.connect(url, inbox_prefix=b"reply")
    assert len(_prefix("h0")) == len("reply") + 24  # where nats-py looks for the token
    await client.subscribe(f"reply.{BARE}.*.*", cb=client._request_sub_callback)
    return client


def _prefix(hook: str) -> bytearray:
    return bytearray(f"reply.{BARE}.{hook}.".encode())


async def measure(on: Stage, rounds: int) -> tuple[list[Row], list[str]]:
    """Return the rows (name, figures, baseline, bar), and the names of those that are rates."""
    python = (sys.executable, "-c", COMMAND)
    guarded = on.admit(built_in.TOOL, built_in.ARGUMENTS)
    judged = (await guarded()).context
    found = await latency(
        [
            ("bare nats-py request, 1 hook", on.bare, 60),
            ("hookbus admission, 1 hook", on.admit("one"), 60),
            ("hookbus call, 1 hook, with tool and record", on.run("one"), 60),
            ("bare requests to 10 hooks, one by one", on.one_by_one, 8),
            ("bare requests to 10 hooks, gathered", on.gathered, 15),
            ("hookbus admission, 10 hooks in 2 processes", on.admit("ten"), 30),
            ("... one more, slow (50 ms)", on.admit("ten-slow"), 2),
            ("hookbus call, 1 hook and 1 in shadow", on.run("one-shadow"), 60),
            ("hookbus call, 1 hook and 1 in shadow, slow (50 ms)", on.run("one-slow-shadow"), 30),
            ("hookbus admission, a hook that raises", on.admit("raises", allowed=False), 30),
            ("hookbus admission, a hook in the process", on.admit("local"), 60),
            (f"hookbus admission, {', '.join(built_in.NAMES)}", guarded, 60),
            ("Autonomy alone, in process, a plain path check", built_in.path_check(judged), 60),
            (f"{BURST} bare requests at once, 1 hook", on.burst_bare, 6),
            (f"{BURST} admissions at once, 10 hooks", on.burst, 6),
            ("HTTP webhook, connection kept", on.webhook, 30),
        ],
        rounds,
        on.executor.flush,
    )
    commands = await latency(
        [
            ("bare", on.bare, 10),
            ("a process for each call: /bin/sh", lambda: on.command("/bin/sh", "-c", "cat >/dev/null; echo allow"), 3),
            ("a process for each call: Python", lambda: on.command(*python), 1),
        ],
        max(2, rounds // 4),
        on.executor.flush,
    )
    rates = await throughput(
        [(f"bare requests, {AT_ONCE} at once", on.bare), (f"hookbus admissions, {AT_ONCE} at once", on.admit("one"))],
        at_once=AT_ONCE,
        each=4,
        rounds=max(2, rounds // 2),
    )
    bare, one_by_one = found["bare nats-py request, 1 hook"], found["bare requests to 10 hooks, one by one"]
    burst = found[f"{BURST} bare requests at once, 1 hook"]
    bars = {
        "hookbus admission, 1 hook": Bar("<=", 1.1),
        "hookbus admission, 10 hooks in 2 processes": Bar("<=", 2.0),
    }
    rows: list[Row] = [(name, one, bare, bars.get(name)) for name, one in found.items() if "at once" not in name]
    ten = found["hookbus admission, 10 hooks in 2 processes"]
    rows.append(("10 hooks, one by one, beside hookbus", one_by_one, ten, Bar(">=", 3.0)))
    rows += [(name, one, burst, None) for name, one in found.items() if "at once" in name]
    rows += [(name, one, commands["bare"], None) for name, one in commands.items() if name != "bare"]
    first, second = rates
    rows += [(first, rates[first], rates[first], None), (second, rates[second], rates[first], Bar(">=", 0.8))]
    return rows, list(rates)
