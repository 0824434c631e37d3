"""Bodies as msgpack maps, and the digest by which an answer names its request.

msgpack: https://github.com/msgpack/msgpack/blob/master/spec.md; text is UTF-8 ``str``, never ``bin``. A body in JSON
says what a body in msgpack can, and nothing else: it is read and written by way of msgpack.
"""

import json
from hashlib import sha256
from typing import TypeVar

import msgpack
from pydantic import BaseModel, TypeAdapter, ValidationError

from hookbus_schemas.decision import Decision
from hookbus_schemas.errors import InvalidMessage
from hookbus_schemas.event import ToolAfterEvent, ToolDeniedEvent, ToolEvent
from hookbus_schemas.message import Message
from hookbus_schemas.registration import Encoding
from hookbus_schemas.written import json_fields

_MAX_PROBLEM = 200
"""Characters that are told of what another wrote."""

MessageT = TypeVar("MessageT", bound=Message)

_EVENT: TypeAdapter[ToolAfterEvent | ToolDeniedEvent] = TypeAdapter(ToolEvent)


def encode(message: Message, encoding: Encoding = Encoding.MSGPACK) -> bytes:
    """Return the body of a message, every field of it.

    Raises:
        InvalidMessage: some text in it cannot be written in UTF-8, or a value not in this encoding.
    """
    try:
        body = msgpack.packb(vars(message), default=_fields)
        return body if encoding is Encoding.MSGPACK else _as_json(body)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise InvalidMessage(f"{type(message).__name__} cannot be encoded: {error}") from error


def decode(kind: type[MessageT], body: bytes, encoding: Encoding = Encoding.MSGPACK) -> MessageT:
    """Read a body as a message of this kind.

    Raises:
        InvalidMessage: it is no map in this encoding, names a key twice, is too deep, or does not fit; the message
            names the first field.
    """
    fields = _unpack(kind.__name__, body if encoding is Encoding.MSGPACK else _from_json(kind.__name__, body))
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise InvalidMessage(_problem(kind.__name__, error)) from error


def decode_event(body: bytes) -> ToolAfterEvent | ToolDeniedEvent:
    """Read a body as the event that its `type` says.

    Raises:
        InvalidMessage: as for `decode`.
    """
    fields = _unpack("event", body)
    try:
        return _EVENT.validate_python(fields)
    except ValidationError as error:
        raise InvalidMessage(_problem("event", error)) from error


def encode_plain_allow(request_digest: str) -> bytes:
    """Return what `encode` makes of an allow that says nothing else, at a tenth of the cost: it is most answers."""
    return _ALLOW_HEAD + request_digest.encode() + _ALLOW_TAIL


def encoding_of(body: bytes) -> Encoding:
    """Tell in which encoding a body is: what begins like a JSON object can be no map in msgpack."""
    return Encoding.JSON if body[:1] in _JSON_BEGINS else Encoding.MSGPACK


def digest(body: bytes) -> str:
    """Return the SHA-256 of a request's body, in lower-case hexadecimal."""
    return sha256(body).hexdigest()


def _as_json(body: bytes) -> bytes:
    """Return the JSON of a msgpack map, in ASCII: a person's terminal shows it, and nothing in it steers that."""
    return json.dumps(msgpack.unpackb(body), allow_nan=False, separators=(",", ":")).encode()


def _from_json(what: str, body: bytes) -> bytes:
    """Return a JSON object as the msgpack map that says the same: one reader, one set of rules."""
    try:
        return msgpack.packb(json_fields(body))
    except (ValueError, OverflowError, RecursionError) as error:
        problem = str(error)[:_MAX_PROBLEM] or type(error).__name__
        raise InvalidMessage(f"{what} of {len(body)} bytes is not JSON: {problem}") from error


def _fields(part: object) -> dict[str, object]:
    if isinstance(part, BaseModel):
        return vars(part)
    raise TypeError(f"{type(part).__name__} is nothing that msgpack has")


def _unpack(what: str, body: bytes) -> dict[str, object]:
    try:
        fields = msgpack.unpackb(body, object_pairs_hook=_once)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        problem = str(error) or type(error).__name__
        raise InvalidMessage(f"{what} of {len(body)} bytes is not msgpack: {problem}") from error
    if not isinstance(fields, dict):
        raise InvalidMessage(f"{what} is a msgpack {type(fields).__name__}, not a map")
    return fields


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a key that comes twice: of two readers one would take the first and one the last."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key comes twice")
    return fields


def _problem(what: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or what
    return f"{what} does not fit the contract: {where[:_MAX_PROBLEM]}: {first['msg'][:_MAX_PROBLEM]}"


_JSON_BEGINS = (b"{", b" ", b"\t", b"\n", b"\r")
_NO_DIGEST = "0" * 64
_ALLOW_HEAD, _ALLOW_TAIL = encode(Decision.allow(request_digest=_NO_DIGEST)).split(_NO_DIGEST.encode())
