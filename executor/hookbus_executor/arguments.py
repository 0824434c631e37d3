"""Arguments are read once: what hooks judge is what the tool gets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from hookbus_schemas import HookbusError

JsonObject = dict[str, object]


class InvalidArguments(HookbusError, ValueError):
    """Arguments that are no JSON object, or do not fit the tool; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A JSON object as the text that hooks judge and as the values that parse from that text."""

    json: str
    values: JsonObject

    @classmethod
    def read(cls, given: str | Mapping[str, object]) -> "Arguments":
        """Read what a model or its agent gave.

        The text is written anew from what was read, since JSON leaves room (duplicate keys, ``NaN``, ``1e999``, lone
        surrogates) in which a hook in another language could see something else than the tool.

        Raises:
            InvalidArguments: it is no JSON object, or one that two readers could read in two ways.
        """
        try:
            if isinstance(given, str):
                values = _parse(given)
                text = _dump(values)
            else:  # what comes of writing is what would be written anew
                text = _dump(given)
                values = _parse(text)
            text.encode()
        except InvalidArguments:
            raise
        except UnicodeEncodeError as error:
            raise InvalidArguments("arguments hold half of a surrogate pair, which is no text") from error
        except RecursionError as error:
            raise InvalidArguments("arguments are nested too deeply") from error
        except (ValueError, TypeError) as error:
            raise InvalidArguments(f"arguments are not valid JSON: {error}") from error
        return cls(text, values)


def _parse(text: str) -> JsonObject:
    values = _decoder.decode(text)
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


# Made once: `json.dumps` and `json.loads` would make new ones for every call.
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)
