"""The agent's side of hookbus: tools that run only when every hook lets them, and leave a record."""

from hookbus_executor.counters import HookCounters
from hookbus_executor.executor import Executor
from hookbus_executor.hooks import RegisteredHook
from hookbus_executor.result import Admission, ToolResult
from hookbus_executor.session import Session
from hookbus_executor.settings import ExecutorSettings
from hookbus_executor.tool import OnDelta, Tool
from hookbus_schemas import InvalidArguments

__all__ = [
    "Admission",
    "Executor",
    "ExecutorSettings",
    "HookCounters",
    "InvalidArguments",
    "OnDelta",
    "RegisteredHook",
    "Session",
    "Tool",
    "ToolResult",
]
