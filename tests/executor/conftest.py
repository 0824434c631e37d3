"""An executor under test, and hooks on the bus that do what a test wants: of nats-py alone, so that they can lie."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from hookbus_broker import BusSettings, connect, delete, ensure_streams, put
from hookbus_executor import Executor, ExecutorSettings
from hookbus_schemas import (
    Decision,
    HookRegistration,
    ToolAfterEvent,
    ToolDeniedEvent,
    ToolHookContext,
    decode,
    decode_event,
    digest,
    encode,
    subjects,
)

Answer = Decision | bytes | None
Handler = Callable[[Msg, ToolHookContext], Awaitable[Answer]]


class World:
    """One test's bus: hooks to register and serve, executors to start, events to read."""

    def __init__(self, bus: BusSettings, stack: AsyncExitStack) -> None:
        self.bus = bus
        self._stack = stack
        self.client: Client

    async def start(self) -> None:
        """Make the streams, and connect the client that plays the hooks."""
        assert self.bus.url
        connection = await connect(self.bus, name="operator")
        self._stack.push_async_callback(connection.close)
        await ensure_streams(connection, self.bus)
        self.operator = connection
        self.client = await self.new_client()

    async def new_client(self) -> Client:
        """Connect one more plain client, closed with the test."""
        assert self.bus.url
        client = await nats.connect(list(self.bus.servers), max_reconnect_attempts=-1, reconnect_time_wait=0)
        self._stack.push_async_callback(client.close)
        return client

    async def register(self, name: str, registration: HookRegistration | None = None, **fields: object) -> int:
        """Register a hook as an operator does; return the revision."""
        made = registration or HookRegistration.model_validate(fields)
        return await put(self.operator, "HOOKS", subjects.token(name), made.to_json())

    async def unregister(self, name: str) -> None:
        """Remove a registration."""
        await delete(self.operator, "HOOKS", subjects.token(name))

    async def serve(self, name: str, handler: Handler, client: Client | None = None) -> None:
        """Answer for a hook: a decision is sent with the right digest, bytes as they are, None not at all."""
        answering = client or self.client

        async def on_request(message: Msg) -> None:
            answer = await handler(message, decode(ToolHookContext, message.data))
            if isinstance(answer, Decision):
                answer = encode(answer.model_copy(update={"request_digest": digest(message.data)}))
            if answer is not None:
                await answering.publish(message.reply, answer)

        await answering.subscribe(subjects.before_filter(name), queue=subjects.queue_group(name), cb=on_request)
        await answering.flush()
        await answering.flush()

    async def hook(self, name: str, answer: Answer = None, **fields: object) -> None:
        """Serve and register a hook that always gives the same answer."""

        async def give(_: Msg, __: ToolHookContext) -> Answer:
            return answer

        await self.serve(name, give)
        await self.register(name, None, **fields)

    async def executor(self, name: str = "e1", **settings: object) -> Executor:
        """Return an executor that is not started yet; by default it requires no hook."""
        chosen = ExecutorSettings(**({"required_hooks": ()} | settings))  # type: ignore[arg-type]
        return Executor(name, bus=self.bus, settings=chosen)

    async def started(self, name: str = "e1", **settings: object) -> Executor:
        """Return a started executor with the tool `echo`, closed with the test."""
        executor = await self.executor(name, **settings)

        @executor.tool
        async def echo(text: str = "") -> str:
            return text

        return await self._stack.enter_async_context(executor)

    async def events(self) -> list[ToolAfterEvent | ToolDeniedEvent]:
        """Return what the stream holds, in its order."""
        await self.operator.wait_connected()
        stream = self.operator.jetstream()
        last = (await stream.stream_info("TOOL_EVENTS")).state.last_seq
        stored = [await stream.get_msg("TOOL_EVENTS", number) for number in range(1, last + 1)]
        return [decode_event(message.data or b"") for message in stored]


@pytest.fixture
async def world(bus_url: str) -> AsyncIterator[World]:
    """A bus with its streams, and nothing registered."""
    async with AsyncExitStack() as stack:
        made = World(BusSettings(url=bus_url, events_max_bytes=8 * 2**20), stack)
        await made.start()
        yield made
