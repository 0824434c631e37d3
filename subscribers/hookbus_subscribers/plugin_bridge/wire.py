"""Lines of JSON-RPC 2.0, as the bridge speaks it: pure functions, no process and no clock. Above it is `channel`."""

import json
from dataclasses import dataclass
from typing import TypeAlias

from hookbus_schemas import InvalidMessage


@dataclass(frozen=True, slots=True)
class Response:
    """What the plugin's process answered to the request of this id: a result, or the words of an error."""

    id: int
    result: object = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """What the plugin's process said unasked."""

    method: str
    params: object


Said: TypeAlias = Response | Notice


def request_line(number: int, method: str, params: object) -> bytes:
    """Return a request that is to be answered."""
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification_line(method: str, params: object) -> bytes:
    """Return a notification: JSON-RPC has no answer to it."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def read_line(line: bytes) -> Said:
    """Read what the plugin's process wrote.

    Raises:
        InvalidMessage: it is neither a response to a request of ours nor a notification.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidMessage("no JSON") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise InvalidMessage("no message of JSON-RPC 2.0")
    match message:
        case {"id": int(number), "result": result}:
            return Response(number, result)
        case {"id": int(number), "error": {"message": str(words)}}:
            return Response(number, error=words)
        case {"method": str(method)} if "id" not in message:
            return Notice(method, message.get("params"))
    raise InvalidMessage("neither a response nor a notification")
