"""What the packages promise by name."""

from importlib import import_module
from types import ModuleType

import pytest

PACKAGES = ("hookbus_schemas", "hookbus_broker", "hookbus_executor", "hookbus_subscribers", "hookbus_cli")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_none_beside(package: str) -> None:
    """`__all__` is exact: without repeats, complete, and nothing but modules beside it."""
    module = import_module(package)
    promised = list(getattr(module, "__all__", ()))
    there = {name for name, value in vars(module).items() if not name.startswith("_") and not _is_module(value)}
    assert len(promised) == len(set(promised))
    assert {name for name in promised if not _is_module(getattr(module, name))} == there


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType)
