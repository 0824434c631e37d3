"""A plugin's folder: its manifest ``openclaw.plugin.json``, and which file is its module."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hookbus_schemas import ConfigError, subjects
from hookbus_schemas.written import first_problem

MANIFEST = "openclaw.plugin.json"
PACKAGE = "package.json"

TYPESCRIPT = (".ts", ".mts", ".cts")
_SUFFIXES = (".mjs", ".js", ".cjs", *TYPESCRIPT)


class Manifest(BaseModel):
    """What a plugin says of itself; what is not known here is for other programs.

    Attributes:
        id: its hook is called ``plugin:<id>``.
        name, version, description: for people.
        config_schema: JSON Schema of its configuration; None takes any.
        event_subscriptions: what it means to hear of: ``tool:before``, ``tool:after`` or ``tool:*``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str = Field(pattern=r"\S")
    name: str = ""
    version: str = ""
    description: str = ""
    config_schema: dict[str, Any] | None = Field(default=None, alias="configSchema")
    event_subscriptions: tuple[str, ...] = Field(default=(), alias="eventSubscriptions", strict=False)

    @property
    def hook(self) -> str:
        """The name of its hook."""
        return f"plugin:{self.id}"


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of the plugin in a folder.

    Raises:
        ConfigError: there is none, or it cannot mean anything.
    """
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate(_json(path))
        subjects.token(manifest.hook)
    except FileNotFoundError:
        raise ConfigError(f"{folder} is no plugin: it has no {MANIFEST}") from None
    except (ValidationError, ConfigError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise ConfigError(f"plugin manifest {path}: {problem}") from None
    return manifest


def find_entry(folder: Path) -> Path:
    """Return the file that holds the plugin's module: what ``package.json`` names, or else an ``index`` file.

    Raises:
        ConfigError: there is none, or it names several or one that is not there.
    """
    package = _package(folder / PACKAGE)
    openclaw = package.get("openclaw")
    named = openclaw.get("extensions") if isinstance(openclaw, dict) else None
    if isinstance(named, list) and len(named) > 1:
        raise ConfigError(
            f"{folder / PACKAGE}: openclaw.extensions has {len(named)} entries; a folder holds one plugin"
        )
    for entry in (*(named if isinstance(named, list) else ()), package.get("main")):
        if isinstance(entry, str):
            return _named(folder, entry)
    found = next((path for path in _usual(folder) if path.is_file()), None)
    if found is None:
        raise ConfigError(f'plugin {folder} has no module: name one as "main" in {PACKAGE}, or call it index.js')
    return found.resolve()


def _named(folder: Path, entry: str) -> Path:
    path = (folder / entry).resolve()
    if not path.is_file() or not path.is_relative_to(folder.resolve()):
        raise ConfigError(f"{folder / PACKAGE} names {entry}, which is no file in the plugin's folder")
    return path


def _usual(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "dist", folder / "src"):
        yield from (place / f"index{suffix}" for suffix in _SUFFIXES)


def _package(path: Path) -> dict[str, Any]:
    try:
        found = _json(path)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{path} should be a JSON object")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
