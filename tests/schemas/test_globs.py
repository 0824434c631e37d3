"""Globs: the shared table, and an oracle that is slow and plain."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas import globs

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "globs.jsonl").read_text().splitlines()]
few = st.text(alphabet="ab*", max_size=8)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_glob_matches_as_the_table_says(case: dict[str, Any]) -> None:
    """The table is for every language."""
    assert globs.matches(case["glob"], case["value"]) is case["match"]


def _oracle(glob: str, value: str) -> bool:
    if not glob:
        return not value
    if glob[0] == "*":
        return any(_oracle(glob[1:], value[start:]) for start in range(len(value) + 1))
    return value[:1] == glob[0] and _oracle(glob[1:], value[1:])


@given(few, few)
def test_a_glob_matches_as_the_oracle_says(glob: str, value: str) -> None:
    """Every way to divide the value among the stars is tried."""
    assert globs.matches(glob, value) is _oracle(glob, value)


@given(st.text(max_size=20).filter(lambda text: "*" not in text), st.text(max_size=20))
def test_without_a_star_a_glob_is_equality(glob: str, value: str) -> None:
    """No other character is special."""
    assert globs.matches(glob, glob)
    assert globs.matches(glob, value) is (glob == value)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5), st.lists(st.text(max_size=5), min_size=5, max_size=5))
def test_a_value_made_of_the_globs_parts_matches(parts: list[str], between: list[str]) -> None:
    """Whatever stands where the stars are, newlines and stars among it."""
    value = parts[0] + "".join(inner + part for inner, part in zip(between, parts[1:], strict=False))
    assert globs.matches("*".join(parts), value)


def test_time_is_linear_whoever_wrote_the_value() -> None:
    """A pattern that takes a backtracking matcher longer than the universe is old ends within the test's timeout."""
    assert not globs.matches("*a" * 30 + "*b", "a" * 200_000)


@pytest.mark.parametrize(("several", "match"), [((), False), (("x", "a*"), True), (("x", "b*"), False)])
def test_any_of_several_globs_will_do(several: tuple[str, ...], match: bool) -> None:
    """None of none."""
    assert globs.matches_any(several, "abc") is match
