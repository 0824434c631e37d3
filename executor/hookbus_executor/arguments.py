"""Arguments are read once: what hooks judge is what the tool gets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from hookbus_schemas.arguments import InvalidArguments, JsonObject, parse_arguments


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
                values = parse_arguments(given)
                text = _dump(values)
            else:  # what comes of writing is what would be written anew
                text = _dump(given)
                values = parse_arguments(text)
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


# Made once: `json.dumps` would make a new one for every call.
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
