"""A plugin's configuration, checked against the JSON Schema that the plugin brings."""

import json
from collections.abc import Mapping
from typing import Any

from hookbus_schemas import ConfigError

_MAX_RULE = 200
"""Characters of a broken rule that are told."""


def check_config(place: str, config: Mapping[str, Any], schema: dict[str, Any] | None) -> None:
    """Refuse a configuration that the plugin does not take.

    Messages hold no values, since some are secrets. A schema's references to other documents are not followed.

    Args:
        place: where the configuration is written, for the message.
        config: the configuration.
        schema: the plugin's ``configSchema``; None takes any.

    Raises:
        ConfigError: the configuration or the schema is wrong; the message says where.
    """
    if schema is None:
        return
    from jsonschema import SchemaError, ValidationError
    from jsonschema.exceptions import best_match
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
        problem = best_match(kind(schema, registry=Registry()).iter_errors(config))
    except (SchemaError, Unresolvable) as error:
        words = error.message if isinstance(error, SchemaError) else f"{error} is not followed"
        raise ConfigError(f"configSchema of the plugin of {place}: {words[:_MAX_RULE]}") from None
    if isinstance(problem, ValidationError):
        raise ConfigError(f"{place}{''.join(f'[{part!r}]' for part in problem.absolute_path)}: {_rule(problem)}")


def _rule(problem: Any) -> str:
    if problem.validator in ("required", "additionalProperties"):  # these name fields, no values
        return str(problem.message)[:_MAX_RULE]
    return f"should meet {problem.validator}: {json.dumps(problem.validator_value)}"[:_MAX_RULE]
