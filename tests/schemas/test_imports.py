"""Imports point one way; the two sides of the bus know each other by the contract alone."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / part for part in ("schemas", "broker", "executor", "subscribers", "cli")]
STRANGERS = (
    ("schemas", "broker"), ("schemas", "executor"), ("schemas", "subscribers"), ("schemas", "cli"),
    ("broker", "executor"), ("broker", "subscribers"), ("broker", "cli"),
    ("executor", "subscribers"), ("executor", "cli"),
    ("subscribers", "executor"), ("subscribers", "cli"),
)  # fmt: skip
"""Who must not import whom."""


def test_the_layers_hold(tmp_path: Path) -> None:
    """By import-linter, as ``make lint`` runs it."""
    command = [str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--config", str(ROOT / "pyproject.toml")]
    path = ":".join(map(str, SOURCES))
    done = subprocess.run(
        [*command, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("importer", "imported"), STRANGERS)
def test_no_line_imports_a_stranger(importer: str, imported: str) -> None:
    """Not within a function either, and not for types alone."""
    imports = re.compile(
        rf"^\s*(?:from|import)\s+hookbus_{imported}\b|import_module\(.hookbus_{imported}\b", re.MULTILINE
    )
    files = list((ROOT / importer).rglob("*.py"))
    assert files
    assert [str(file) for file in files if imports.search(file.read_text())] == []
