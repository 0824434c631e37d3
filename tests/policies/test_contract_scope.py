"""ContractScope: the shared cases, and counts that hold across replicas, executors and deaths."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from children import Child
from hookbus_broker import CONTRACTS, BusSettings, Connection, connect, ensure_streams, put
from hookbus_broker.counts import read
from hookbus_executor import Executor, ExecutorSettings, Session
from hookbus_schemas import (
    ConfigError,
    Decision,
    Hook,
    ToolDeniedEvent,
    ToolHookContext,
    ToolHookWithContext,
    encode,
    subjects,
)
from hookbus_schemas.contract import Contract
from hookbus_subscribers import BUILT_IN, ContractScope, HookServer
from hookbus_subscribers.contracts import calls_of
from policies.conftest import Asking, Case, Disk, cases
from support import eventually

REPLICA = """
import asyncio, sys
from hookbus_broker import BusSettings
from hookbus_subscribers import ContractScope, serve
bus = BusSettings(url=sys.argv[1])
asyncio.run(serve(ContractScope(), bus=bus, ready=lambda: print("ready", flush=True)))
"""


@pytest.fixture
async def operator(bus_url: str) -> AsyncIterator[Connection]:
    """Who attaches contracts."""
    bus = BusSettings(url=bus_url, events_max_bytes=8 * 2**20)
    async with await connect(bus, name="operator") as connection:
        await ensure_streams(connection, bus)
        yield connection


async def attach(operator: Connection, session: str, **contract: object) -> int:
    """Attach a contract; return its revision."""
    body = Contract.from_json(json.dumps({"id": "ctr_1"} | contract).encode()).to_json()
    return await put(operator, CONTRACTS, subjects.token(session), body)


@pytest.mark.parametrize("case", cases("contract_scope.jsonl"), ids=lambda case: case["id"])
async def test_a_shared_case_is_answered_as_it_says(
    case: Case, asking: Asking, disk: Disk, operator: Connection
) -> None:
    """One line of the file of cases."""
    case = disk.fill(case)
    if case["contract"] is not None:
        await attach(operator, "s1", **case["contract"])
    executor = await asking.executor(ContractScope())
    admission = await executor.admit(case["tool"], case["arguments"], session=Session("s1"))
    assert ("allow" if admission.allowed else "deny") == case["expect"], admission.reason


@pytest.mark.parametrize(
    ("contract", "tool", "arguments", "reason"),
    [
        pytest.param(
            {"expires_at": "2020-01-01T00:00:00Z"},
            "web_search",
            {},
            "contract ctr_1 expired at 2020-01-01T00:00:00+00:00",
            id="expired",
        ),
        pytest.param(
            {"max_runtime_seconds": 1e-9},
            "web_search",
            {},
            "contract ctr_1 allows 1e-09 seconds, and they are over",
            id="runtime",
        ),
        pytest.param(
            {"scoped_capabilities": [{"tool_name": "read_file", "allowed_paths": ["{W}"]}]},
            "read_file",
            {"path": "{O}/secret.txt"},
            "path {O}/secret.txt is outside what contract ctr_1 grants read_file",
            id="path",
        ),
        pytest.param(
            {"scoped_capabilities": [{"tool_name": "read_file", "allowed_paths": ["{W}"]}]},
            "read_file",
            {},
            "contract ctr_1 bounds read_file to paths, and no path of the call can be told",
            id="no path",
        ),
        pytest.param(
            {"scoped_capabilities": [{"tool_name": "read_file", "allowed_paths": ["{W}"]}]},
            "move_file",
            {"source": "{W}/a.txt"},
            "contract ctr_1 does not grant move_file",
            id="a tool that names paths",
        ),
    ],
)
async def test_a_denial_says_which_bound_of_which_contract(
    contract: Case, tool: str, arguments: Case, reason: str, asking: Asking, disk: Disk, operator: Connection
) -> None:
    """So that model and operator know whom to ask."""
    await attach(operator, "s1", **disk.fill(contract))
    executor = await asking.executor(ContractScope())
    admission = await executor.admit(tool, disk.fill(arguments), session=Session("s1"))
    assert (admission.denied_by, admission.reason) == ("ContractScope", disk.fill(reason))


async def test_a_contract_that_still_runs_lets_calls_pass(asking: Asking, operator: Connection) -> None:
    """Neither its time nor its end has come, and other sessions have no contract."""
    await attach(operator, "s1", expires_at="2999-01-01T00:00:00+01:00", max_runtime_seconds=3600)
    executor = await asking.executor(ContractScope())
    sessions = ("s1", "s2", "")
    assert [(await executor.admit("shell", {}, session=Session(of))).allowed for of in sessions] == [True] * 3


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"max_tool_calls": -1}, "max_tool_calls", id="negative"),
        pytest.param({"max_tool_calls": 1.5}, "max_tool_calls", id="half a call"),
        pytest.param({"max_tool_call": 5}, "max_tool_call", id="misspelt"),
        pytest.param({"id": ""}, "id", id="no id"),
        pytest.param({"expires_at": "2030-01-01T00:00:00"}, "expires_at", id="no time zone"),
        pytest.param({"max_runtime_seconds": -1}, "max_runtime_seconds", id="negative time"),
        pytest.param({"scoped_capabilities": [{"allowed_paths": []}]}, "tool_name", id="no tool"),
        pytest.param(
            {"scoped_capabilities": [{"tool_name": "x", "allowed_paths": ["here"]}]},
            "must be absolute paths",
            id="relative path",
        ),
    ],
)
def test_an_invalid_contract_names_the_field(fields: Case, says: str) -> None:
    """It cannot be attached."""
    with pytest.raises(ConfigError, match=says):
        Contract.from_json(json.dumps({"id": "ctr_1"} | fields).encode())


async def test_what_is_no_contract_denies_the_calls_of_its_session(asking: Asking, operator: Connection) -> None:
    """Somebody wrote it with another tool: what it was to bound nobody knows."""
    await put(operator, CONTRACTS, "s1", b'{"id": "x", "max_tool_cals": 1}')
    executor = await asking.executor(ContractScope())
    admission = await executor.admit("web_search", {}, session=Session("s1"))
    assert (admission.denied_by, admission.reason[:9]) == ("ContractScope", "contract:")


# Counting.


@dataclass
class Bus:
    """A bus on which ContractScope is registered."""

    settings: BusSettings
    operator: Connection
    stack: AsyncExitStack

    async def replicas(self, count: int, hook: type[ContractScope] = ContractScope) -> None:
        """Serve replicas, each on a connection of its own."""
        for _ in range(count):
            connection = await self.stack.enter_async_context(await connect(self.settings, name="replica"))
            await self.stack.enter_async_context(HookServer(hook(), connection))

    async def executors(self, count: int, *hooks: Hook) -> list[Executor]:
        """Start executors with the tool `work`, which counts in `ran` how often it ran."""
        started = []
        for number in range(count):
            settings = ExecutorSettings(required_hooks=("ContractScope",))
            executor = Executor(f"e{number}", bus=self.settings, settings=settings)
            for hook in hooks:
                executor.add_hook(hook)
            executor.tool(self.work)
            started.append(await self.stack.enter_async_context(executor))
        return started

    ran: int = 0

    async def work(self) -> str:
        """Run, which is counted."""
        self.ran += 1
        return "done"

    async def has_run(self, times: int) -> bool:
        """Tell whether the tool has run so often."""
        return self.ran >= times

    async def used(self, revision: int) -> int:
        """Return how many calls of the contract of session s1 are used."""
        entry = _Revision(revision)
        return await read(self.operator, calls_of("s1", entry))  # type: ignore[arg-type]


@dataclass
class _Revision:
    revision: int


@asynccontextmanager
async def _bus(url: str) -> AsyncIterator[Bus]:
    settings = BusSettings(url=url, events_max_bytes=8 * 2**20)
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(await connect(settings, name="operator"))
        await ensure_streams(operator, settings)
        await put(operator, "HOOKS", "ContractScope", BUILT_IN["ContractScope"].registration.to_json())
        yield Bus(settings, operator, stack)


async def test_of_a_thousand_calls_at_once_exactly_as_many_run_as_are_allowed(bus_url: str) -> None:
    """A hundred, of 20 executors, judged by 5 replicas."""
    async with _bus(bus_url) as bus, asyncio.timeout(60):
        revision = await attach(bus.operator, "s1", max_tool_calls=100)
        await bus.replicas(5)
        executors = await bus.executors(20)
        calls = (executor.execute("work", {}, session=Session("s1")) for executor in executors for _ in range(50))
        results = await asyncio.gather(*calls)
        assert bus.ran == 100
        reasons = {result.reason for result in results if result.outcome == "denied"}
        assert reasons == {"contract ctr_1 allows 100 calls, and all of them are used"}
        assert await bus.used(revision) == 100


async def test_a_replica_that_is_killed_lets_no_call_too_many_run(bus_url: str) -> None:
    """A process of its own, killed while calls are judged; requests that it took are asked again, of another."""
    async with _bus(bus_url) as bus, asyncio.timeout(60):
        await attach(bus.operator, "s1", max_tool_calls=100)
        async with Child(REPLICA, bus_url) as doomed:
            while await doomed.line() != "ready":
                pass
            executors = await bus.executors(5)
            await bus.replicas(1)
            async with asyncio.TaskGroup() as group:
                for executor in executors:
                    for _ in range(60):
                        group.create_task(executor.execute("work", {}, session=Session("s1")))
                await eventually(lambda: bus.has_run(10))
                await doomed.end(signal.SIGKILL)
        assert 10 <= bus.ran <= 100


class Denier(ToolHookWithContext):
    """Denies the first calls of each executor."""

    name = "denier"

    def __init__(self, calls: int) -> None:
        self._left = calls

    async def before_execute(self, context: ToolHookContext) -> Decision:
        """Deny until there is nothing left to deny."""
        self._left -= 1
        return Decision.deny("not this one") if self._left >= 0 else Decision.allow()


async def test_a_call_that_another_hook_denied_gives_its_slot_back(bus_url: str) -> None:
    """So denials cost the session nothing."""
    async with _bus(bus_url) as bus, asyncio.timeout(30):
        revision = await attach(bus.operator, "s1", max_tool_calls=3)
        await bus.replicas(2)
        (executor,) = await bus.executors(1, Denier(5))
        denied = [await executor.execute("work", {}, session=Session("s1")) for _ in range(3)]
        assert [result.denied_by for result in denied] == ["denier"] * 3
        await executor.flush()
        await eventually(lambda: _is(bus.used(revision), 0))
        for _ in range(2):
            await executor.execute("work", {}, session=Session("s1"))
        await executor.flush()
        await eventually(lambda: _is(bus.used(revision), 0))
        outcomes = [(await executor.execute("work", {}, session=Session("s1"))).outcome for _ in range(4)]
        assert outcomes == ["completed"] * 3 + ["denied"]
        assert (bus.ran, await bus.used(revision)) == (3, 3)


async def _is(value: Awaitable[int], wanted: int) -> bool:
    return await value == wanted


@pytest.mark.parametrize(
    ("fields", "subject", "used"),
    [
        pytest.param({}, "tool.denied.e1.work", 1, id="of a call that has a slot"),
        pytest.param({"call_id": "never"}, "tool.denied.e1.work", 2, id="of a call that took none"),
        pytest.param({"session_id": "s2"}, "tool.denied.e1.work", 2, id="of another session"),
        pytest.param({"dry_run": True}, "tool.denied.e1.work", 2, id="of a dry run"),
        pytest.param({}, "tool.denied.e2.work", 2, id="published by another executor"),
        pytest.param({"executor_id": "e2"}, "tool.denied.e2.work", 2, id="of another executor's call"),
    ],
)
async def test_only_the_slot_of_the_call_itself_is_given_back_and_once(
    fields: Case, subject: str, used: int, bus_url: str
) -> None:
    """However often the event comes, and whoever made it up."""
    async with _bus(bus_url) as bus, asyncio.timeout(30):
        revision = await attach(bus.operator, "s1", max_tool_calls=5)
        await attach(bus.operator, "s2", max_tool_calls=5)
        hook = ContractScope()
        await hook.attach(bus.operator)
        for call_id in ("c1", "c2"):
            await hook.before_execute(_context(call_id))
        for number in range(3):
            await _publish_denied(bus.operator, subject, str(number), _context("c1").model_copy(update=fields))
        await _publish_denied(bus.operator, "tool.denied.e1.work", "last", _context("c2"))
        await eventually(lambda: _is(bus.used(revision), used - 1))
        await eventually(lambda: _all_settled(bus.operator))
        await hook.detach()
        assert await bus.used(revision) == used - 1


async def _publish_denied(operator: Connection, subject: str, event_id: str, context: ToolHookContext) -> None:
    event = ToolDeniedEvent(event_id=event_id, at_ms=context.sent_at_ms, context=context, denied_by="denier")
    await operator.request(subject, encode(event), timeout=5)


async def _all_settled(operator: Connection) -> bool:
    info = json.loads((await operator.request("$JS.API.CONSUMER.INFO.TOOL_EVENTS.hook-ContractScope", timeout=5)).data)
    return bool(info["num_pending"] == info["num_ack_pending"] == 0)


async def test_a_request_that_comes_twice_counts_once(bus_url: str) -> None:
    """Sent again, to another replica or after its answer: the call's id is counted, not the request."""
    async with _bus(bus_url) as bus, asyncio.timeout(30):
        revision = await attach(bus.operator, "s1", max_tool_calls=1)
        hooks = [ContractScope(), ContractScope()]
        for hook in hooks:
            await hook.attach(bus.operator)
        context = _context("c1")
        answers = [await hook.before_execute(context) for hook in (*hooks, *hooks)]
        other = await hooks[0].before_execute(context.model_copy(update={"call_id": "c2"}))
        again = await hooks[1].before_execute(context)
        for hook in hooks:
            await hook.detach()
        assert [answer.decision for answer in (*answers, again)] == ["allow"] * 5
        assert (other.decision, await bus.used(revision)) == ("deny", 1)


