"""What every body on the bus has in common."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

VERSION = 1
"""Version of the contract. New optional fields do not change it; it grows only when an old field's meaning does."""

MAX_WORDS = 4096
"""Longest reason or warning, in characters; what is longer is cut, so that a long-winded deny stays a deny."""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


Words = Annotated[str, AfterValidator(_cut)]
"""Text for people and models, cut at ``MAX_WORDS`` characters."""

Name = Annotated[str, Field(min_length=1, max_length=256)]
"""A name of a hook or an executor."""


class Message(BaseModel):
    """A body: fields that a reader does not know are ignored, types are never coerced, another version is refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, ser_json_inf_nan="null")

    v: Literal[1] = 1
