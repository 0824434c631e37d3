"""Texts that are too large for a message: they are kept in parts beside it, and the message says which.

An event's texts are messages of the stream ``TOOL_OBJECTS``, on the subjects of `subjects.object_part`.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hookbus_schemas.errors import InvalidMessage

PART_BYTES = 128 * 1024
"""Bytes of a part; fewer where the bus takes none so large. As large as the chunks of NATS' own object store."""

MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Longest text: who reads one must be able to hold it, whatever a message claims."""


class StoredText(BaseModel):
    """Where a text is that a message has no room for.

    Attributes:
        digest: SHA-256 of the text in UTF-8, in lower-case hexadecimal.
        size_bytes: of the text in UTF-8.
        parts: how many parts it is in.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size_bytes: int = Field(ge=1, le=MAX_TEXT_BYTES)
    parts: int = Field(ge=1, le=MAX_TEXT_BYTES)


def divide(text: str, part_bytes: int = PART_BYTES) -> tuple[StoredText, list[bytes]]:
    """Return what names a text, and its parts.

    Raises:
        InvalidMessage: it is longer than ``MAX_TEXT_BYTES``, empty, or cannot be written in UTF-8.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"a text cannot be written in UTF-8: {error}") from error
    if not 0 < len(data) <= MAX_TEXT_BYTES:
        raise InvalidMessage(f"a text of {len(data)} bytes cannot be stored: at most {MAX_TEXT_BYTES} can")
    parts = [data[begin : begin + part_bytes] for begin in range(0, len(data), part_bytes)]
    return StoredText(digest=sha256(data).hexdigest(), size_bytes=len(data), parts=len(parts)), parts


def join(stored: StoredText, parts: Sequence[bytes]) -> str:
    """Return the text whose parts these are.

    Raises:
        InvalidMessage: they are not the parts of that text.
    """
    data = b"".join(parts)
    if len(data) != stored.size_bytes or sha256(data).hexdigest() != stored.digest:
        raise InvalidMessage(f"{len(data)} bytes are not the text of {stored.size_bytes} with digest {stored.digest}")
    return data.decode()  # the digest is of a text