async def test_a_dry_run_is_judged_and_not_counted(asking: Asking, operator: Connection) -> None:
    """Trying costs nothing, and says what would happen."""
    await attach(operator, "s1", max_tool_calls=1)
    executor = await asking.executor(ContractScope())
    of = Session("s1")
    dry = [(await executor.admit("work", {}, session=of, dry_run=True)).allowed for _ in range(3)]
    real = (await executor.admit("work", {}, session=of)).allowed
    after = (await executor.admit("work", {}, session=of, dry_run=True)).allowed
    assert (dry, real, after) == ([True] * 3, True, False)


async def test_a_contract_that_is_attached_again_counts_anew(asking: Asking, operator: Connection) -> None:
    """From when it was attached."""
    executor = await asking.executor(ContractScope())
    allowed = []
    of = Session("s1")
    for _ in range(2):
        await attach(operator, "s1", max_tool_calls=1)
        await eventually(lambda: _would_run(executor, of))
        allowed += [(await executor.admit("work", {}, session=of)).allowed for _ in range(2)]
    assert allowed == [True, False] * 2


async def _would_run(executor: Executor, of: Session) -> bool:
    return (await executor.admit("work", {}, session=of, dry_run=True)).allowed


async def test_calls_are_denied_when_contracts_cannot_be_read(bus_url: str) -> None:
    """A bus without the bucket: no answer is no allow."""
    settings = BusSettings(url=bus_url)
    async with await connect(settings, name="operator") as connection:
        hook = ContractScope()
        await hook.attach(connection)
        with pytest.raises(ConnectionError):
            await hook.before_execute(_context("c1"))
        await hook.detach()


def _context(call_id: str) -> ToolHookContext:
    now = time.time_ns() // 1_000_000
    about = {"call_id": call_id, "executor_id": "e1", "session_id": "s1", "sent_at_ms": now, "deadline_ms": now + 5000}
    return ToolHookContext.model_validate({"tool_name": "work", "arguments_json": "{}"} | about)
