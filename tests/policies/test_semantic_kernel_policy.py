"""SemanticKernelPolicy: which tools, and limits that replicas share."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hookbus_broker import BusSettings, connect, ensure_streams, put
from hookbus_executor import Executor, ExecutorSettings, Session
from hookbus_schemas import ConfigError
from hookbus_subscribers import BUILT_IN, HookServer, SemanticKernelPolicy, SemanticKernelSettings
from policies.conftest import Asking, Case


@pytest.mark.parametrize(
    ("config", "tool", "reason"),
    [
        pytest.param({}, "sk_mail", "", id="all by default"),
        pytest.param({}, "semantic_kernel", "", id="the kernel itself"),
        pytest.param({"allowed_tools": []}, "SK_mail", "", id="exact case"),
        pytest.param({"allowed_tools": []}, "shell", "", id="another tool"),
        pytest.param({"allowed_tools": []}, "sk_mail", "sk_mail is not among the allowed tools", id="empty list"),
        pytest.param({"allowed_tools": ["sk_a*"]}, "sk_b", "sk_b is not among the allowed tools", id="not allowed"),
        pytest.param({"denied_tools": ["sk_*"]}, "sk_mail", "sk_mail is among the denied tools", id="deny wins"),
    ],
)
async def test_a_tool_is_judged_by_its_name(config: Case, tool: str, reason: str, asking: Asking) -> None:
    """Only those of Semantic Kernel."""
    admission = await asking.admit(SemanticKernelPolicy(SemanticKernelSettings(**config)), tool, {})
    assert (admission.allowed, admission.reason) == (not reason, reason)


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        pytest.param({"sk_*": 2}, 2, id="one"),
        pytest.param({"sk_*": 2, "sk_mail": 3}, 3, id="the largest that matches"),
        pytest.param({"sk_*": 0}, 5, id="0 is none"),
        pytest.param({"sk_other": 1}, 5, id="of another tool"),
    ],
)
async def test_a_limit_holds_for_each_sender_and_tool(limits: dict[str, int], allowed: int, asking: Asking) -> None:
    """In one fixed minute; denied calls count too, dry runs do not."""
    settings = SemanticKernelSettings(per_sender_per_tool_per_minute=limits)
    minute = [100.0]
    executor = await asking.executor(SemanticKernelPolicy(settings, clock=lambda: minute[0] * 60))

    async def calls(tool: str, sender: str, *, dry_run: bool = False) -> int:
        of = Session("s", sender_id=sender)
        answers = [await executor.admit(tool, {}, session=of, dry_run=dry_run) for _ in range(5)]
        return sum(answer.allowed for answer in answers)

    assert await calls("sk_mail", "ann", dry_run=True) == 5
    assert await calls("sk_mail", "ann") == allowed
    assert await calls("sk_mail", "bob") == allowed
    assert await calls("sk_mail", "") == allowed
    assert await calls("sk_mail", "ann", dry_run=True) == (5 if allowed == 5 else 0)
    minute[0] += 0.99
    assert await calls("sk_mail", "ann") == (5 if allowed == 5 else 0)
    minute[0] += 0.01
    assert await calls("sk_mail", "ann") == allowed


async def test_a_limit_of_sixty_a_minute_holds_across_five_replicas(bus_url: str) -> None:
    """Two hundred calls at once, of four executors."""
    bus = BusSettings(url=bus_url, events_max_bytes=8 * 2**20)
    settings = SemanticKernelSettings(per_sender_per_tool_per_minute={"sk_*": 60})
    name = "SemanticKernelPolicy"
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        operator = await stack.enter_async_context(await connect(bus, name="operator"))
        await ensure_streams(operator, bus)
        await put(operator, "HOOKS", name, BUILT_IN[name].registration.to_json())
        for _ in range(5):
            connection = await stack.enter_async_context(await connect(bus, name="replica"))
            hook = SemanticKernelPolicy(settings, clock=lambda: 6000.0)
            await stack.enter_async_context(HookServer(hook, connection))
        required = ExecutorSettings(required_hooks=())
        executors = [
            await stack.enter_async_context(Executor(f"e{number}", bus=bus, settings=required)) for number in range(4)
        ]
        asked = (executor.admit("sk_mail", {}) for executor in executors for _ in range(50))
        answers = await asyncio.gather(*asked)
    assert sum(answer.allowed for answer in answers) == 60
    assert {answer.reason for answer in answers if not answer.allowed} == {
        "sk_mail may be called 60 times a minute by one sender, and was: wait for the next minute"
    }


@pytest.mark.parametrize(
    ("config", "says"),
    [
        pytest.param({"per_sender_per_tool_per_minute": {"sk_*": -1}}, "per_sender_per_tool_per_minute", id="negative"),
        pytest.param({"per_sender_per_tool_per_minute": [5]}, "per_sender_per_tool_per_minute", id="no table"),
        pytest.param({"allowed_tools": "sk_*"}, "allowed_tools", id="no list"),
    ],
)
def test_settings_that_cannot_mean_anything_name_the_field(config: Case, says: str) -> None:
    """The start stops there."""
    with pytest.raises(ConfigError, match=says):
        SemanticKernelSettings(**config)
