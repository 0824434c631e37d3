"""What the models' docstrings say of their fields: the ``Attributes`` sections are the one source of descriptions."""

import inspect
import re

from pydantic import BaseModel

_ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def summary(model: type) -> str:
    """Return a docstring without its ``Attributes`` section."""
    return _docstring(model).partition("Attributes:")[0].strip()


def fields(model: type[BaseModel]) -> dict[str, str]:
    """Return what is said of each field, by the class itself or by the one that it inherits the field from.

    Raises:
        LookupError: a field of the contract is described nowhere.
    """
    said: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            said |= _attributes(_docstring(owner))
    missing = set(model.model_fields) - set(said)
    if missing:
        raise LookupError(f"{model.__name__}: no description of {', '.join(sorted(missing))}")
    return {name: said[name] for name in model.model_fields}


def _docstring(owner: type) -> str:
    return inspect.cleandoc(owner.__dict__.get("__doc__") or "")


def _attributes(docstring: str) -> dict[str, str]:
    said: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.partition("Attributes:")[2].splitlines():
        if entry := _ENTRY.fullmatch(line):
            names = entry[1].split(", ")
            said |= dict.fromkeys(names, entry[2])
        elif line.strip():
            said |= {name: f"{said[name]} {line.strip()}" for name in names}
    return said
