"""Whether a call stays within the tools and paths of a contract."""

from collections.abc import Mapping

from hookbus_schemas import ToolHookContext
from hookbus_schemas.contract import Contract
from hookbus_subscribers.commands import shown
from hookbus_subscribers.located import located, within

AFFECTING = frozenset(
    {"shell", "code_exec", "git", "process", "edit_file", "apply_patch"}
    | {"read_file", "write_file", "file_read", "file_write"}
)
"""Tools, in lower case, that affect files whatever their arguments."""

BOUNDLESS = frozenset({"shell", "code_exec"})
"""Tools, in lower case, whose paths nobody can tell, so that no list of paths bounds them."""


def outside_scope(contract: Contract, context: ToolHookContext, values: Mapping[str, object]) -> str:
    """Return why a call is outside, in words for the model; empty if it is not.

    Args:
        contract: the bounds.
        context: the call.
        values: its arguments.
    """
    capabilities = contract.scoped_capabilities
    if not any(capability.allowed_paths for capability in capabilities):
        return ""
    tool = context.tool_name
    paths = located(context, values)
    granted = [capability.allowed_paths for capability in capabilities if capability.tool_name == tool]
    if not granted:
        affects = tool.strip().lower() in AFFECTING or paths or context.command_arguments
        return f"contract {contract.id} does not grant {shown(tool)}" if affects else ""
    if () in granted:
        return ""
    if tool.strip().lower() in BOUNDLESS:
        return f"contract {contract.id} bounds {shown(tool)} to paths, and what it touches cannot be told"
    if not paths:
        return f"contract {contract.id} bounds {shown(tool)} to paths, and no path of the call can be told"
    allowed = [path for paths in granted for path in paths]
    for path in paths:
        if path.real is None or not any(within(path.real, root) for root in allowed):
            return f"path {shown(path.given)} is outside what contract {contract.id} grants {shown(tool)}"
    return ""
