"""Proving the record: whether every chain of events is whole, unchanged and one."""

import heapq
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum

from nats.aio.msg import Msg

from hookbus_broker import TOOL_EVENTS, Connection
from hookbus_schemas import ChainLink, InvalidMessage, digest
from hookbus_subscribers.asked import read_event
from hookbus_subscribers.copies import Copies
from hookbus_subscribers.pull import request
from hookbus_subscribers.reading import read
from hookbus_subscribers.replaying import StoredEvent

FAR = 20_000
"""Events of a chain that may come before one that is missing: an outbox sends again, but nothing so old."""

SHORT = 8
"""Bytes kept of the digest of each event, to tell a copy from a fork."""


class Fault(StrEnum):
    """What can be wrong with a chain."""

    GAP = "gap"
    CHANGED = "changed"
    FORK = "fork"
    UNCHAINED = "unchained"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        fault: what is wrong: events are missing, the digest of the one before is another, two events have one place, an
            event has no place, or what is stored is no event of the executor that published it.
        executor: whose event shows it; of what is no event the token in its subject.
        chain: empty for an event without one.
        place: in the chain; of a gap the first that is missing.
        count: how many places; 1 but for a gap.
        stream_sequence: of the event that shows it.
        event_id: of the same.
    """

    fault: Fault
    executor: str
    chain: str
    place: int
    count: int
    stream_sequence: int
    event_id: str


@dataclass(slots=True)
class _Event:
    """What is kept of an event that comes early: not its body, of which 20,000 would fill the memory."""

    link: ChainLink
    digest: str
    executor: str
    stream_sequence: int
    event_id: str


@dataclass(slots=True)
class _Chain:
    first: int
    digests: bytearray = field(default_factory=bytearray)
    last: str = ""
    early: dict[int, _Event] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)
    """A heap of the places in `early`, and of some that were there."""

    @property
    def next(self) -> int:
        return self.first + len(self.digests) // SHORT


class Verifier:
    """Follows every chain through the stream; give it the events in the stream's order, then call `end`.

    Attributes:
        findings: so far.
        events: how many were looked at.
        last_good: place in the stream of the last event before the first finding; 0 if there is none.
    """

    def __init__(self, *, is_trimmed: bool) -> None:
        """Begin.

        Args:
            is_trimmed: the stream has dropped its oldest events, so a chain may begin in its middle.
        """
        self.findings: list[Finding] = []
        self.events = 0
        self.last_good = 0
        self._is_trimmed = is_trimmed
        self._chains: dict[str, _Chain] = {}
        self._early = 0

    @property
    def chains(self) -> int:
        """How many chains there are."""
        return len(self._chains)

    def add(self, stored: StoredEvent) -> None:
        """Look at one event."""
        self.events += 1
        link = stored.event.link
        executor, event_id = stored.event.context.executor_id, stored.event.event_id
        if link is None:
            self.findings.append(Finding(Fault.UNCHAINED, executor, "", 0, 1, stored.sequence, event_id))
        else:
            event = _Event(link, digest(stored.body), executor, stored.sequence, event_id)
            chain = self._chains.get(link.chain)
            if chain is None:
                chain = self._chains[link.chain] = _Chain(link.sequence if self._is_trimmed else 1)
            self._early -= len(chain.early)
            self._place(chain, event)
            self._early += len(chain.early)
        if not self.findings and not self._early:
            self.last_good = stored.sequence

    def add_unreadable(self, sequence: int, subject: str) -> None:
        """Look at a message that is no event, by its place in the stream and its subject."""
        self.events += 1
        executor = ".".join(subject.split(".")[2:3])
        self.findings.append(Finding(Fault.UNREADABLE, executor, "", 0, 1, sequence, ""))

    def end(self) -> None:
        """Look at what is still out of its order: nothing comes any more."""
        for chain in self._chains.values():
            while chain.early:
                self._skip_gap(chain)

    def _place(self, chain: _Chain, event: _Event) -> None:
        place = event.link.sequence
        if place > chain.next:
            known = chain.early.setdefault(place, event)
            if known is event:
                heapq.heappush(chain.places, place)
            elif known.digest != event.digest:
                self._find(Fault.FORK, event, place)
            if len(chain.early) > FAR:
                self._skip_gap(chain)
            return
        if place == chain.next:
            self._append(chain, event)
            self._append_early(chain)
        elif place >= chain.first and _kept(chain, place) != _short(event.digest):
            self._find(Fault.FORK, event, place)

    def _append(self, chain: _Chain, event: _Event) -> None:
        known = chain.last or event.link.sequence == 1
        if known and event.link.previous != chain.last:
            self._find(Fault.CHANGED, event, event.link.sequence)
        chain.digests += _short(event.digest)
        chain.last = event.digest

    def _append_early(self, chain: _Chain) -> None:
        while (event := chain.early.pop(chain.next, None)) is not None:
            self._append(chain, event)

    def _skip_gap(self, chain: _Chain) -> None:
        """Take what is missing for lost, and go on behind it."""
        while (place := heapq.heappop(chain.places)) not in chain.early:
            pass
        event = chain.early.pop(place)
        missing = place - chain.next
        self._find(Fault.GAP, event, chain.next, missing)
        chain.first, chain.digests, chain.last = place, bytearray(), ""
        self._append(chain, event)
        self._append_early(chain)

    def _find(self, fault: Fault, event: _Event, place: int, count: int = 1) -> None:
        finding = Finding(fault, event.executor, event.link.chain, place, count, event.stream_sequence, event.event_id)
        self.findings.append(finding)


async def verified(connection: Connection) -> Verifier:
    """Verify the whole record.

    Raises:
        BusUnavailable, JetStreamRefusal, PermissionRefused: it cannot be read.
    """
    state = (await request(connection, f"STREAM.INFO.{TOOL_EVENTS}"))["state"]
    verifier, copies = Verifier(is_trimmed=int(state["first_seq"]) > 1), Copies()
    async with aclosing(read(connection)) as batches:
        async for batch in batches:
            for message, place in batch:
                _add(verifier, copies, message, place.sequence)
    verifier.end()
    return verifier


def _add(verifier: Verifier, copies: Copies, message: Msg, sequence: int) -> None:
    try:
        event = read_event(message.data, message.subject)
    except InvalidMessage:
        verifier.add_unreadable(sequence, message.subject)
    else:
        if not copies.meets_event(event, message.data):
            verifier.add(StoredEvent(sequence, event, message.data))


def _short(text: str) -> bytes:
    return bytes.fromhex(text[: 2 * SHORT])


def _kept(chain: _Chain, place: int) -> bytes:
    begin = (place - chain.first) * SHORT
    return bytes(chain.digests[begin : begin + SHORT])
