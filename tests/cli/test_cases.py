"""The shared cases of Autonomy, as an operator would try them: a configuration file and a file of calls."""

import itertools
import json
from pathlib import Path

import pytest

from cli.running import hookbus
from policies.conftest import Case, Disk, cases


def _config(case: Case) -> str:
    """Return the settings of a case as a table of ``hookbus.toml``; these values are written alike in TOML and JSON."""
    return "".join(["[autonomy]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in case["config"].items())])


BY_CONFIG = [list(group) for _, group in itertools.groupby(sorted(cases("autonomy.jsonl"), key=_config), key=_config)]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """The files that the cases speak of, links resolved on the way to them."""
    return Disk(tmp_path.resolve())


@pytest.mark.parametrize("group", BY_CONFIG, ids=lambda group: group[0]["id"])
async def test_check_answers_each_shared_case_as_it_says(group: list[Case], disk: Disk, tmp_path: Path) -> None:
    """One command for all cases of a configuration; what it says of a call is what stands in the file of cases."""
    group = disk.fill(group)
    (tmp_path / "new.toml").write_text(_config(group[0]))
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(case) + "\n" for case in group))
    ended = await hookbus(tmp_path, "check", "--config", "new.toml", "--calls", "calls.jsonl")
    assert (ended.code, ended.err) == (0, "")
    answers = [json.loads(line) for line in ended.out.splitlines()]
    assert [(answer["id"], answer["denied_by"]) for answer in answers] == [
        (case["id"], _denied_by(case)) for case in group
    ]


def _denied_by(case: Case) -> str:
    """Return who must have denied it, so that no other deny passes for the one that is meant; empty for an allow."""
    if case["expect"] == "allow":
        return ""
    return "executor" if "arguments_json" in case else "Autonomy"
