"""Asking hooks: questions go out at once, answers are believed only after they are verified.

One subscription ``reply.<executor>.>`` serves all calls; what is awaited is a table of reply subjects. No task, future
or subscription is made for a question. Above it is `executor`, below it `poll`, which says when a call is decided.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from nats.aio.msg import Msg

from hookbus_broker import Connection
from hookbus_executor.breaker import PAUSE, Breaker
from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.poll import Poll, judge, stand_in
from hookbus_schemas import (
    BusUnavailable,
    Decision,
    InvalidMessage,
    ToolHookContext,
    Verdict,
    decode,
    digest,
    encode,
    subjects,
)
from hookbus_schemas.hook import Decide

HEDGE_AFTER = 1.0
"""Seconds after which a question goes out once more: queue groups pick replicas without regard to their health."""

MAX_RETIRED = 10_000
"""Reply subjects remembered after their question ended, to tell a late answer from one that nobody asked for."""

_log = structlog.get_logger()


@dataclass(slots=True)
class HookCounters:
    """What one hook came to since the executor started; each a number of calls."""

    allowed: int = 0
    denied: int = 0
    timed_out: int = 0
    unavailable: int = 0
    errors: int = 0
    failed_open: int = 0
    late: int = 0


@dataclass(slots=True, eq=False)
class _Question:
    """One hook asked about one call."""

    hook: RegisteredHook
    poll: Poll
    asked_at: float
    reply: str = ""
    subject: str = ""
    body: bytes = b""
    digest: str = ""
    timeout: float = 0.0
    hedged: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Retired:
    """A question that ended without the answer that may still come."""

    hook: str
    call_id: str
    deadline: float
    timed_out: bool


@dataclass(slots=True)
class _Round:
    """All questions of one call, and the timers that end them."""

    questions: list[_Question] = field(default_factory=list)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Asker:
    """Asks hooks on the bus and in this process, for one executor.

    Attributes:
        counters: by hook name.
        stray_answers: answers on a reply subject that nobody waits for, or made by the server itself.
    """

    def __init__(self, connection: Connection, executor_id: str) -> None:
        self.counters: defaultdict[str, HookCounters] = defaultdict(HookCounters)
        self.stray_answers = 0
        self._connection = connection
        self._executor = subjects.token(executor_id)
        self._awaited: dict[str, _Question] = {}
        self._retired: OrderedDict[str, _Retired] = OrderedDict()
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
        await self._connection.subscribe_direct(f"reply.{self._executor}.>", self._on_reply)
        self._undo.append(self._connection.on_disconnect(self._on_disconnect))
        self._undo.append(self._connection.on_publish_refused(self._on_publish_refused))
        await self._connection.barrier()

    async def close(self) -> None:
        """End every question in progress as unavailable."""
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
            await poll.decided
        except BaseException:
            self._end(asked)
            raise
        if poll.complete.done():
            self._end(asked)
            return
        self._retire([question for question in asked.questions if not poll.wants(question.hook)])
        poll.complete.add_done_callback(lambda _: self._end(asked))

    def _send(self, asked: _Round, poll: Poll, hooks: Sequence[RegisteredHook]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        bodies: dict[int, tuple[ToolHookContext, bytes, str]] = {}
        by_timeout: defaultdict[float, list[_Question]] = defaultdict(list)
        for hook in hooks:
            question = _Question(hook, poll, now, timeout=hook.registration.timeout_ms / 1000)
            if self._ends_at_once(question):
                continue
            asked.questions.append(question)
            by_timeout[question.timeout].append(question)
            if hook.registration.timeout_ms not in bodies:
                bodies[hook.registration.timeout_ms] = _body(poll.context, hook.registration.timeout_ms)
            context, question.body, question.digest = bodies[hook.registration.timeout_ms]
            if hook.decide is None:
                self._publish(question)
            else:
                self._ask_in_process(question, hook.decide, context)
        for timeout, questions in by_timeout.items():
            asked.timers.append(loop.call_later(timeout, self._expire, questions))
        if any(question.timeout > HEDGE_AFTER for question in asked.questions):
            asked.timers.append(loop.call_later(HEDGE_AFTER, self._hedge, asked.questions))

    def _ends_at_once(self, question: _Question) -> bool:
        hook = question.hook
        if hook.problem:
            self._settle(question, Verdict.ERROR, f"{hook.problem}; register it anew", "unreadable_registration")
            return True
        if not self._breakers[hook.name].asks(question.asked_at):
            reason = f"it timed out several times in a row and is tried again within {PAUSE:g} s"
            self._settle(question, Verdict.UNAVAILABLE, reason, "breaker_open")
            return True
        return False

    def _publish(self, question: _Question) -> None:
        group = question.hook.queue_group
        question.subject = f"tool.before.{group}.{self._executor}"
        question.reply = f"reply.{self._executor}.{group}.{subjects.new_reply_token()}"
        self._awaited[question.reply] = question
        try:
            self._connection.publish_nowait(question.subject, question.body, question.reply)
        except BusUnavailable as error:
            self._settle(question, Verdict.UNAVAILABLE, f"the bus cannot be reached: {error}", "bus_unavailable")

    def _ask_in_process(self, question: _Question, decide: Decide, context: ToolHookContext) -> None:
        task = asyncio.get_running_loop().create_task(self._decide(question, decide, context))
        question.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, question: _Question, decide: Decide, context: ToolHookContext) -> None:
        try:
            answer = await decide(context)
        except Exception as error:  # noqa: BLE001 - whatever a hook raises, its failure policy decides
            _log.warning("hook.failed", hook=question.hook.name, call_id=context.call_id, exc_info=True)
            self._settle(question, Verdict.ERROR, f"it raised {type(error).__name__}", "hook_error")
            return
        self._take(question, answer)

    def _on_reply(self, message: Msg) -> None:
        question = self._awaited.get(message.subject)
        if question is None:
            self._on_unexpected(message)
        elif message.headers and _made_by_server(message.headers):
            self._on_status(question, message)
        else:
            self._on_answer(question, message.data)

    def _on_status(self, question: _Question, message: Msg) -> None:
        if not message.data and (message.headers or {}).get("Status") == "503":
            # After the question went out twice, one without a taker says nothing of the one that may be at work.
            if not question.hedged:
                self._settle(question, Verdict.UNAVAILABLE, "no replica of it is running", "no_responders")
            return
        self.stray_answers += 1
        _log.warning("answer.refused", hook=question.hook.name, why="made by the server, not by the hook")

    def _on_answer(self, question: _Question, body: bytes) -> None:
        try:
            answer = decode(Decision, body)
        except InvalidMessage as error:
            self._settle(question, Verdict.ERROR, f"its answer is no decision: {error}", "invalid_answer")
            return
        if answer.request_digest != question.digest:
            self._settle(question, Verdict.ERROR, "its answer is for another request", "invalid_answer")
            return
        self._take(question, answer)

    def _on_unexpected(self, message: Msg) -> None:
        retired = self._retired.pop(message.subject, None)
        if retired is None:
            self.stray_answers += 1
            _log.warning("answer.refused", subject=message.subject[:200], why="nobody waits for it")
        elif retired.timed_out and not (message.headers and _made_by_server(message.headers)):
            self._on_late(retired, message.data)

    def _on_late(self, retired: _Retired, body: bytes) -> None:
        self.counters[retired.hook].late += 1
        try:
            decision = decode(Decision, body).decision.value
        except InvalidMessage:
            decision = Verdict.ERROR.value
        late = asyncio.get_running_loop().time() - retired.deadline
        _log.warning(
            "hook.answered_late",
            hook=retired.hook,
            call_id=retired.call_id,
            decision=decision,
            late_ms=round(late * 1000),
        )

    def _take(self, question: _Question, answer: Decision) -> None:
        if self._close_question(question):
            self._breakers[question.hook.name].answered()
            decision = judge(question.hook, answer, asyncio.get_running_loop().time() - question.asked_at)
            self._count(question, decision.decision, failed_open=decision.failed_open)
            question.poll.record(question.hook, decision)

    def _settle(self, question: _Question, verdict: Verdict, reason: str, code: str) -> None:
        if not self._close_question(question):
            return
        hook = question.hook
        now = asyncio.get_running_loop().time()
        breaker = self._breakers[hook.name]
        if verdict is Verdict.TIMEOUT:
            if breaker.timed_out(now):
                _log.warning("hook.breaker_opened", hook=hook.name, pause_s=PAUSE)
        elif code in ("bus_unavailable", "closing"):
            breaker.abandoned()
        elif code != "breaker_open":
            breaker.answered()
        decision = stand_in(hook, verdict, reason, code, now - question.asked_at)
        self._count(question, verdict, failed_open=decision.failed_open)
        question.poll.record(hook, decision)

    def _close_question(self, question: _Question) -> bool:
        """Take the question out of the table; tell whether its poll still wanted a decision."""
        self._awaited.pop(question.reply, None)
        return question.poll.wants(question.hook)

    def _count(self, question: _Question, verdict: Verdict, *, failed_open: bool) -> None:
        counters = self.counters[question.hook.name]
        setattr(counters, _COUNTER[verdict], getattr(counters, _COUNTER[verdict]) + 1)
        if question.hedged:
            self._remember(question, timed_out=verdict is Verdict.TIMEOUT)
        if failed_open:
            counters.failed_open += 1
            _log.warning(
                "hook.failed_open",
                hook=question.hook.name,
                call_id=question.poll.context.call_id,
                tool=question.poll.context.tool_name,
                decision=verdict.value,
                enforcement=question.hook.registration.enforcement.value,
            )

    def _expire(self, questions: list[_Question]) -> None:
        for question in questions:
            if question.poll.wants(question.hook):
                _log.warning("hook.timed_out", hook=question.hook.name, call_id=question.poll.context.call_id)
                question.hedged = True  # so that a late answer is known for what it is
                reason = f"it did not answer within {question.timeout:g} s"
                self._settle(question, Verdict.TIMEOUT, reason, "timed_out")
                if question.task is not None:
                    question.task.cancel()

    def _hedge(self, questions: list[_Question]) -> None:
        for question in questions:
            if question.reply in self._awaited and question.timeout > HEDGE_AFTER:
                question.hedged = True
                try:
                    self._connection.publish_nowait(question.subject, question.body, question.reply)
                except BusUnavailable:
                    return  # the disconnection ends these questions

    def _on_disconnect(self) -> None:
        self._all_unavailable("the connection to the bus was lost", "bus_unavailable")

    def _all_unavailable(self, reason: str, code: str) -> None:
        for question in tuple(self._awaited.values()):
            self._settle(question, Verdict.UNAVAILABLE, reason, code)

    def _on_publish_refused(self, subject: str) -> None:
        for question in tuple(self._awaited.values()):
            if question.subject.lower() == subject.lower():
                reason = f"this executor's credential may not ask it (publish on {question.subject})"
                self._settle(question, Verdict.UNAVAILABLE, reason, "not_permitted")

    def _retire(self, questions: Sequence[_Question]) -> None:
        """End questions whose answers nobody needs any more."""
        for question in questions:
            if self._awaited.pop(question.reply, None) is not None:
                self._breakers[question.hook.name].abandoned()
                self._remember(question, timed_out=False)
            if question.task is not None and not question.task.done():
                self._breakers[question.hook.name].abandoned()
                question.task.cancel()

    def _remember(self, question: _Question, *, timed_out: bool) -> None:
        if question.reply:
            deadline = question.asked_at + question.timeout
            call_id = question.poll.context.call_id
            self._retired[question.reply] = _Retired(question.hook.name, call_id, deadline, timed_out)
            if len(self._retired) > MAX_RETIRED:
                self._retired.popitem(last=False)

    def _end(self, asked: _Round) -> None:
        self._retire(asked.questions)
        for timer in asked.timers:
            timer.cancel()


_COUNTER = {
    Verdict.ALLOW: "allowed",
    Verdict.DENY: "denied",
    Verdict.TIMEOUT: "timed_out",
    Verdict.UNAVAILABLE: "unavailable",
    Verdict.ERROR: "errors",
}


def _made_by_server(headers: dict[str, str]) -> bool:
    """Tell whether the server wrote this message itself: it can be made to, with other bytes, on any subject."""
    return any(name.lower().startswith(("nats-", "status")) for name in headers)


def _body(context: ToolHookContext, timeout_ms: int) -> tuple[ToolHookContext, bytes, str]:
    timed = context.model_copy(update={"deadline_ms": context.sent_at_ms + timeout_ms})
    body = encode(timed)
    return timed, body, digest(body)
