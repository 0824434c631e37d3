"""The agent of the demo: it calls tools, shows how each call ended, and checks that it ended as it should."""

from collections.abc import Callable
from dataclasses import dataclass

from hookbus_cli.demo.view import Row, Scene
from hookbus_executor import Executor, Session, ToolResult
from hookbus_schemas import Outcome


class Checks:
    """Statements that must hold.

    Attributes:
        problems: those that did not.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def that(self, holds: object, otherwise: str) -> None:
        """Note a problem unless it holds."""
        if not holds:
            self.problems.append(otherwise)


@dataclass(frozen=True, slots=True)
class Call:
    """A call, and how it must end.

    Attributes:
        tool, arguments: what is called.
        outcome: how it must end.
        denied_by: who must have denied it.
        says: what the text for the model must hold.
    """

    tool: str
    arguments: dict[str, object]
    outcome: Outcome = Outcome.COMPLETED
    denied_by: str = ""
    says: str = ""


def denied(tool: str, by: str, says: str, **arguments: object) -> Call:
    """Return a call that must be denied."""
    return Call(tool, arguments, Outcome.DENIED, by, says)


def allowed(tool: str, says: str = "", **arguments: object) -> Call:
    """Return a call that must complete."""
    return Call(tool, arguments, says=says)


class Agent:
    """Makes the calls of one session.

    Attributes:
        seen: every call with its result, in the order in which they began.
    """

    def __init__(self, executor: Executor, checks: Checks) -> None:
        self._executor = executor
        self._checks = checks
        self._session = Session(id="demo", sender_id="you", agent_id="demo-agent")
        self.seen: list[Row] = []

    async def call(self, scene: Scene, call: Call, on_delta: Callable[[str], None] | None = None) -> ToolResult:
        """Make a call and show it."""
        row = Row(len(self.seen) + 1, call.tool, call.arguments)
        self.seen.append(row)
        scene.add(row)
        row.result = await self._executor.execute(call.tool, call.arguments, session=self._session, on_delta=on_delta)
        scene.ended(row)
        self._check(row.number, call, row.result)
        return row.result

    def _check(self, number: int, call: Call, result: ToolResult) -> None:
        found = (result.outcome, result.denied_by)
        wanted = f"{call.outcome.value} {call.denied_by}".strip()
        self._checks.that(
            found == (call.outcome, call.denied_by),
            f"call {number} ({call.tool}) should be {wanted}, and was {result.outcome.value}: {result.text[:200]}",
        )
        self._checks.that(
            call.says in result.text, f"call {number} ({call.tool}) should say {call.says!r}, not {result.text[:200]!r}"
        )
