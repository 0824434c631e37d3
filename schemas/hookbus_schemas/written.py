"""JSON that a person writes: registrations, contracts, and the bodies of hooks that speak JSON."""

import json

from pydantic import ValidationError

_MAX_SHOWN = 80
"""Characters that are told of a field's name."""


def json_fields(body: bytes) -> dict[str, object]:
    """Return the fields of a JSON object.

    Raises:
        ValueError, RecursionError: it is none, or has a field twice.
    """
    fields = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_refuse)
    if not isinstance(fields, dict):
        raise ValueError("it must be a JSON object")  # noqa: TRY004 - the caller takes a ValueError
    return fields


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"{shown_name(key)} is given twice")
        fields[key] = value
    return fields


def shown_name(name: str) -> str:
    """Return a name that somebody wrote so that a line of a log can take it."""
    return name if name.isidentifier() and len(name) <= _MAX_SHOWN else repr(name[:_MAX_SHOWN])


def first_problem(error: Exception) -> str:
    """Return what is wrong, with the field in front if it is known."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
