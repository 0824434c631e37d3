"""How an operator registers a hook: JSON in the bucket ``HOOKS``, key = escaped hook name."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from hookbus_schemas.errors import ConfigError, InvalidMessage
from hookbus_schemas.message import Int64, Text
from hookbus_schemas.written import first_problem, json_fields, shown_name

MAX_TIMEOUT_MS = 5000
"""Longest that a call waits for a hook, in milliseconds: what a person at the agent still puts up with."""


class FailurePolicy(StrEnum):
    """What a missing or unusable answer counts as."""

    DENY = "deny"
    ALLOW = "allow"


class Enforcement(StrEnum):
    """Whether a hook's deny stops a call (`ENFORCE`) or is only recorded (`SHADOW`)."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


class Encoding(StrEnum):
    """How the bodies of a hook's requests and answers are written."""

    MSGPACK = "msgpack"
    JSON = "json"


_SOME_GLOB: JsonDict = {"minItems": 1, "items": {"type": "string", "pattern": r"\S"}}


def _no_blank(globs: tuple[str, ...]) -> tuple[str, ...]:
    if not globs or any(not glob.strip() for glob in globs):
        raise ValueError("must name at least one glob, none of them blank")
    return globs


class HookRegistration(BaseModel):
    """What an operator says of one hook.

    Attributes:
        order: where its decision stands in reports; all hooks are asked at once.
        tools: globs of the tools that it is asked about and told of; only ``*`` is special.
        events: ``before`` to be asked, ``after`` to be told.
        failure_policy: what a missing or unusable answer counts as.
        timeout_ms: milliseconds to wait for its answer, at most ``MAX_TIMEOUT_MS``.
        enforcement: ``shadow`` asks and records, and never blocks.
        side_effects: ``some`` for a hook that counts or spends; it is not asked on a dry run.
        encoding: of its requests and answers; ``json`` is for people and for languages without msgpack.
        owner, description: for people.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    order: Int64 = Field(default=100, strict=True)
    tools: Annotated[tuple[Text, ...], AfterValidator(_no_blank)] = Field(default=("*",), json_schema_extra=_SOME_GLOB)
    events: tuple[Literal["before", "after"], ...] = Field(default=("before", "after"), min_length=1)
    failure_policy: FailurePolicy = FailurePolicy.DENY
    timeout_ms: int = Field(default=MAX_TIMEOUT_MS, ge=1, le=MAX_TIMEOUT_MS, strict=True)
    enforcement: Enforcement = Enforcement.ENFORCE
    side_effects: Literal["none", "some"] = "none"
    encoding: Encoding = Encoding.MSGPACK
    owner: Text = ""
    description: Text = ""

    def to_json(self) -> bytes:
        """Return the JSON that the bucket holds."""
        return self.model_dump_json().encode()

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read what the bucket holds; fields of a newer version are ignored.

        Raises:
            InvalidMessage: it is no registration; the message names the field.
        """
        try:
            return cls.model_validate(json_fields(body))
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"registration cannot be read: {first_problem(error)}") from error

    @classmethod
    def from_person(cls, text: str) -> Self:
        """Read what a person wrote: a field that is not known is refused, since it may be a slip.

        Raises:
            ConfigError: the message names the field.
        """
        try:
            fields = json_fields(text.encode())
            registration = cls.model_validate(fields)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"registration: {first_problem(error)}") from error
        unknown = sorted(set(fields) - set(cls.model_fields))
        if unknown:
            known = ", ".join(cls.model_fields)
            raise ConfigError(f"registration: {shown_name(unknown[0])} is not a field; there are {known}")
        return registration
