"""What follows a call: its record, and the hooks that are told of it."""

import asyncio

from executor.conftest import World
from hookbus_schemas import Decision, Outcome, ToolDeniedEvent, ToolHook, Verdict


async def test_a_call_that_a_hook_denied_is_recorded_with_the_decision(world: World) -> None:
    """The tool did not run; the event says who denied and why."""
    await world.hook("strict", Decision.deny("not on a Tuesday", reason_code="tuesday"))
    executor = await world.started()
    async with asyncio.timeout(5):
        assert (await executor.execute("echo", {"text": "ran"})).outcome is Outcome.DENIED
        await executor.flush()
    (event,) = await world.events()
    assert isinstance(event, ToolDeniedEvent)
    assert (event.denied_by, event.reason, event.reason_code) == ("strict", "not on a Tuesday", "tuesday")
    assert [(one.hook, one.decision) for one in event.decisions] == [("strict", Verdict.DENY)]


async def test_the_caller_does_not_wait_for_hooks_that_are_told(world: World) -> None:
    """One that hangs until the caller has its result is told all the same."""
    has_result = asyncio.Event()
    told = asyncio.Event()

    class Slow(ToolHook):
        name = "slow"

        async def after_execute(
            self, tool_name: str, arguments: str, result: str, duration: float, failed: bool
        ) -> None:
            await has_result.wait()
            told.set()

    executor = await world.executor()
    executor.add_hook(Slow())
    executor.tool(name="echo")(lambda text: text)
    async with executor, asyncio.timeout(5):
        assert (await executor.execute("echo", {"text": "a"})).text == "a"
        has_result.set()
        await told.wait()
