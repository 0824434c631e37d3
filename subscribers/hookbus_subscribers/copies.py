"""Events that the stream holds twice, since they were sent again after its duplicate window.

Above it is `replaying`. A copy follows its original closely in its chain, however much of others is between: an outbox
sends what was not acknowledged before anything new. So a little of each chain is remembered, not all of the stream.
"""

from collections import OrderedDict

from hookbus_schemas import ToolAfterEvent, ToolDeniedEvent

NEAR = 2000
"""Events of a chain that are surely remembered: more than an outbox has unacknowledged at once."""

CHAINS = 1000
"""Chains of which that is so, those that were met last."""


class Copies:
    """What one reading has met."""

    def __init__(self) -> None:
        self._chains: OrderedDict[str, _Recent] = OrderedDict()

    def meets(self, chain: str, body: bytes) -> bool:
        """Tell whether this very body was met before in its chain; from now on it was.

        Another body in the same place, or under the same event id, is no copy: it is for `hookbus events verify`.
        """
        recent = self._chains.get(chain)
        if recent is None:
            recent = self._chains[chain] = _Recent()
            if len(self._chains) > CHAINS:
                self._chains.popitem(last=False)
        self._chains.move_to_end(chain)
        return recent.meets(hash(body))  # keyed for each process: nobody can make another body with the same

    def meets_event(self, event: ToolAfterEvent | ToolDeniedEvent, body: bytes) -> bool:
        """Tell the same of an event; one without a place in a chain is never a copy."""
        return event.link is not None and self.meets(event.link.chain, body)


class _Recent:
    def __init__(self) -> None:
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def meets(self, value: int) -> bool:
        if value in self._newer or value in self._older:
            return True
        if len(self._newer) >= NEAR:
            self._older, self._newer = self._newer, set()
        self._newer.add(value)
        return False
