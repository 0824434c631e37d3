"""Asking hooks: requests go out at once, answers are believed only after they are verified.

One subscription ``reply.<executor>.>`` serves all calls; what is awaited is a table of reply subjects. No task, future
or subscription is made for a request. Above it is `executor`, below it `poll`, which says when a call is decided.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_broker.log import say
from hookbus_executor.answers import as_sent, made_by_server, read_answer, says_another_may_answer, says_no_responders
from hookbus_executor.breaker import PAUSE, Breaker
from hookbus_executor.counters import Counters
from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.poll import Poll, judge, stand_in
from hookbus_executor.request import Body, Ended, Request, Retired, body_of, headers_of
from hookbus_schemas import (
    BusUnavailable,
    Decision,
    Encoding,
    HookDecision,
    InvalidMessage,
    ToolHookContext,
    Verdict,
    decode,
    encoding_of,
    subjects,
)
from hookbus_schemas.hook import Decide
from hookbus_schemas.isolation import FAILURES, is_cancellation

TICK = 0.002
"""Seconds by which a timer may come early; uvloop's clock counts in milliseconds."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Round:
    """All requests of one call, and the timer that looks after them."""

    requests: list[Request] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Asker:
    """Asks hooks on the bus and in this process, for one executor.

    Attributes:
        counters: by hook name.
        stray_answers: answers on a reply subject that nobody waits for, or made by the server itself.
    """

    def __init__(self, connection: Connection, executor_id: str) -> None:
        self.counters = Counters()
        self.stray_answers = 0
        self._connection = connection
        self._executor = executor_id
        self._replies = subjects.reply_filter(executor_id)
        self._awaited: dict[str, Request] = {}
        self._retired = Retired()
        self._breakers: defaultdict[str, Breaker] = defaultdict(Breaker)
        self._tasks: set[asyncio.Task[None]] = set()
        self._undo: list[Callable[[], None]] = []

    @property
    def awaited(self) -> int:
        """How many answers from the bus are awaited now."""
        return len(self._awaited)

    async def start(self) -> None:
        """Begin to listen for answers.

        Raises:
            BusUnavailable, PermissionRefused: the subscription is not in place.
        """
        await self._connection.subscribe_direct(self._replies, self._on_reply)
        self._undo.append(self._connection.on_disconnect(self._on_disconnect))
        self._undo.append(self._connection.on_publish_refused(self._on_publish_refused))
        await self._connection.barrier()

    async def close(self) -> None:
        """End every request in progress as unavailable."""
        for undo in self._undo:
            undo()
        self._all_unavailable("the executor is closing", "closing")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, poll: Poll, hooks: Sequence[RegisteredHook]) -> None:
        """Ask the hooks and return when the poll is decided; shadow hooks may still bring theirs to `poll.complete`.

        Raises:
            PayloadTooLarge, InvalidMessage: the call cannot be put to the hooks; none of their answers counts.
        """
        asked = _Round()
        try:
            self._send(asked, poll, hooks)
            if poll.decided.done():
                await asyncio.sleep(0)  # who tries again and again must leave the bus a turn to come back
            await poll.decided
        except BaseException:
            self._end(asked)
            raise
        if poll.is_complete:
            self._end(asked)
            return
        self._retire([request for request in asked.requests if not poll.wants(request.hook)])
        poll.complete.add_done_callback(lambda _: self._end(asked))

    # Requests go out.

    def _send(self, asked: _Round, poll: Poll, hooks: Sequence[RegisteredHook]) -> None:
        now = time.monotonic()
        bodies: dict[tuple[int, Encoding], Body] = {}
        for hook in hooks:
            timeout_ms = hook.registration.timeout_ms
            request = Request(hook, poll, now, timeout_ms / 1000)
            if self._ends_at_once(request):
                continue
            asked.requests.append(request)
            form = timeout_ms, hook.registration.encoding
            if form not in bodies:
                bodies[form] = body_of(poll.context, *form)
            context, body, body_digest = bodies[form]
            if hook.decide is None:
                request.body, request.digest = body, body_digest
                request.headers = headers_of(form[1], body_digest)
                self._publish(request)
            else:
                self._ask_in_process(request, hook.decide, context)
        self._arm(asked)

    def _arm(self, asked: _Round) -> None:
        """Look again when the next of these requests is to go out once more, or to end."""
        due = min((request.due for request in asked.requests if request.is_open), default=None)
        if due is not None:
            asked.timer = asyncio.get_running_loop().call_later(due - time.monotonic(), self._look_after, asked)

    def _look_after(self, asked: _Round) -> None:
        soon = time.monotonic() + TICK
        for request in asked.requests:
            if request.is_open and request.due <= soon:
                if request.ends_at <= soon:
                    self._expire(request)
                else:
                    self._hedge(request)
        self._arm(asked)

    def _ends_at_once(self, request: Request) -> bool:
        hook = request.hook
        if hook.problem:
            self._settle(request, Verdict.ERROR, hook.problem, "unreadable_registration")
            return True
        if not self._breakers[hook.name].asks(request.asked_at):
            reason = f"it timed out several times in a row and is tried again within {PAUSE:g} s"
            self._settle(request, Verdict.UNAVAILABLE, reason, "breaker_open")
            return True
        return False

    def _publish(self, request: Request) -> None:
        hook = request.hook.name
        request.subject = subjects.before(hook, self._executor)
        request.reply = subjects.reply_prefix(self._executor, hook) + subjects.new_reply_token()
        self._awaited[request.reply] = request
        try:
            self._connection.publish_nowait(request.subject, request.body, request.reply, request.headers)
        except BusUnavailable as error:
            self._settle(request, Verdict.UNAVAILABLE, f"the bus cannot be reached: {error}", "bus_unavailable")

    def _ask_in_process(self, request: Request, decide: Decide, context: ToolHookContext) -> None:
        task = asyncio.get_running_loop().create_task(self._decide(request, decide, context))
        request.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, request: Request, decide: Decide, context: ToolHookContext) -> None:
        try:
            answer = as_sent(await decide(context))
        except FAILURES as error:
            if is_cancellation(error):
                raise
            say(_log.warning, "hook.failed", hook=request.hook.name, call_id=context.call_id, exc_info=True)
            self._settle(request, Verdict.ERROR, f"it raised {type(error).__name__}", "hook_error")
            return
        self._take(request, answer)

    def _hedge(self, request: Request) -> None:
        request.hedged = True
        if request.reply in self._awaited:
            with contextlib.suppress(BusUnavailable):  # the disconnection ends the request
                self._connection.publish_nowait(request.subject, request.body, request.reply, request.headers)

    # Answers come in.

    def _on_reply(self, message: Msg) -> None:
        request = self._awaited.get(message.subject)
        if request is None:
            self._on_unexpected(message)
        elif made_by_server(message):
            self._on_status(request, message)
        else:
            self._on_answer(request, message.data)

    def _on_status(self, request: Request, message: Msg) -> None:
        if not says_no_responders(message):
            self._refuse(message, "made by the server, not by the hook")
        elif not request.hedged:
            self._settle(request, Verdict.UNAVAILABLE, "no replica of it is running", "no_responders")
        # Of a request that went out twice, one without a taker says nothing of the other, which may be at work.

    def _on_answer(self, request: Request, body: bytes) -> None:
        try:
            answer = read_answer(body, request.digest, request.hook.registration.encoding)
        except InvalidMessage as error:
            self._settle(request, Verdict.ERROR, str(error), "invalid_answer")
            return
        if not (request.hedged and says_another_may_answer(answer)):
            self._take(request, answer)

    def _on_unexpected(self, message: Msg) -> None:
        ended = self._retired.take(message.subject)
        if ended is None:
            self._refuse(message, "nobody waits for it")
        elif ended.timed_out and not made_by_server(message):
            self._on_late(ended, message.data)

    def _refuse(self, message: Msg, why: str) -> None:
        self.stray_answers += 1
        say(_log.warning, "answer.refused", subject=message.subject[:200], why=why)

    def _on_late(self, ended: Ended, body: bytes) -> None:
        self.counters[ended.hook].late += 1
        try:
            decision: Verdict = decode(Decision, body, encoding_of(body)).decision
        except InvalidMessage:
            decision = Verdict.ERROR
        late_ms = round((time.monotonic() - ended.deadline) * 1000)
        say(
            _log.warning,
            "hook.answered_late",
            hook=ended.hook,
            call_id=ended.call_id,
            decision=decision.value,
            late_ms=late_ms,
        )

    # Requests end.

    def _take(self, request: Request, answer: Decision) -> None:
        """End a request with the hook's own answer."""
        elapsed = time.monotonic() - request.asked_at
        self._breakers[request.hook.name].answered()
        self._record(request, judge(request.hook, answer, elapsed))

    def _settle(self, request: Request, verdict: Verdict, reason: str, code: str) -> None:
        """End a request with what stands in for an answer."""
        now = time.monotonic()
        breaker = self._breakers[request.hook.name]
        if verdict is Verdict.TIMEOUT:
            if breaker.timed_out(now):
                say(_log.warning, "hook.breaker_opened", hook=request.hook.name, pause_s=PAUSE)
        elif code in ("bus_unavailable", "closing"):
            breaker.abandoned()
        elif code != "breaker_open":
            breaker.answered()
        self._record(request, stand_in(request.hook, verdict, reason, code, now - request.asked_at))

    def _record(self, request: Request, decision: HookDecision) -> None:
        self._awaited.pop(request.reply, None)
        if not request.poll.wants(request.hook):
            return
        timed_out = decision.decision is Verdict.TIMEOUT
        if request.hedged or timed_out:
            self._retired.add(request, timed_out=timed_out)
        self.counters[decision.hook].count(decision)
        if decision.failed_open:
            say(
                _log.warning,
                "hook.failed_open",
                hook=decision.hook,
                call_id=request.poll.context.call_id,
                tool=request.poll.context.tool_name,
                decision=decision.decision.value,
                reason=decision.reason,
                enforcement=decision.enforcement.value,
            )
        request.poll.record(request.hook, decision)

    def _expire(self, request: Request) -> None:
        say(_log.warning, "hook.timed_out", hook=request.hook.name, call_id=request.poll.context.call_id)
        self._settle(request, Verdict.TIMEOUT, f"it did not answer within {request.timeout:g} s", "timed_out")
        if request.task is not None:
            request.task.cancel()

    def _on_disconnect(self) -> None:
        self._all_unavailable("the connection to the bus was lost", "bus_unavailable")

    def _all_unavailable(self, reason: str, code: str) -> None:
        for request in tuple(self._awaited.values()):
            self._settle(request, Verdict.UNAVAILABLE, reason, code)

    def _on_publish_refused(self, subject: str) -> None:
        for request in tuple(self._awaited.values()):
            if request.subject.lower() == subject.lower():
                reason = f"this executor's credential may not ask it (publish on {request.subject})"
                self._settle(request, Verdict.UNAVAILABLE, reason, "not_permitted")

    def _retire(self, requests: Sequence[Request]) -> None:
        """End requests whose answers nobody needs any more."""
        for request in requests:
            if self._awaited.pop(request.reply, None) is not None:
                self._breakers[request.hook.name].abandoned()
                self._retired.add(request, timed_out=False)
            elif request.task is not None and not request.task.done():
                self._breakers[request.hook.name].abandoned()
                request.task.cancel()

    def _end(self, asked: _Round) -> None:
        self._retire(asked.requests)
        if asked.timer is not None:
            asked.timer.cancel()
