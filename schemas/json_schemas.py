"""The models as JSON Schema 2020-12, described by their docstrings."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from descriptions import fields, summary
from hookbus_schemas import Decision, HookDecision, HookRegistration, ToolAfterEvent, ToolDeniedEvent, ToolHookContext
from hookbus_schemas.context import ResolvedPath
from hookbus_schemas.stored_text import StoredText

MODELS: dict[str, type[BaseModel]] = {
    "tool_hook_context": ToolHookContext,
    "decision": Decision,
    "tool_after_event": ToolAfterEvent,
    "tool_denied_event": ToolDeniedEvent,
    "hook_registration": HookRegistration,
}
"""File names and what is in them."""

_INNER: dict[str, type[BaseModel]] = {
    model.__name__: model for model in (ToolHookContext, ResolvedPath, HookDecision, StoredText)
}


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        """Say no: a field's title would repeat its name."""
        return False


def json_schema(stem: str) -> dict[str, Any]:
    """Return the schema in the file of this name."""
    model = MODELS[stem]
    schema = model.model_json_schema(schema_generator=_Generator)
    _describe(schema, model)
    for name, inner in schema.get("$defs", {}).items():
        if name in _INNER:
            _describe(inner, _INNER[name])
    identity = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:hookbus:v1:{stem}"}
    return {**identity, **schema}


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    words = fields(model)
    schema["description"] = summary(model)
    for name, field in schema["properties"].items():
        field["description"] = words[name].replace("``", "`")
