"""docs/configuration.md says what the settings are."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_setting_stands_in_the_page_with_its_variable_and_default() -> None:
    """The page is what `make settings` would write from the classes."""
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
