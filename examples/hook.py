"""A hook: tables are never dropped."""

from hookbus_subscribers import Decision, ToolHookContext, hook


@hook("no-drops", tools=["db_*"])
async def no_drops(context: ToolHookContext) -> Decision:
    """Deny statements that drop something."""
    if "drop" in context.arguments_json.lower():
        return Decision.deny("tables are never dropped here", reason_code="drop")
    return Decision.allow()
