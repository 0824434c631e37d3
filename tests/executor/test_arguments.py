"""Arguments are read in one way, or not at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_executor import InvalidArguments
from hookbus_executor.arguments import Arguments

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_hooks_judge_is_what_the_tool_gets(values: dict[str, object]) -> None:
    """The text parses to the values, given as a mapping or as text."""
    for given_as in (values, json.dumps(values)):
        read = Arguments.read(given_as)
        assert json.loads(read.json) == read.values == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("not json", "not valid JSON", id="no JSON"),
        pytest.param("", "not valid JSON", id="empty"),
        pytest.param("[1]", "must be a JSON object, not an array", id="array"),
        pytest.param('"a"', "must be a JSON object, not a string", id="string"),
        pytest.param("5", "must be a JSON object, not a number", id="number"),
        pytest.param("true", "must be a JSON object, not a boolean", id="boolean"),
        pytest.param("null", "must be a JSON object, not null", id="null"),
        pytest.param('{"a":1,"a":2}', "a key stands twice", id="key twice"),
        pytest.param('{"b":{"a":1,"a":2}}', "a key stands twice", id="key twice inside"),
        pytest.param('{"a":"x","\\u0061":"y"}', "a key stands twice", id="key twice, once escaped"),
        pytest.param('{"a":NaN}', "NaN is not JSON", id="NaN"),
        pytest.param('{"a":Infinity}', "Infinity is not JSON", id="Infinity"),
        pytest.param('{"a":1e999}', "not valid JSON", id="number that overflows"),
        pytest.param('{"a":"\\ud800"}', "surrogate", id="lone surrogate"),
        pytest.param('{"a":1} x', "not valid JSON", id="trailing text"),
        pytest.param('{"a":' + "[" * 3000 + "]" * 3000 + "}", "nested too deeply", id="3000 deep"),
        pytest.param('{"a":' + "9" * 5000 + "}", "not valid JSON", id="5000 digits"),
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(text: str, says: str) -> None:
    """The refusal says what is wrong, for the model."""
    with pytest.raises(InvalidArguments, match=says):
        Arguments.read(text)


def test_a_mapping_that_is_no_json_is_refused() -> None:
    """An agent may hand over anything."""
    for values in ({"a": float("nan")}, {"a": object()}, {1: {2: {3, 4}}}):
        with pytest.raises(InvalidArguments):
            Arguments.read(values)  # type: ignore[arg-type]
