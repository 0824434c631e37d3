"""Subjects: any name is one token, here and at a real server, and every token is one name."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import nats
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from hookbus_schemas import ConfigError, InvalidMessage, subjects

LONGEST = "\0" * subjects.MAX_NAME_BYTES
"""The name whose token is longest: each of its bytes is escaped."""

TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+|=")
names = st.text(max_size=64)
awkward = st.text(".*>= $\t\r\n\0é❄Aa1_-/", max_size=20)


@given(names | awkward)
def test_a_token_stands_for_its_name(name: str) -> None:
    """Whatever characters it has."""
    token = subjects.token(name)
    assert subjects.name(token) == name
    assert TOKEN.fullmatch(token)


@given(st.text("ABab019_-", min_size=1))
def test_a_plain_name_is_its_own_token(name: str) -> None:
    """People read subjects."""
    assert subjects.token(name) == name


@given(st.text("=0123456789ABCDEFabcé. *", max_size=12))
def test_what_is_read_as_a_token_is_written_so_again(token: str) -> None:
    """One name has one token only, or permissions for it could be walked around."""
    try:
        name = subjects.name(token)
    except InvalidMessage:
        return
    assert subjects.token(name) == token


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "*", ">", "a b", "=4", "a=", "=2e", "=41", "=ZZ", "=C3", "=ED=A0=80", "a\n", "é", "x" * 257, "==="],
)
def test_a_token_that_nobody_writes_is_refused(token: str) -> None:
    """In one line that does not repeat all of it."""
    with pytest.raises(InvalidMessage) as refusal:
        subjects.name(token)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("name", ["x" * 257, "é" * 129, "❄" * 86, "\U0001f600" * 65])
def test_a_name_that_is_too_long_is_refused(name: str) -> None:
    """By its bytes, not its characters."""
    with pytest.raises(ConfigError, match=r"name of 25\d|name of 260 bytes is longer than 256"):
        subjects.token(name)
    assert subjects.name(subjects.token(name[:-1])) == name[:-1]


@pytest.mark.parametrize("name", ["\ud800", "a\udfff", "\ud83d!"])
def test_half_a_surrogate_pair_is_no_name(name: str) -> None:
    """It has no UTF-8."""
    with pytest.raises(ConfigError, match="cannot be written in UTF-8"):
        subjects.token(name)


@given(names, names)
def test_the_subjects_of_one_request_fit_together(hook: str, executor: str) -> None:
    """The kit finds from the request's subject alone where it may answer."""
    before = subjects.before(hook, executor)
    prefix = subjects.reply_prefix(executor, hook)
    reply = prefix + subjects.new_reply_token()
    assert subjects.reply_prefix_for(before) == prefix
    assert _covers(subjects.before_filter(hook), before)
    assert _covers(subjects.reply_filter(executor), reply)
    assert len(reply.split(".")) == 4
    assert subjects.queue_group(hook) == before.split(".")[2]


@given(names, names, names)
def test_no_two_hooks_and_no_two_executors_share_a_subject(one: str, two: str, other: str) -> None:
    """Else one could see or answer what is another's."""
    if one != two:
        assert not _covers(subjects.before_filter(one), subjects.before(two, other))
        assert not _covers(subjects.reply_filter(one), subjects.reply_prefix(two, other) + "t")
        assert subjects.reply_prefix(other, one) != subjects.reply_prefix(other, two)


@given(names, names)
def test_events_are_what_the_stream_captures_and_requests_are_not(executor: str, tool: str) -> None:
    """A stream that captured requests would hide that no hook is there."""
    for subject in (subjects.after(executor, tool), subjects.denied(executor, tool)):
        assert [_covers(pattern, subject) for pattern in subjects.EVENT_SUBJECTS].count(True) == 1
    assert not any(_covers(pattern, subjects.before(executor, tool)) for pattern in subjects.EVENT_SUBJECTS)


@pytest.mark.parametrize(
    "subject",
    ["", "tool.before", "tool.before.h", "tool.before.h.e.x", "tool.after.e.t", "reply.e.h.t", "Tool.before.h.e"],
)
def test_a_subject_that_is_no_request_has_no_reply(subject: str) -> None:
    """Nothing is answered that was not asked where the contract says."""
    with pytest.raises(InvalidMessage, match=r"is not tool\.before\.<hook>\.<executor>"):
        subjects.reply_prefix_for(subject)


def test_reply_tokens_are_128_bits_and_never_the_same() -> None:
    """Another hook must not guess one."""
    tokens = {subjects.new_reply_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(several=st.lists(names | awkward, min_size=20, max_size=50))
async def test_a_server_takes_any_name_as_exactly_one_token(bus_url: str, several: list[str]) -> None:
    """What was published on a name arrives by a wildcard for one token, and by the name's own filter."""
    by_wildcard: list[str] = []
    by_name: list[str] = []
    async with asyncio.timeout(20), await _connect(bus_url) as client:
        await client.subscribe("tool.before.*.*", cb=_into(by_wildcard))
        for name in set(several):
            await client.subscribe(subjects.before_filter(name), subjects.queue_group(name), cb=_into(by_name))
        for name in several:
            await client.publish(subjects.before(name, name), b"")
        await client.flush()
        await client.drain()
    assert by_wildcard == [subjects.before(name, name) for name in several]
    assert sorted(by_name) == sorted(by_wildcard)
    assert [subjects.name(subject.split(".")[2]) for subject in by_wildcard] == several


async def test_a_server_takes_a_request_between_the_longest_names(bus_url: str) -> None:
    """Subject and reply subject together still fit the server's control line."""
    arrived: list[str] = []
    before = subjects.before(LONGEST, LONGEST)
    async with asyncio.timeout(5), await _connect(bus_url) as client:
        await client.subscribe(subjects.reply_filter(LONGEST), cb=_into(arrived))
        await client.subscribe(subjects.before_filter(LONGEST), subjects.queue_group(LONGEST), cb=_into(arrived))
        await client.publish(before, b"", reply=subjects.reply_prefix_for(before) + subjects.new_reply_token())
        await client.flush()
        await client.drain()
    assert arrived == [before]


def _covers(pattern: str, subject: str) -> bool:
    """Tell whether a subscription gets a subject, by the rules of NATS."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and _covers(".".join(wanted[:-1]), ".".join(given[: len(wanted) - 1]))
    return len(wanted) == len(given) and all(part in ("*", token) for part, token in zip(wanted, given, strict=True))


async def _connect(url: str) -> Client:
    return await nats.connect(url, allow_reconnect=False)


def _into(arrived: list[str]) -> Callable[[Msg], Awaitable[None]]:
    async def keep(message: Msg) -> None:
        arrived.append(message.subject)

    return keep
