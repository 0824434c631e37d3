"""How the command logs: for people on a terminal, JSON lines otherwise; on standard error, never among results."""

import logging
import sys

import structlog
from structlog.typing import Processor


def configure(level: int) -> None:
    """Set up logging for this process.

    Args:
        level: of the standard library's `logging`; what is below it is not logged.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not sys.stderr.isatty()),
    ]
    rendering: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        rendering = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    logging.getLogger("nats").addHandler(logging.NullHandler())  # its errors reach us by other ways
    logging.getLogger("nats").propagate = False
