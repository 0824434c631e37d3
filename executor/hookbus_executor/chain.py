"""The chain of one executor's events: each holds its place and the digest of the one before it."""

import secrets

from hookbus_schemas import ChainLink, digest


class Chain:
    """One run's chain, as long as it is so far."""

    def __init__(self) -> None:
        self._id = secrets.token_hex(8)
        self._sequence = 0
        self._previous = ""

    def next_link(self) -> ChainLink:
        """Return the place of the next event."""
        return ChainLink(chain=self._id, sequence=self._sequence + 1, previous=self._previous)

    def extend(self, body: bytes) -> None:
        """Take the next event, as it is published."""
        self._sequence += 1
        self._previous = digest(body)
