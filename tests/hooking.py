"""The executor's part, played by a plain nats-py client, and a connection for what is under test."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from hookbus_broker import BusSettings, Connection, connect, ensure_streams
from hookbus_schemas import (
    Answer,
    Decision,
    Outcome,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    ToolHookWithContext,
    decode,
    encode,
    subjects,
)

Event = ToolAfterEvent | ToolDeniedEvent


class Asker:
    """An executor that asks one hook, and keeps every answer by the reply subject it came on."""

    def __init__(self, client: Client, hook: str, executor: str) -> None:
        self.client = client
        self.hook = hook
        self.executor = executor
        self.answers: dict[str, asyncio.Future[bytes]] = {}
        self.received: list[str] = []
        self.numbers = iter(range(1_000_000))

    async def start(self) -> None:
        """Listen for answers, and for those without a taker."""
        await self.client.subscribe(subjects.reply_filter(self.executor), cb=self._on_reply)
        await self.barrier()

    async def barrier(self) -> None:
        """Return when the server has all that was sent, and what it had for this client is here."""
        await self.client.flush()
        await self.client.flush()

    async def _on_reply(self, message: Msg) -> None:
        self.received.append(message.subject)
        answer = self.answers.get(message.subject)
        if answer is not None and not answer.done():
            status = (message.headers or {}).get("Status")
            answer.set_result(message.data) if not status else answer.set_exception(LookupError(status))

    def context(self, **fields: object) -> ToolHookContext:
        """Return a call to be asked about, with a call id of its own and five seconds to answer."""
        now = round(time.time() * 1000)
        made = {"call_id": f"c{next(self.numbers)}", "executor_id": self.executor, "tool_name": "t"}
        timed = {"arguments_json": "{}", "sent_at_ms": now, "deadline_ms": now + 5000}
        return ToolHookContext.model_validate(made | timed | fields)

    def new_reply(self) -> str:
        """Return a reply subject on which nobody has been asked yet."""
        return subjects.reply_prefix(self.executor, self.hook) + subjects.new_reply_token()

    async def send(self, body: bytes, reply: str = "", subject: str = "") -> asyncio.Future[bytes]:
        """Ask with these very bytes; return what the answer will be in."""
        reply = reply or self.new_reply()
        answer = self.answers.setdefault(reply, asyncio.get_running_loop().create_future())
        await self.client.publish(subject or subjects.before(self.hook, self.executor), body, reply)
        return answer

    async def ask(self, context: ToolHookContext | None = None, **fields: object) -> Decision:
        """Ask and wait for the decision."""
        async with asyncio.timeout(5):
            return decode(Decision, await (await self.send(encode(context or self.context(**fields)))))

    async def ask_until_answered(self) -> Decision:
        """Send the same request again and again until somebody answers."""
        body, reply = encode(self.context()), self.new_reply()
        answer = await self.send(body, reply)
        async with asyncio.timeout(5):
            while not answer.done():
                await self.send(body, reply)
                await self.barrier()
            return decode(Decision, await answer)


class Bus:
    """One test's bus: connections to serve on, executors that ask, events to record."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        small = 64 * 1024 * 1024  # a server reserves it for each test
        self.settings = BusSettings(url=url, reconnect_wait=0.01, reconnect_wait_max=0.05, events_max_bytes=small)
        self._stack = stack

    async def connection(self, name: str = "hook") -> Connection:
        """Connect one more process's connection, closed with the test."""
        connection = await connect(self.settings, name=name)
        self._stack.push_async_callback(connection.close)
        return connection

    async def client(self) -> Client:
        """Connect one more plain client, closed with the test."""
        assert self.settings.url
        client = await nats.connect(self.settings.url, max_reconnect_attempts=-1, reconnect_time_wait=0)
        self._stack.push_async_callback(client.close)
        return client

    async def asker(self, hook: str, executor: str = "e1") -> Asker:
        """Return an executor that asks this hook."""
        asker = Asker(await self.client(), hook, executor)
        await asker.start()
        return asker

    async def streams(self) -> Connection:
        """Make the stream of events; return the connection that made it."""
        connection = await self.connection("operator")
        await ensure_streams(connection, self.settings)
        return connection

    async def record(self, connection: Connection, *events: Event) -> None:
        """Put events into the stream, in their order."""
        for event in events:
            context = event.context
            make = subjects.after if isinstance(event, ToolAfterEvent) else subjects.denied
            subject = make(context.executor_id, context.tool_name)
            await connection.jetstream().publish(subject, encode(event), headers={"Nats-Msg-Id": event.event_id})

    async def record_when_ready(self, connection: Connection, event: Event) -> None:
        """Put an event into the stream as soon as a server that was started again has it."""
        async with asyncio.timeout(5):
            while True:
                try:
                    return await self.record(connection, event)
                except Error:
                    await connection.barrier()


Decider = Callable[[ToolHookContext], Awaitable[Answer]]


class Asked(ToolHookWithContext):
    """A hook that does what a test says, and keeps what it was asked."""

    def __init__(self, decide: Decider | None = None, name: str = "h") -> None:
        self.name = name
        self.calls: list[ToolHookContext] = []
        self._decide = decide

    async def before_execute(self, context: ToolHookContext) -> Answer:
        """Remember the call and decide."""
        self.calls.append(context)
        return await self._decide(context) if self._decide else True


class Gate:
    """A decision that waits until the test lets it go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, context: ToolHookContext) -> Answer:
        """Wait, unless the tool is a quick one."""
        if context.tool_name != "quick":
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return True


def make_event(
    number: int, outcome: Outcome = Outcome.COMPLETED, *, told: tuple[str, ...] = (), **context: object
) -> Event:
    """Return the event of one call; the outcome `DENIED` makes it a `ToolDeniedEvent`, of which no hook is told."""
    about = {"tool_name": "t", "arguments_json": "{}", "call_id": f"c{number}", "executor_id": "e1"}
    call = ToolHookContext.model_validate(about | {"sent_at_ms": 0, "deadline_ms": 0} | context)
    if outcome is Outcome.DENIED:
        return ToolDeniedEvent(event_id=f"event-{number}", at_ms=number, context=call, denied_by="h")
    about_call = {"event_id": f"event-{number}", "at_ms": number, "context": call, "outcome": outcome}
    return ToolAfterEvent.model_validate(about_call | {"duration_ms": 1500.0, "result": "ok", "told": told})
