"""What users' functions may raise without ending what called them. Hooks, handlers and tools are such functions."""

import asyncio

FAILURES = (Exception, SystemExit, asyncio.CancelledError)
"""What counts as a failure: also ``sys.exit`` in a function, or its look at a future that was cancelled."""


def is_cancellation(error: BaseException) -> bool:
    """Tell whether the current task itself is being cancelled, so that the error must go on."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
