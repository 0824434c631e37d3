"""Settings: one frozen object for each table of ``hookbus.toml``, overlaid by environment variables and arguments.

Only `Section.load` reads the file and the environment; constructing a section looks at its arguments alone.
"""

import difflib
import json
import os
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from hookbus_schemas.errors import ConfigError

DEFAULT_CONFIG = Path("hookbus.toml")
CONFIG_VARIABLE = "HOOKBUS_CONFIG"
MAIN_TABLE = "bus"
"""The one table whose variables have no table name in them: ``HOOKBUS_URL`` is ``bus.url``."""


class InvalidSetting(ConfigError):
    """Settings that cannot mean anything, each with what is wrong about it.

    Attributes:
        problems: for each wrong field (with its place inside, as in ``tools[1]``) what is wrong and what is allowed.
    """

    def __init__(self, problems: Mapping[str, str], names: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{_renamed(place, names)}{problem}" for place, problem in problems.items()))
        self.problems = dict(problems)


class Section(BaseSettings):
    """One table of ``hookbus.toml``: ``class ExecutorSettings(Section, table="executor")``.

    Its variables are ``HOOKBUS_<TABLE>_<FIELD>``, those of the table ``bus`` ``HOOKBUS_<FIELD>``. A field declared with
    ``repr=False`` holds a secret: its value appears in no message.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        env_ignore_empty=True,
        enable_decoding=False,
    )
    table: ClassVar[str] = ""
    env_prefix: ClassVar[str] = ""

    def __init_subclass__(cls, *, table: str = "", **options: Any) -> None:
        """Bind the class to its table."""
        super().__init_subclass__(**options)
        if table:
            cls.table = table
            cls.env_prefix = "HOOKBUS_" if table == MAIN_TABLE else f"HOOKBUS_{table.upper()}_"

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # Without the cause: pydantic's error holds every value, passwords too.
            raise InvalidSetting(_problems(type(self), error), _argument_names(type(self), error)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Leave the arguments as the only source; `load` adds the others where the caller asks for them."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @classmethod
    def load(cls, config: Path | None = None, **overrides: Any) -> Self:
        """Read this section: the file, over it the environment, over that the arguments.

        Args:
            config: the file; None for what ``HOOKBUS_CONFIG`` names, or else ``hookbus.toml`` here if there is one.
            overrides: fields by name; a field that is given counts, also as None.

        Raises:
            ConfigError: the file is missing or broken, or a value cannot mean anything.
        """
        from_file = _table(_path(config), cls.table)
        from_environment = _environment(cls)
        names = {"": cls.table} | {field: f"{cls.table}.{field}" for field in (*from_file, *overrides)}
        names |= {field: variable(cls, field) for field in from_environment if field not in overrides}
        try:
            return cls(**(from_file | from_environment | overrides))
        except InvalidSetting as error:
            raise InvalidSetting(error.problems, names) from None


def variable(section: type[Section], field: str) -> str:
    """Return the environment variable of a field."""
    return f"{section.env_prefix}{field.upper()}"


def check_known_tables(sections: Iterable[type[Section]], config: Path | None = None) -> None:
    """Refuse what nobody would ever read: a misspelt table in the file, a misspelt ``HOOKBUS_`` variable.

    Raises:
        ConfigError: the table or variable, and the known one that is nearest to it.
    """
    sections = list(sections)
    tables = {section.table for section in sections}
    path = _path(config)
    for table in _read(path) if path else ():
        if table not in tables:
            raise ConfigError(f"[{table}] in {path} is no table of hookbus{_nearest(table, tables)}")
    variables = {variable(section, field) for section in sections for field in section.model_fields}
    for name in sorted(name for name in os.environ if name.startswith("HOOKBUS_")):
        if name not in variables | {CONFIG_VARIABLE}:
            raise ConfigError(f"{name} in the environment is no variable of hookbus{_nearest(name, variables)}")


def _path(config: Path | None) -> Path | None:
    """Return the file to read; a file that somebody named must be there."""
    named = config or os.environ.get(CONFIG_VARIABLE)
    if not named:
        return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None
    path = Path(named).expanduser()
    if not path.is_file():
        source = "" if config else f", which {CONFIG_VARIABLE} names,"
        raise ConfigError(f"configuration file {path}{source} does not exist")
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error}") from error


def _table(path: Path | None, table: str) -> dict[str, Any]:
    found = _read(path).get(table, {}) if path else {}
    if not isinstance(found, dict):
        raise ConfigError(f"{table} in {path} must be a table: write [{table}] above its settings")
    return found


def _environment(section: type[Section]) -> dict[str, Any]:
    """Return the fields that the environment sets; lists are comma-separated or JSON, maps JSON."""
    texts = EnvSettingsSource(section, env_prefix=section.env_prefix)()
    return {field: _decoded(section.model_fields[field], text) for field, text in texts.items()}


def _decoded(field: FieldInfo, text: Any) -> Any:
    kinds = _containers(field.annotation)
    if not kinds or not isinstance(text, str):
        return text
    if text.lstrip().startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            return text  # pydantic's refusal names the field and what it takes
    return text if dict in kinds else [part.strip() for part in text.split(",") if part.strip()]


def _containers(annotation: Any) -> set[type]:
    """Return which of the container types the annotation allows, looking into ``X | None``."""
    origin = get_origin(annotation) or annotation
    if origin in (Union, types.UnionType):
        return set().union(*(_containers(option) for option in get_args(annotation)))
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return {dict}
    return {origin} & {list, tuple, set, frozenset, dict}


def _problems(section: type[Section], error: ValidationError) -> dict[str, str]:
    """Return what is wrong, by place; never a secret."""
    return {_place(detail): _problem(section, detail) for detail in error.errors(include_url=False)}


def _argument_names(section: type[Section], error: ValidationError) -> dict[str, str]:
    fields = {str(detail["loc"][0]) for detail in error.errors(include_url=False) if detail["loc"]}
    return {field: f"{section.table}.{field}" for field in fields} | {"": section.table}


def _place(detail: ErrorDetails) -> str:
    first, *rest = detail["loc"] or ("",)
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def _renamed(place: str, names: Mapping[str, str]) -> str:
    field = place.partition("[")[0].partition(".")[0]
    return names.get(field, field) + place.removeprefix(field)


def _problem(section: type[Section], detail: ErrorDetails) -> str:
    field = str(detail["loc"][0]) if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        return f" is no setting{_nearest(field, section.model_fields)}"
    rule = detail["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    return f"{_shown(section.model_fields.get(field), detail)}: {rule}"


def _shown(field: FieldInfo | None, detail: ErrorDetails) -> str:
    """Return the value as part of a message, unless it is missing or might hold a password."""
    value = detail["input"]
    if field is None or not field.repr or detail["type"] == "missing" or "@" in str(value):
        return ""
    return f" is {str(value)[:60]!r}" if isinstance(value, str | Path) else f" is {value!r:.60}"


def _nearest(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
