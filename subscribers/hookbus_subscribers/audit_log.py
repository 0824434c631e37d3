"""The built-in hook that writes a line for each call: who asked for what, and how it ended. Lengths, never contents."""

import structlog

from hookbus_schemas import ToolHookContext, ToolHookWithContext
from hookbus_schemas.times import to_ms

log = structlog.get_logger()


class AuditLog(ToolHookWithContext):
    """Logs each call before and after it ran, and never denies. Lengths are in characters."""

    name = "AuditLog"

    async def before_execute(self, context: ToolHookContext) -> bool:
        """Log who is about to run which tool."""
        log.info(
            "tool_call.requested",
            **_about(context),
            arguments_length=len(context.arguments_json),
            dry_run=context.dry_run,
        )
        return True

    async def after_execute(self, context: ToolHookContext, result: str, duration: float, failed: bool) -> None:
        """Log how the call ended: as a warning if it failed."""
        write = log.warning if failed else log.info
        event = "tool_call.failed" if failed else "tool_call.completed"
        write(event, **_about(context), duration_ms=to_ms(duration), result_length=len(result))


def _about(context: ToolHookContext) -> dict[str, str]:
    return {
        "tool": context.tool_name,
        "session": context.session_id,
        "channel": context.channel_id,
        "sender": context.sender_id,
        "call_id": context.call_id,
    }
