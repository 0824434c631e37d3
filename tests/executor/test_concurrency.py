"""Many calls at once, callers that go away, and changes in the middle."""

import asyncio
import json

from nats.aio.msg import Msg

from executor.conftest import Answer, World
from hookbus_schemas import Decision, Outcome, ToolAfterEvent, ToolDeniedEvent, ToolHookContext
from support import until


async def test_a_thousand_calls_at_once_each_get_their_own_answer(world: World) -> None:
    """None is lost, crossed or late: odd numbers are denied with their own number as the reason."""

    async def odd(_: Msg, context: ToolHookContext) -> Answer:
        number = json.loads(context.arguments_json)["text"]
        return Decision.deny(number) if int(number) % 2 else Decision.allow(warning=number)

    for name in ("a", "b", "c"):
        await world.serve(name, odd, await world.new_client())
        await world.register(name)
    executor = await world.started()
    async with asyncio.timeout(30):
        results = await asyncio.gather(*(executor.execute("echo", {"text": str(n)}) for n in range(1000)))
        await executor.flush(20)
    for number, result in enumerate(results):
        if number % 2:
            assert (result.outcome, result.reason) == (Outcome.DENIED, str(number))
        else:
            assert result.text.startswith(f"{number}\n")
            assert [one.warning for one in result.decisions] == [str(number)] * 3
    events = await world.events()
    assert sorted(event.context.call_id for event in events) == sorted(result.call_id for result in results)


async def test_a_caller_that_goes_away_while_hooks_decide_leaves_one_record(world: World) -> None:
    """The call did not run; the record says that it was stopped, and why."""
    asked = asyncio.Event()

    async def hang(_: Msg, __: ToolHookContext) -> Answer:
        asked.set()
        return None

    await world.serve("hung", hang)
    await world.register("hung")
    executor = await world.started()
    call = asyncio.create_task(executor.execute("echo", {}))
    async with asyncio.timeout(5):
        await asked.wait()
        call.cancel()
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
        await executor.flush()
    (event,) = await world.events()
    assert isinstance(event, ToolDeniedEvent)
    assert event.reason_code == "cancelled"


async def test_a_caller_that_goes_away_while_the_tool_runs_leaves_one_record(world: World) -> None:
    """Exactly one event, outcome interrupted."""
    running = asyncio.Event()
    executor = await world.executor()

    @executor.tool
    async def wait_for_ever() -> None:
        running.set()
        await asyncio.Event().wait()

    async with executor, asyncio.timeout(5):
        call = asyncio.create_task(executor.execute("wait_for_ever", {}))
        await running.wait()
        call.cancel()
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
        await executor.flush()
    (event,) = await world.events()
    assert isinstance(event, ToolAfterEvent)
    assert event.outcome is Outcome.INTERRUPTED


async def test_a_trial_call_that_is_cancelled_does_not_leave_the_hook_unasked(world: World) -> None:
    """Cancelling many calls leaves nothing behind in the table of what is awaited."""
    await world.hook("hung", None)
    executor = await world.started()
    calls = [asyncio.create_task(executor.execute("echo", {})) for _ in range(100)]
    await until(lambda: executor.awaited == 100)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert executor.awaited == 0


async def test_a_registration_changes_while_calls_run_and_every_executor_follows(world: World) -> None:
    """No call fails by the change, and soon every executor judges by the new one."""
    await world.hook("rule", Decision.deny("no"), enforcement="shadow")
    executors = [await world.started(f"e{number}") for number in range(3)]
    stop = asyncio.Event()
    seen: list[tuple[str, int]] = []

    async def keep_calling(index: int) -> None:
        while not stop.is_set():
            result = await executors[index].execute("echo", {"text": "ran"})
            seen.append((result.outcome, index))

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for index in range(3):
            group.create_task(keep_calling(index))
        await until(lambda: len(seen) > 30)
        await world.register("rule", enforcement="enforce")
        await until(lambda: {index for outcome, index in seen if outcome == Outcome.DENIED} == {0, 1, 2})
        await world.unregister("rule")
        await until(lambda: all(not executor.hooks for executor in executors))
        before = len(seen)
        await until(lambda: len(seen) > before + 30)
        stop.set()
    assert {outcome for outcome, _ in seen[-6:]} == {Outcome.COMPLETED}


async def test_calls_in_progress_at_the_end_are_ended_and_recorded(world: World) -> None:
    """An executor that closes denies what waits for hooks and cancels what runs; each leaves its record."""
    asked, running = asyncio.Event(), asyncio.Event()

    async def hang(_: Msg, __: ToolHookContext) -> Answer:
        asked.set()
        return None

    await world.serve("hung", hang)
    await world.register("hung", tools=["echo"])
    executor = await world.executor()

    @executor.tool
    async def echo() -> None: ...

    @executor.tool
    async def wait_for_ever() -> None:
        running.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        async with executor:
            calls = [asyncio.create_task(executor.execute(name, {})) for name in ("echo", "wait_for_ever")]
            await asked.wait()
            await running.wait()
        results = await asyncio.gather(*calls)
    assert [result.outcome for result in results] == [Outcome.DENIED, Outcome.FAILED]
    events = {event.context.tool_name: event for event in await world.events()}
    assert isinstance(events["echo"], ToolDeniedEvent)
    assert events["echo"].decisions[0].reason_code == "closing"
    assert events["wait_for_ever"].outcome is Outcome.FAILED


async def test_the_record_of_a_cancelled_call_has_the_id_that_hooks_were_given(world: World) -> None:
    """A hook that counts by call can give back what it took."""
    seen: list[str] = []

    async def keep(_: Msg, context: ToolHookContext) -> Answer:
        seen.append(context.call_id)
        return None

    await world.serve("hung", keep)
    await world.register("hung")
    executor = await world.started()
    call = asyncio.create_task(executor.execute("echo", {}))
    await until(lambda: seen)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await executor.flush()
    assert [event.context.call_id for event in await world.events()] == seen
