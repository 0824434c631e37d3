"""docs/parity.md claims nothing without a test."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from cli.running import environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| matter |")]
TEST = re.compile(r"`(tests/[\w/]+\.py::test_\w+(?:\[[^`]+\])?)`")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_difference_names_its_tests_and_its_reason(row: str) -> None:
    """The last cell holds tests and nothing else."""
    _, _, _, ours, why, proof, _ = re.split(r"(?<!\\)\|", row)
    assert ours.strip()
    assert why.strip()
    assert TEST.findall(proof)
    assert TEST.sub("", proof).strip() == ""


async def test_each_test_that_is_named_exists() -> None:
    """By its file, its name and its case; pytest itself is asked."""
    named = sorted({test for row in ROWS for test in TEST.findall(row)})
    collect = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *collect, *named, cwd=ROOT, env=environment(), stdout=-1, stderr=-1
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [line for line in (out + err).decode().splitlines() if "not found" in line] == []
    assert process.returncode == 0, out.decode()
