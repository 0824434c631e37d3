"""Finding hooks by name: ``package.module:attribute`` or ``plugin:FOLDER``, as ``hookbus serve`` takes them."""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from hookbus_schemas import ConfigError, ToolHook, ToolHookWithContext
from hookbus_schemas.hook import Hook
from hookbus_subscribers.hook import check_name
from hookbus_subscribers.plugin_bridge import PluginSettings, load_plugin

PLUGIN = "plugin:"
"""What a target begins with that is a folder of a plugin; a hook of such a name is that of a plugin."""

_KINDS = (ToolHook, ToolHookWithContext)


def load_hooks(*targets: str, plugins: PluginSettings | None = None) -> tuple[Hook, ...]:
    """Import the hooks, with the working directory importable.

    Args:
        targets: each ``module:attribute``, the attribute a hook or a class of hooks that needs no arguments;
            ``module`` alone where there is exactly one hook in it; or ``plugin:`` and the folder of a plugin.
        plugins: what plugins may run and are given.

    Raises:
        ConfigError: one line that says what was found instead.
    """
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        sys.path.insert(0, here)
    return tuple(_load(target, plugins) for target in targets)


def _load(target: str, plugins: PluginSettings | None) -> Hook:
    if target.startswith(PLUGIN):
        return load_plugin(Path(target.removeprefix(PLUGIN)).expanduser(), plugins)
    module_name, colon, attribute = target.partition(":")
    if not module_name or (colon and not attribute):
        raise ConfigError(f"{target!r} should be module:hook, as in my_hooks:no_drops")
    module = _import(module_name)
    found = _attribute(module, attribute) if attribute else _only_hook(module)
    return _made(target, found)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"there is no module {error.name} in {os.getcwd()} or among the installed ones") from None  # noqa: PTH109
        raise ConfigError(f"module {name} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"module {name} cannot be imported: {type(error).__name__}: {_line(error)}") from error


def _attribute(module: ModuleType, path: str) -> object:
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            hooks = ", ".join(_hooks(module)) or "none"
            raise ConfigError(f"module {module.__name__} has no {path}; hooks in it: {hooks}") from None
    return found


def _only_hook(module: ModuleType) -> object:
    hooks = _hooks(module)
    if len(hooks) == 1:
        return next(iter(hooks.values()))
    name = module.__name__
    if not hooks:
        raise ConfigError(f'module {name} has no hook: decorate a function with @hook("name")')
    first = next(iter(hooks))
    raise ConfigError(f"module {name} has {len(hooks)} hooks: {', '.join(hooks)}; name one, as in {name}:{first}")


def _hooks(module: ModuleType) -> Mapping[str, object]:
    """Return the module's hooks by attribute; classes only where there are no hooks made of them."""
    unique = {id(value): (name, value) for name, value in reversed(vars(module).items()) if not name.startswith("_")}
    public = dict(reversed(unique.values()))
    made = {name: value for name, value in public.items() if isinstance(value, _KINDS)}
    return made or {name: value for name, value in public.items() if _is_own_class(module, value)}


def _is_own_class(module: ModuleType, value: object) -> bool:
    return isinstance(value, type) and issubclass(value, _KINDS) and value.__module__ == module.__name__


def _made(target: str, found: object) -> Hook:
    if isinstance(found, type) and issubclass(found, _KINDS):
        found = _instance(target, found)
    if not isinstance(found, _KINDS):
        fix = ': decorate it with @hook("name")' if inspect.isroutine(found) else ""
        raise ConfigError(f"{target} is no hook but of type {type(found).__name__}{fix}")
    check_name(getattr(found, "name", None))
    return found


def _instance(target: str, kind: type[Hook]) -> object:
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise ConfigError(
            f"{target} is a class that needs arguments ({error}): make a hook of it in its module"
        ) from None
    try:
        return kind()
    except Exception as error:
        raise ConfigError(f"{target} cannot be made: {type(error).__name__}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
