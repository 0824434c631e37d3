"""Registrations: what the bucket holds, and what a person wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas import ConfigError, Enforcement, FailurePolicy, HookRegistration, InvalidMessage
from strategies import registrations

BAD: dict[str, list[object]] = {
    "order": ["1", 1.5, True, None, 2**63, -(2**63) - 1, [], {}],
    "tools": ["*", [], [""], ["a", " \t"], [1], None, {"a": 1}],
    "events": [[], ["during"], "before", None, [["before"]]],
    "failure_policy": ["open", "", "DENY", True, None, 1],
    "timeout_ms": [0, -1, 5001, "5", 5.5, 5000.0, True, None, 2**63, []],
    "enforcement": ["log", "", "Shadow", True, None],
    "side_effects": ["yes", "", None, False],
    "owner": [1, None, [], "\ud800"],
    "description": [1, None, {}, "\udfff"],
}
BAD_FIELDS = [
    pytest.param(field, value, id=f"{field}-{json.dumps(value)}") for field, values in BAD.items() for value in values
]
BROKEN = ["", "{", "[]", "null", "5", '"{}"', "{order: 1}", '{"order": 1,}', "[" * 100_000, '{"a":' * 100_000]


@given(registrations)
def test_a_registration_is_read_as_it_was_written(registration: HookRegistration) -> None:
    """By a machine and by a person alike."""
    assert HookRegistration.from_json(registration.to_json()) == registration
    assert HookRegistration.from_person(registration.to_json().decode()) == registration


def test_an_empty_object_is_a_registration_that_fails_closed() -> None:
    """What nobody said is the safe choice."""
    registration = HookRegistration.from_person("{}")
    assert registration == HookRegistration.from_json(b"{}") == HookRegistration()
    assert registration.failure_policy is FailurePolicy.DENY
    assert registration.enforcement is Enforcement.ENFORCE
    assert registration.tools == ("*",)
    assert registration.timeout_ms == 5000


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS)
def test_a_bad_value_is_refused_by_the_name_of_its_field(field: str, value: object) -> None:
    """Nothing is coerced: a slip in the bucket must not change what a hook guards."""
    text = json.dumps({field: value})
    with pytest.raises(ConfigError, match=rf"^registration: {field}\b") as refusal:
        HookRegistration.from_person(text)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidMessage, match=rf"^registration cannot be read: {field}\b"):
        HookRegistration.from_json(text.encode())


def test_a_field_that_is_not_known_is_ignored_in_the_bucket() -> None:
    """A newer hookbus wrote it."""
    assert HookRegistration.from_json(b'{"order": 7, "canaries": [{"tool": "t"}]}') == HookRegistration(order=7)


def test_a_field_that_is_not_known_is_refused_from_a_person() -> None:
    """`failure-policy` would leave the default in force, and nobody would see."""
    with pytest.raises(ConfigError, match=r"^registration: 'failure-policy' is not a field; there are order, tools,"):
        HookRegistration.from_person('{"failure-policy": "allow"}')


def test_a_field_that_is_given_twice_is_refused() -> None:
    """Of two readers one would take the first and one the last."""
    text = '{"failure_policy": "deny", "failure_policy": "allow"}'
    with pytest.raises(ConfigError, match=r"^registration: failure_policy is given twice$"):
        HookRegistration.from_person(text)
    with pytest.raises(InvalidMessage, match=r"failure_policy is given twice$"):
        HookRegistration.from_json(text.encode())


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:12])
def test_what_is_no_json_object_is_refused_in_one_line(text: str) -> None:
    """However deep: neither a recursion error nor a crash."""
    with pytest.raises(ConfigError, match=r"^registration: ") as refusal:
        HookRegistration.from_person(text)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidMessage, match=r"^registration cannot be read: "):
        HookRegistration.from_json(text.encode())


def test_a_person_who_writes_no_text_is_refused() -> None:
    """Half a surrogate pair, as an argument of a command that was not UTF-8 becomes."""
    with pytest.raises(ConfigError, match=r"^registration: .*surrogates"):
        HookRegistration.from_person('{"owner": "\udcff"}')


@given(st.binary() | st.text().map(str.encode) | st.dictionaries(st.text(), st.text()).map(json.dumps).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing but `InvalidMessage` comes out of what somebody else wrote."""
    try:
        read = HookRegistration.from_json(body)
    except InvalidMessage:
        return
    assert HookRegistration.from_json(read.to_json()) == read


@given(st.text())
def test_a_strange_name_of_a_field_is_told_in_one_line(name: str) -> None:
    """A message goes to a terminal: no newline, no control character, no megabyte."""
    for text in (json.dumps({name * 50: 1}), f"{{{json.dumps(name * 50)}:1,{json.dumps(name * 50)}:2}}"):
        with pytest.raises(ConfigError) as refusal:
            HookRegistration.from_person(text)
        assert str(refusal.value).isprintable()
        assert len(str(refusal.value)) < 1200
