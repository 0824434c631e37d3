"""What a hook is asked about: one call of one tool."""

from pydantic import BaseModel, ConfigDict, Field

from hookbus_schemas.message import Int64, Message, Name
from hookbus_schemas.stored_text import StoredText


class ResolvedPath(BaseModel):
    """One path of a call, with the place that it has on the executor's machine.

    Attributes:
        argument: the argument that holds it, with dots between the names on the way to it; for the target of a
            redirection the argument that holds the command line.
        given: the path as the model wrote it; it stands several times where it may mean several places.
        real: links followed first, then ``..``, as the kernel does; None where that is not possible.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    argument: str
    given: str
    real: str | None = None


class ToolHookContext(Message):
    """One call, as every hook sees it.

    Attributes:
        session_id: the agent's session that the call belongs to; empty, as the next three, where nobody says.
        channel_id: where the session takes place: a chat, a terminal, a queue.
        sender_id: whom the agent works for.
        correlation_id: ties the call to work outside the agent.
        tool_name: the tool, as registered with the executor.
        arguments_json: the JSON object that hooks judge and the tool then gets; empty where it is kept apart.
        arguments_stored: the arguments that were too large for the message: fetch them, or say no.
        is_streaming: the tool hands out its result in pieces.
        call_id: one call; the same in a request that is sent again, so a hook with side effects keys them by it.
        executor_id: who asks; equal to the last token of the subject, which permissions vouch for.
        agent_id: which agent of the executor's.
        parent_call_id: the call that started this sub-agent; empty for the agent itself.
        depth: how many sub-agents down; 0 is the agent itself.
        sent_at_ms: when the hooks were asked, in milliseconds since 1970 by the executor's clock.
        deadline_ms: by the same clock; later answers count for nothing.
        dry_run: nothing will run, so nothing is counted or spent.
        working_directory: where the tool's relative paths begin.
        home_directory: what ``~`` means to the tool.
        path_arguments: names of the arguments that hold paths; None where the tool does not declare them.
        command_arguments: names of the arguments that hold command lines for bash; None as before.
        read_only: the tool changes nothing; None where it does not declare that.
        resolved_paths: each path among the arguments; a hook runs elsewhere and cannot see the agent's disk.
    """

    session_id: str = ""
    channel_id: str = ""
    sender_id: str = ""
    correlation_id: str = ""
    tool_name: str
    arguments_json: str
    arguments_stored: StoredText | None = None
    is_streaming: bool = False
    call_id: str = Field(min_length=1)
    executor_id: Name
    agent_id: str = ""
    parent_call_id: str = ""
    depth: int = Field(default=0, ge=0, le=2**63 - 1)  # of two `ge`, JSON Schema would show the wider
    sent_at_ms: Int64
    deadline_ms: Int64
    dry_run: bool = False
    working_directory: str = ""
    home_directory: str = ""
    path_arguments: tuple[str, ...] | None = Field(default=None, strict=False)
    command_arguments: tuple[str, ...] | None = Field(default=None, strict=False)
    read_only: bool | None = None
    resolved_paths: tuple[ResolvedPath, ...] = Field(default=(), strict=False)
