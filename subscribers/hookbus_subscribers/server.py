"""One hook on the bus: every request is answered once, by what the hook decided or by what went wrong.

Above it is `serve`; below it `asked`, which reads requests, and `answers`, which sends what was decided.
"""

import asyncio
import time
from collections import deque
from functools import partial
from types import TracebackType
from typing import Self

import structlog
from nats.aio.msg import Msg

from hookbus_broker import Connection, UsesBus
from hookbus_broker.callbacks import Throttle
from hookbus_broker.log import say
from hookbus_schemas import (
    BusUnavailable,
    ConfigError,
    Decision,
    InvalidMessage,
    ToolHookContext,
    digest,
    subjects,
)
from hookbus_schemas.hook import Hook, decider
from hookbus_schemas.isolation import FAILURES, is_cancellation
from hookbus_schemas.registration import MAX_TIMEOUT_MS
from hookbus_schemas.threads import Threads
from hookbus_subscribers.answers import Answers, Request, Served
from hookbus_subscribers.asked import Caller, caller, read_request
from hookbus_subscribers.hook import check_name

log = structlog.get_logger()

GRACE = 1.0
"""Seconds past its deadline in which a request is still worked on: clocks differ, and a late deny is still recorded."""

MAX_REPLIES = 8
"""Reply subjects on which one answer is given; a request is sent twice at most, by whoever plays by the rules."""

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of requests beyond which no more may wait, whoever sends them."""

CANCEL_TIMEOUT = 1.0
"""Seconds that a cancelled hook function has to end."""

LOG_INTERVAL = 10.0
"""Seconds between two log lines about refused requests, of one kind."""


class HookServer:
    """Answers the requests to one hook, as one replica of it.

    A slow call delays no other: up to `concurrency` run at once, `waiting` more wait, the rest is told "busy" at once.
    A request that comes again while the first is worked on joins it. Nothing is remembered once it is answered: a copy
    that crosses the answer runs again, as it would on another replica, so side effects are keyed by ``call_id``.

    Attributes:
        hook: what is asked.
    """

    def __init__(
        self,
        hook: Hook,
        connection: Connection,
        *,
        concurrency: int = 64,
        waiting: int = 1024,
        drain_timeout: float = 10.0,
    ) -> None:
        """Prepare to serve.

        Args:
            hook: what to ask.
            connection: the bus; it stays open when the server has drained.
            concurrency: calls of the hook that run at once; plain functions have as many threads.
            waiting: requests that wait for a place.
            drain_timeout: seconds that `drain` gives the requests taken before.

        Raises:
            ConfigError: the hook's name or a number cannot mean anything.
        """
        if concurrency < 1 or waiting < 0 or drain_timeout < 0:
            raise ConfigError("concurrency should be at least 1, waiting and drain_timeout at least 0")
        self.hook = hook
        self._name = check_name(getattr(hook, "name", None))
        self._answers = Answers(self._name, connection)
        self._connection = connection
        self._concurrency = concurrency
        self._places_to_wait = waiting
        self._drain_timeout = drain_timeout
        self._decide = decider(hook, Threads(concurrency))
        self._requests: dict[tuple[str, str], Request] = {}
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._running: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._throttle = Throttle(LOG_INTERVAL)

    @property
    def served(self) -> Served:
        """What has been done so far; it goes on counting."""
        return self._answers.served

    async def start(self) -> None:
        """Begin to take requests; the server has the subscription when this returns.

        Raises:
            PermissionRefused: this identity may not serve the hook.
            BusUnavailable: the bus did not take the subscription.
        """
        if isinstance(self.hook, UsesBus):
            await self.hook.attach(self._connection)
        try:
            await self._subscribe()
        except BaseException:
            await self._detach()
            raise

    async def _subscribe(self) -> None:
        subject, group = subjects.before_filter(self._name), subjects.queue_group(self._name)
        self._subscription = await self._connection.subscribe_direct(subject, self._on_request, group)
        self._forget_bus = self._connection.on_disconnect(self._on_disconnect)
        try:
            await self._connection.barrier()
        except BaseException:
            self._forget_bus()
            await self._subscription.unsubscribe()
            raise

    async def drain(self) -> None:
        """Take nothing new, finish what was taken, answer what does not finish in time with an error.

        It takes `drain_timeout` seconds at most, and a few more where the bus does not answer either.
        """
        try:
            await self._leave()
            await self._wait_idle()
        finally:
            self._give_up()
            self._forget_bus()
        await self._end_tasks()
        await self._detach()
        await self._flush()

    async def _detach(self) -> None:
        if isinstance(self.hook, UsesBus):
            await self.hook.detach()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    # Taking.

    def _on_request(self, message: Msg) -> None:
        asking = self._caller(message)
        if asking is None:
            return
        request = Request(asking, message.data, digest(message.data), [message.reply])
        first = self._requests.get(request.key)
        if first is not None:
            self._join(first, message.reply)
        elif len(self._running) < self._concurrency:
            self._requests[request.key] = request
            self._run(request)
        elif len(self._waiting) < self._places_to_wait and self._waiting_bytes < MAX_WAITING_BYTES:
            self._requests[request.key] = request
            self._waiting.append(request)
            self._waiting_bytes += len(request.body)
        else:
            self.served.busy += 1
            self._fail(request, "the hook is busy: run more replicas", "busy")

    def _caller(self, message: Msg) -> Caller | None:
        """Return who asks; None for a request that would make this hook speak where it must not."""
        try:
            asking = caller(message.subject)
            if asking.may_be_answered_on(message.reply):
                return asking
            problem = "its reply subject is not the caller's"
        except InvalidMessage as error:
            problem = str(error)
        self.served.refused += 1
        if count := self._throttle.passes("refused"):
            about = {"subject": message.subject[:200], "reply": message.reply[:200], "problem": problem}
            say(log.warning, "request.refused", hook=self._name, count=count, **about)
        return None

    def _join(self, first: Request, reply: str) -> None:
        self.served.joined += 1
        if reply not in first.replies and len(first.replies) < MAX_REPLIES:
            first.replies.append(reply)

    def _run(self, request: Request) -> None:
        request.task = asyncio.get_running_loop().create_task(self._serve(request))
        self._running.add(request.task)
        request.task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        while self._waiting and len(self._running) < self._concurrency:
            request = self._waiting.popleft()
            self._waiting_bytes -= len(request.body)
            self._run(request)

    # Answering.

    async def _serve(self, request: Request) -> None:
        try:
            context = read_request(request.body, request.caller)
        except InvalidMessage as error:
            self._fail(request, f"the request cannot be read: {error}", "invalid_request")
            return
        request.deadline = context.deadline_ms / 1000
        left = request.deadline - time.time()
        if left < -GRACE:
            self.served.expired += 1
            self._close(request)
            return
        limit = min(left, MAX_TIMEOUT_MS / 1000) + GRACE
        timer = asyncio.get_running_loop().call_later(limit, self._expire, request, context)
        try:
            await self._decide_and_answer(request, context)
        finally:
            timer.cancel()

    async def _decide_and_answer(self, request: Request, context: ToolHookContext) -> None:
        try:
            decision = await self._decide(context)
        except FAILURES as error:
            if is_cancellation(error):
                raise
            self._fail(request, f"the hook raised {type(error).__name__}", "hook_error")
            # After the answer has left: a traceback may take half a second to draw.
            asyncio.get_running_loop().call_soon(partial(self._log, "hook.failed", context, exc_info=error))
        else:
            self._answer(request, decision)

    def _expire(self, request: Request, context: ToolHookContext) -> None:
        """Answer for a function that is too slow, whether or not it lets itself be cancelled."""
        self._log("hook.timed_out", context)
        self._fail(request, "the hook did not decide in time", "hook_timeout")
        if request.task is not None:
            request.task.cancel()

    def _log(self, event: str, context: ToolHookContext, exc_info: BaseException | None = None) -> None:
        about = {"tool": context.tool_name, "executor": context.executor_id, "call_id": context.call_id}
        say(log.error, event, hook=self._name, exc_info=exc_info, **about)

    def _fail(self, request: Request, reason: str, code: str) -> None:
        self._answer(request, Decision.error(reason, reason_code=code))

    def _answer(self, request: Request, decision: Decision) -> None:
        """Answer a request unless it is answered already."""
        self._close(request)
        self._answers.give(request, decision)

    def _close(self, request: Request) -> None:
        if self._requests.get(request.key) is request:
            del self._requests[request.key]
        if not self._requests:
            self._idle.set()

    def _on_disconnect(self) -> None:
        if self._requests:
            say(log.warning, "hook.bus_lost", hook=self._name, in_progress=len(self._requests))

    # Draining.

    async def _leave(self) -> None:
        try:
            await self._subscription.drain()
        except BusUnavailable as error:
            say(log.warning, "hook.drain_unconfirmed", hook=self._name, problem=str(error))

    async def _wait_idle(self) -> None:
        if self._requests:
            self._idle.clear()
        try:
            async with asyncio.timeout(self._drain_timeout):
                await self._idle.wait()
        except TimeoutError:
            say(log.warning, "hook.drain_timed_out", hook=self._name, unanswered=len(self._requests))

    def _give_up(self) -> None:
        """Answer what is left with an error, and end its tasks."""
        self._waiting.clear()
        for request in list(self._requests.values()):
            self._fail(request, "the hook is being stopped", "draining")
        for task in self._running:
            task.cancel()

    async def _end_tasks(self) -> None:
        if not self._running:
            return
        _, left = await asyncio.wait(self._running, timeout=CANCEL_TIMEOUT)
        if left:
            problem = "they do not let themselves be cancelled"
            say(log.error, "hook.abandoned", hook=self._name, calls=len(left), problem=problem)

    async def _flush(self) -> None:
        try:
            await self._connection.flush()
        except BusUnavailable as error:
            say(log.warning, "hook.drain_unconfirmed", hook=self._name, problem=str(error))
