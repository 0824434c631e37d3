"""What every body on the bus has in common."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

VERSION = 1
"""Version of the contract. New optional fields do not change it; it grows only when an old field's meaning does."""

MAX_WORDS = 4096
"""Longest reason or warning, in characters; what is longer is cut, so that a long-winded deny stays a deny."""


def _cut(text: str) -> str:
    if not text.isascii():  # a deny that quotes a model's half surrogate pair must stay one that can be sent
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


Words = Annotated[str, AfterValidator(_cut)]
"""Text for people and models, cut at ``MAX_WORDS`` characters."""

Name = Annotated[str, Field(min_length=1, max_length=256)]
"""A name of a hook or an executor."""

Text = Annotated[str, Field(min_length=0)]
"""Text that is refused where it cannot be written in UTF-8: a bound of any kind makes pydantic look."""

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""A whole number that every language can hold."""

Milliseconds = Annotated[float, Field(allow_inf_nan=False)]
"""A duration; never infinite, never "not a number"."""


class Message(BaseModel):
    """A body: fields that a reader does not know are ignored, types are never coerced, another version is refused.

    Attributes:
        v: version of the contract.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, ser_json_inf_nan="null")

    v: int = Field(default=VERSION, ge=VERSION, le=VERSION)  # a Literal would take True and 1.0 too
