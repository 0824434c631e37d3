"""Arguments of a call: one JSON object, which every reader reads in the same way or refuses."""

import json
from typing import NoReturn

from hookbus_schemas.errors import HookbusError

JsonObject = dict[str, object]


class InvalidArguments(HookbusError, ValueError):
    """Arguments that are no JSON object, or do not fit the tool; the message is for the model."""


def parse_arguments(text: str) -> JsonObject:
    """Return what the text says.

    Raises:
        InvalidArguments: it is no JSON object, one that two readers could read in two ways, or one nested too deeply.
    """
    try:
        values = _decoder.decode(text)
    except RecursionError as error:
        raise InvalidArguments("arguments are nested too deeply") from error
    except ValueError as error:
        raise InvalidArguments(f"arguments are not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidArguments(f"arguments must be a JSON object, not {_KINDS.get(type(values), 'null')}")
    return values


_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return values


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Made once: `json.loads` would make a new one for every call.
_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
