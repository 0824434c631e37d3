"""The models as JSON Schema 2020-12, described by their docstrings."""

import inspect
import re
from typing import Any

from pydantic import BaseModel

from hookbus_schemas import Decision, HookDecision, HookRegistration, ToolAfterEvent, ToolDeniedEvent, ToolHookContext
from hookbus_schemas.context import ResolvedPath

MODELS: dict[str, type[BaseModel]] = {
    "tool_hook_context": ToolHookContext,
    "decision": Decision,
    "tool_after_event": ToolAfterEvent,
    "tool_denied_event": ToolDeniedEvent,
    "hook_registration": HookRegistration,
}
"""File names and what is in them."""

_INNER = {model.__name__: model for model in (ToolHookContext, ResolvedPath, HookDecision)}
_SHARED = {
    "v": "Version of the contract; left out, it is 1.",
    "type": "Which event this is.",
    "outcome": "How the call ended.",
}
_ATTRIBUTE = re.compile(r"^    ([a-z_, ]+): (.+)$")


def json_schema(stem: str) -> dict[str, Any]:
    """Return the schema in the file of this name."""
    model = MODELS[stem]
    schema = model.model_json_schema()
    _describe(schema, model)
    for name, inner in schema.get("$defs", {}).items():
        if name in _INNER:
            _describe(inner, _INNER[name])
    identity = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:hookbus:v1:{stem}"}
    return {**identity, **schema}


def attributes(model: type[BaseModel]) -> dict[str, str]:
    """Return the fields' descriptions, from the section "Attributes" of the model's docstring and its bases'."""
    found = dict(_SHARED)
    if model is ToolDeniedEvent:
        found |= attributes(ToolAfterEvent)
    if model is HookDecision:
        found |= attributes(Decision)
    for line in inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")[2].splitlines():
        if match := _ATTRIBUTE.match(line):
            found |= dict.fromkeys(match[1].split(", "), match[2])
    return found


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    words = attributes(model)
    schema["description"] = inspect.cleandoc(model.__doc__ or "").partition("\n")[0]
    for name, field in schema["properties"].items():
        if name in words:
            field["description"] = words[name].replace("``", "`")
