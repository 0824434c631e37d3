"""Copies of an event in the stream: a reader gets one, and everything that is no copy."""

import pytest

from hookbus_schemas import ChainLink, ToolAfterEvent, encode, subjects
from hookbus_subscribers import copies as copies_module
from hookbus_subscribers import replay
from hookbus_subscribers.copies import CHAINS, NEAR, Copies
from hooking import Bus, make_event


def test_a_body_that_was_met_in_its_chain_is_a_copy() -> None:
    """Not so in another chain, nor another body."""
    copies = Copies()
    met = [copies.meets(*each) for each in [("a", b"1"), ("a", b"2"), ("b", b"1"), ("a", b"1"), ("a", b"2")]]
    assert met == [False, False, False, True, True]


def test_a_copy_is_known_by_as_many_as_an_outbox_has_unacknowledged_and_memory_is_bounded() -> None:
    """However many events of other chains are between."""
    copies = Copies()
    assert not copies.meets("a", b"original")
    for number in range(NEAR):
        assert not copies.meets("a", b"%d" % number)
        assert not copies.meets(f"other-{number % (CHAINS - 1)}", b"%d" % number)
    assert copies.meets("a", b"original")
    for number in range(2 * NEAR):
        copies.meets("a", b"later-%d" % number)
    assert not copies.meets("a", b"original")


def test_a_chain_that_was_not_met_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executor has ended."""
    monkeypatch.setattr(copies_module, "CHAINS", 2)
    copies = Copies()
    for chain in ("old", "a", "old", "b"):
        copies.meets(chain, b"1")
    assert [copies.meets(chain, b"1") for chain in ("old", "b", "a")] == [True, True, False]


async def test_a_reading_leaves_out_copies_and_nothing_else(bus: Bus) -> None:
    """What has the place or the id of another, or no place, is no copy."""
    connection = await bus.streams()
    first, second = (_linked(number, number + 1) for number in range(2))
    forged = first.model_copy(update={"result": "other"})
    loose = make_event(2)
    for event in (first, second, first, forged, second, loose, loose):
        await connection.jetstream().publish(subjects.after("e1", "t"), encode(event))
    assert [stored.event async for stored in replay(connection)] == [first, second, forged, loose, loose]


def _linked(number: int, place: int) -> ToolAfterEvent:
    link = ChainLink(chain="c", sequence=place, previous="")
    event = make_event(number)
    assert isinstance(event, ToolAfterEvent)
    return event.model_copy(update={"link": link})
