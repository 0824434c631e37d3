"""Globs: against the cases that every component shares, and against a slow and obvious oracle."""

import json
import re
from pathlib import Path
from typing import SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas.globs import matches, matches_any

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "globs.jsonl").read_text().splitlines()]
VECTORS = json.loads((Path(__file__).parents[2] / "schemas" / "vectors" / "globs.json").read_text())
few_letters = st.text("ab./\n", max_size=12)
globs = st.text("ab./\n*", max_size=10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_shared_case_matches_as_it_says(case: dict[str, object]) -> None:
    """One line of the file of cases."""
    assert matches(str(case["glob"]), str(case["value"])) is case["match"]


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row['glob']!a} {row['value']!a}")
def test_a_golden_vector_matches_as_it_says(row: dict[str, object]) -> None:
    """What every other language is held to."""
    assert matches(str(row["glob"]), str(row["value"])) is row["match"]


@given(globs, few_letters)
def test_a_glob_is_the_regular_expression_in_which_only_a_star_is_special(glob: str, value: str) -> None:
    """A star is any run of characters, newlines among them; all else is itself."""
    oracle = ".*".join(re.escape(part) for part in glob.split("*"))
    assert matches(glob, value) is bool(re.fullmatch(oracle, value, re.DOTALL))


@given(st.text(), st.text())
def test_any_text_matches_itself_and_never_more_without_a_star(one: str, two: str) -> None:
    """Brackets, question marks and backslashes mean nothing."""
    assert matches(one, one)
    if "*" not in one:
        assert matches(one, two) is (one == two)


@given(st.lists(globs, max_size=4).map(tuple), few_letters)
def test_one_glob_that_matches_is_enough(several: tuple[str, ...], value: str) -> None:
    """None at all match nothing."""
    assert matches_any(several, value) is any(matches(glob, value) for glob in several)


class Counted(str):
    """Text that counts how many of its characters are searched."""

    searched = 0

    def find(self, part: str, start: SupportsIndex | None = 0, end: SupportsIndex | None = None, /) -> int:
        """Find as text does, and count from the start to where it was found, or to the end."""
        found = super().find(part, start, end)
        first, last = int(start or 0), len(self) if end is None else int(end)
        self.searched += (found + len(part) if found >= 0 else last) - first
        return found


@pytest.mark.parametrize("stars", [1, 10, 100, 1000])
def test_each_character_is_looked_at_once_whoever_wrote_it(stars: int) -> None:
    """A value made to be slow is not: nothing is tried again after a star."""
    value = Counted("a" * 5000 + "b" + "a" * 5000)
    value.searched = 0
    assert not matches("*a" * stars + "*c*a", value)
    assert 0 < value.searched <= len(value)
    value.searched = 0
    assert matches("*a" * stars + "*b*a", value)
    assert 0 < value.searched <= len(value)
