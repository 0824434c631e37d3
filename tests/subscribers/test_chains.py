"""Chains of events: every gap, change and fork is found, and nothing else is."""

import asyncio
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas import ChainLink, Outcome, ToolAfterEvent, ToolHookContext, digest, encode
from hookbus_subscribers.chains import Fault, Finding, Verifier, verified
from hookbus_subscribers.replaying import StoredEvent
from hooking import Bus

Sealed = tuple[ToolAfterEvent, bytes]


def event(chain: str, sequence: int, previous: str, result: str = "") -> Sealed:
    """Return an event with a place in a chain, and its body."""
    context = ToolHookContext(
        tool_name="t", arguments_json="{}", call_id="c", executor_id=f"e-{chain}", sent_at_ms=0, deadline_ms=0
    )
    link = ChainLink(chain=chain, sequence=sequence, previous=previous)
    made = ToolAfterEvent(
        event_id=f"{chain}-{sequence}", at_ms=0, context=context, outcome=Outcome.COMPLETED, result=result, link=link
    )
    return made, encode(made)


def chain(name: str, length: int) -> list[Sealed]:
    """Return a whole chain."""
    made: list[Sealed] = []
    for sequence in range(1, length + 1):
        made.append(event(name, sequence, digest(made[-1][1]) if made else ""))
    return made


def verify(events: Sequence[Sealed], *, is_trimmed: bool = False) -> Verifier:
    """Verify events in this order of the stream."""
    verifier = Verifier(is_trimmed=is_trimmed)
    for place, (one, body) in enumerate(events, start=1):
        verifier.add(StoredEvent(place, one, body))
    verifier.end()
    return verifier


def found(verifier: Verifier) -> list[tuple[Fault, int, int]]:
    """Return the faults with their places and counts."""
    return [(finding.fault, finding.place, finding.count) for finding in verifier.findings]


@given(st.data())
def test_whole_chains_are_clean_in_any_order_and_with_copies(data: st.DataObject) -> None:
    """Events are sent again, and the chains of many executors are mixed."""
    events = [one for name, length in (("a", 6), ("b", 1), ("c", 3)) for one in chain(name, length)]
    copies = data.draw(st.lists(st.sampled_from(events), max_size=4))
    verifier = verify(data.draw(st.permutations(events + copies)))
    assert (found(verifier), verifier.chains) == ([], 3)


@given(st.integers(1, 8), st.integers(1, 7))
def test_a_gap_is_found_with_its_place_and_length(place: int, count: int) -> None:
    """Unless it is at the end, of which a chain says nothing."""
    events = [one for one in chain("a", 9) if not place <= one[0].link.sequence < place + count]  # type: ignore[union-attr]
    expected = [(Fault.GAP, place, count)] if place + count <= 9 else []
    assert found(verify(events)) == expected


@given(st.integers(0, 7), st.sampled_from([Fault.CHANGED, Fault.FORK]))
def test_a_change_and_a_fork_are_found(index: int, fault: Fault) -> None:
    """A change where the next event names another digest, a fork where two events have one place."""
    events = chain("a", 9)
    link = events[index][0].link
    assert link is not None
    other = event("a", link.sequence, link.previous, "altered")
    if fault is Fault.CHANGED:
        events[index] = other
        assert found(verify(events)) == [(Fault.CHANGED, index + 2, 1)]
    else:
        events.append(other)
        assert found(verify(events)) == [(Fault.FORK, index + 1, 1)]


def test_the_last_good_event_is_the_one_before_the_first_finding() -> None:
    """Until a missing event comes, what is behind it is not good yet."""
    events = chain("a", 5)
    assert verify(events).last_good == 5
    assert verify([*events[:2], *events[3:]]).last_good == 2
    assert verify([events[0], events[2], events[1], *events[3:]]).last_good == 5


def test_an_event_without_a_place_is_found() -> None:
    """It was not published by an executor of this version, or by none."""
    bare, _ = chain("a", 1)[0]
    bare = bare.model_copy(update={"link": None})
    assert found(verify([(bare, encode(bare))])) == [(Fault.UNCHAINED, 0, 1)]


@pytest.mark.parametrize(("is_trimmed", "faults"), [(True, []), (False, [(Fault.GAP, 1, 3)])])
def test_a_chain_may_begin_in_its_middle_where_the_stream_dropped_the_rest(
    is_trimmed: bool, faults: list[tuple[Fault, int, int]]
) -> None:
    """Old events go by the stream's own limits; elsewhere a missing beginning is a gap."""
    assert found(verify(chain("a", 6)[3:], is_trimmed=is_trimmed)) == faults


def test_many_gaps_cost_no_more_than_their_events_and_no_body_is_kept() -> None:
    """Anybody who may write to the record can forge links: 60,000 events with a gap before each."""
    verifier, (made, _) = Verifier(is_trimmed=False), event("a", 1, "")
    assert made.link is not None
    bodies: list[weakref.ref[StoredEvent]] = []
    for place in range(2, 120_002, 2):
        link = ChainLink(chain="a", sequence=place, previous="")
        stored = _Watched(place, made.model_copy(update={"link": link}), b"%d" % place)
        bodies.append(weakref.ref(stored))
        verifier.add(stored)
    assert not [body for body in bodies[:-1] if body() is not None]
    verifier.end()
    assert [(finding.place, finding.count) for finding in verifier.findings] == [(n, 1) for n in range(1, 120_001, 2)]


async def test_what_is_no_event_and_what_another_executor_published_are_found(bus: Bus) -> None:
    """Neither is passed over: a record that cannot be read proves nothing."""
    connection = await bus.streams()
    events = chain("a", 3)
    await bus.record(connection, *(one for one, _ in events[:2]))
    await connection.jetstream().publish("tool.after.e-a.t", b"\xc1garbage")
    await connection.jetstream().publish("tool.after.thief.t", event("a", 3, "", "forged")[1])
    await bus.record(connection, events[2][0])
    async with asyncio.timeout(5):
        verifier = await verified(connection)
    assert verifier.findings == [
        Finding(Fault.UNREADABLE, "e-a", "", 0, 1, 3, ""),
        Finding(Fault.UNREADABLE, "thief", "", 0, 1, 4, ""),
    ]
    assert (verifier.events, verifier.chains, verifier.last_good) == (5, 1, 2)


class _Watched(StoredEvent):
    """An event of which one can see whether somebody keeps it."""
