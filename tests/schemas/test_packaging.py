"""The wheel holds the packages and nothing else, and works alone."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hookbus_schemas", "hookbus_broker", "hookbus_executor", "hookbus_subscribers", "hookbus_cli")
pytestmark = pytest.mark.slow


def _run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    _run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed alone."""
    folder = tmp_path_factory.mktemp("installed")
    offline = ("--no-deps", "--no-index", "--disable-pip-version-check")
    _run("-m", "pip", "install", "--quiet", *offline, "--target", str(folder), str(wheel), cwd=folder)
    return folder


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    """No tests, no vectors, no generator."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert [name for name in names if "vector" in name or "/test" in name or "__pycache__" in name] == []
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert "hookbus_subscribers/plugin_bridge/bridge.mjs" in names


def test_every_package_is_imported_from_the_wheel_beside_a_users_own_schemas(installed: Path, tmp_path: Path) -> None:
    """A user's ``schemas/`` or ``broker/`` in the working directory is no trouble, nor does it get any."""
    for own in ("schemas", "broker", "executor", "subscribers", "cli"):
        (tmp_path / own).mkdir()
        (tmp_path / own / "__init__.py").write_text(f"OWNER = 'the user of {own}'\n")
    code = f"""
import sys
sys.path[:0] = ["", {str(installed)!r}]
import importlib
for package in {PACKAGES!r}:
    print(importlib.import_module(package).__file__)
import schemas, broker
assert (schemas.OWNER, broker.OWNER) == ("the user of schemas", "the user of broker")
"""
    lines = _run("-W", "error", "-c", code, cwd=tmp_path).splitlines()
    assert lines == [str(installed / package / "__init__.py") for package in PACKAGES]


def test_the_command_of_the_wheel_is_one_that_exists(installed: Path, tmp_path: Path) -> None:
    """The entry point names a function that is in the wheel."""
    code = f"""
import sys
sys.path[:0] = [{str(installed)!r}]
from importlib.metadata import distributions
(found,) = [each for each in distributions(path=[{str(installed)!r}]) if each.name == "hookbus"]
(command,) = [each for each in found.entry_points if each.name == "hookbus"]
assert callable(command.load())
"""
    _run("-c", code, cwd=tmp_path)
