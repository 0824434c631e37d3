"""What an operator lets one session do: JSON in the bucket ``CONTRACTS``, key = escaped session."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from hookbus_schemas.errors import ConfigError
from hookbus_schemas.message import Text
from hookbus_schemas.written import first_problem, json_fields


def _absolute(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            raise ValueError("must be absolute paths on the executor's machine")
    return paths


class ScopedCapability(BaseModel):
    """One tool that a session may use, and where.

    Attributes:
        tool_name: exactly.
        allowed_paths: absolute real paths; each path of a call must lie in one of them. None at all grants the tool
            without regard to paths.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool_name: str = Field(min_length=1)
    allowed_paths: Annotated[tuple[Text, ...], AfterValidator(_absolute)] = ()


class Contract(BaseModel):
    """The bounds of one session. A field that is not known is refused: it would be a bound that nobody keeps.

    Attributes:
        id: names the contract in reasons.
        name, created_by: for people.
        max_tool_calls: calls since it was attached; 0 for no limit.
        scoped_capabilities: which tools may touch which paths; none at all for no bounds.
        max_runtime_seconds: how long after it was attached calls may run; 0 for no limit.
        expires_at: when it ends, with its time zone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=256)
    name: Text = ""
    max_tool_calls: int = Field(default=0, ge=0, le=2**63 - 1, strict=True)
    scoped_capabilities: tuple[ScopedCapability, ...] = ()
    max_runtime_seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    expires_at: AwareDatetime | None = None
    created_by: Text = ""

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read a contract.

        Raises:
            ConfigError: it is none; the message names the field.
        """
        try:
            fields = json_fields(body)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"contract: {first_problem(error)}") from error
        return cls.of(fields)

    @classmethod
    def of(cls, fields: Mapping[str, object]) -> Self:
        """Make a contract of its fields' values.

        Raises:
            ConfigError: they make none; the message names the field.
        """
        try:
            return cls.model_validate(fields)
        except ValueError as error:
            raise ConfigError(f"contract: {first_problem(error)}") from error

    def to_json(self) -> bytes:
        """Return the JSON that the bucket holds."""
        return self.model_dump_json().encode()
