"""Registrations: what the bucket holds is read kindly, what a person writes is read strictly."""

import json
from typing import Any

import pytest
from hypothesis import given

from hookbus_schemas import ConfigError, Enforcement, FailurePolicy, HookRegistration, InvalidMessage
from strategies import registrations

BAD_VALUES: dict[str, list[Any]] = {
    "order": ["1", 1.5, True, None, 2**63, []],
    "tools": [[], "*", ["*", ""], [" "], ["\t\n"], [1], None, {}],
    "events": [[], ["during"], "before", [None], None],
    "failure_policy": ["open", "Deny", "", None, True],
    "timeout_ms": [0, -1, 5001, "5", 5.0, True, None, 2**70],
    "enforcement": ["log", "", None, 1],
    "side_effects": ["many", "", None, False],
    "owner": [1, None, [], "\ud800"],
    "description": [1, None, {}, "\ud800"],
}
"""By field, values that it may not have."""
BAD = [(field, value) for field, values in BAD_VALUES.items() for value in values]

NOT_OBJECTS = ("", "[]", "null", "1", '"text"', "{", "{order: 1}", "[" * 5000, '{"more":' + "[" * 5000)
TWICE = '{"order": 1, "tools": ["a"], "order": 2}'


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_value_is_refused_with_the_name_of_its_field(field: str, value: object) -> None:
    """From the bucket and from a person, each with its own error, in one line."""
    text = json.dumps({field: value})
    with pytest.raises(InvalidMessage, match=rf"^registration cannot be read: {field}\b") as read:
        HookRegistration.from_json(text.encode())
    with pytest.raises(ConfigError, match=rf"^registration: {field}\b") as written:
        HookRegistration.from_person(text)
    assert "\n" not in f"{read.value}{written.value}"


def test_every_field_has_a_bad_value_above() -> None:
    """A field that is added later needs some too."""
    assert set(BAD_VALUES) == set(HookRegistration.model_fields)


@pytest.mark.parametrize("text", NOT_OBJECTS)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    """However broken or deep."""
    with pytest.raises(InvalidMessage, match=r"^registration cannot be read: "):
        HookRegistration.from_json(text.encode())
    with pytest.raises(ConfigError, match=r"^registration: "):
        HookRegistration.from_person(text)


def test_a_field_given_twice_is_refused() -> None:
    """Of two readers one would take the first and one the last."""
    with pytest.raises(InvalidMessage, match="order is given twice"):
        HookRegistration.from_json(TWICE.encode())
    with pytest.raises(ConfigError, match="order is given twice"):
        HookRegistration.from_person(TWICE)


def test_bytes_that_are_no_text_are_refused() -> None:
    """JSON is UTF-8."""
    with pytest.raises(InvalidMessage):
        HookRegistration.from_json(b'{"owner": "\xff"}')


def test_a_field_that_is_not_known_is_ignored_in_the_bucket_and_refused_from_a_person() -> None:
    """There it comes from a newer version, here it may be a slip that leaves a call unguarded."""
    text = '{"failure_polcy": "allow"}'
    assert HookRegistration.from_json(text.encode()) == HookRegistration()
    with pytest.raises(ConfigError, match=r"failure_polcy is not a field; there are order, tools, .*failure_policy"):
        HookRegistration.from_person(text)


def test_by_default_a_hook_is_asked_of_every_tool_and_its_silence_denies() -> None:
    """The defaults are the safe ones."""
    assert HookRegistration.from_person("{}") == HookRegistration(
        order=100,
        tools=("*",),
        events=("before", "after"),
        failure_policy=FailurePolicy.DENY,
        timeout_ms=5000,
        enforcement=Enforcement.ENFORCE,
        side_effects="none",
        owner="",
        description="",
    )


@given(registrations)
def test_a_registration_is_read_as_it_was_written(registration: HookRegistration) -> None:
    """Both ways of reading take what `to_json` writes."""
    body = registration.to_json()
    assert HookRegistration.from_json(body) == HookRegistration.from_person(body.decode()) == registration
