"""What each package promises by name: exactly what its ``__all__`` says."""

import importlib
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    Path(path).name
    for path in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
]


def _named(package: ModuleType) -> list[str]:
    names = package.__dict__.get("__all__", [])
    assert isinstance(names, list | tuple)
    return [str(name) for name in names]


def test_every_package_of_the_repository_is_in_the_wheel() -> None:
    """And so in the tests of this module."""
    assert sorted(PACKAGES) == sorted(path.parent.name for path in ROOT.glob("*/hookbus_*/__init__.py"))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_there_and_none_beside(name: str) -> None:
    """What is imported into the package, modules aside, is promised; and what is promised is there."""
    package = importlib.import_module(name)
    there = {name for name, value in vars(package).items() if not name.startswith("_") and not _is_module(value)}
    assert there - set(_named(package)) == set()
    assert [name for name in _named(package) if not hasattr(package, name)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_no_promised_name_is_private_or_said_twice(name: str) -> None:
    """Sorted as ruff sorts it, so each is found."""
    names = _named(importlib.import_module(name))
    assert [name for name in names if name.startswith("_")] == []
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_says_that_it_is_typed(name: str) -> None:
    """Type checkers look for the marker."""
    assert (Path(str(importlib.import_module(name).__file__)).parent / "py.typed").exists()


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType)
