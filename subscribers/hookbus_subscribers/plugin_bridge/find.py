"""Finding plugins: in one folder, or wherever the settings say."""

from collections.abc import Iterator
from pathlib import Path

from hookbus_schemas import ConfigError
from hookbus_subscribers.plugin_bridge.child import Plugin
from hookbus_subscribers.plugin_bridge.config_schema import check_config
from hookbus_subscribers.plugin_bridge.hook import PluginHook
from hookbus_subscribers.plugin_bridge.manifest import MANIFEST, Manifest, find_entry, read_manifest
from hookbus_subscribers.plugin_bridge.settings import PluginEntry, PluginSettings


def load_plugin(folder: Path, settings: PluginSettings | None = None) -> PluginHook:
    """Return the hook of the plugin in a folder, with what the settings give it.

    Raises:
        ConfigError: it is no plugin, it may not run, or its configuration is not what it takes.
    """
    settings = settings or PluginSettings()
    manifest = read_manifest(folder)
    if not _may_run(manifest, settings):
        raise ConfigError(f"{manifest.hook} may not run: look at plugins.allow and plugins.deny")
    return _hook(folder, manifest, settings)


def load_plugins(settings: PluginSettings) -> tuple[PluginHook, ...]:
    """Return the hooks of all plugins that the settings name, in the order of their paths.

    Raises:
        ConfigError: one cannot run, two have one id, or the settings speak of one that is not there.
    """
    found: dict[str, tuple[Path, Manifest]] = {}
    for folder in _folders(settings.paths):
        manifest = read_manifest(folder)
        if manifest.id in found:
            raise ConfigError(f"two plugins are called {manifest.id}: {found[manifest.id][0]} and {folder}")
        found[manifest.id] = folder, manifest
    for name in (*(settings.allow or ()), *settings.entries):
        if name not in found:
            raise ConfigError(
                f"plugin {name}, which plugins.allow or plugins.entries names, is in none of plugins.paths"
            )
    allowed = (one for one in found.values() if _may_run(one[1], settings))
    return tuple(_hook(folder, manifest, settings) for folder, manifest in allowed)


def _may_run(manifest: Manifest, settings: PluginSettings) -> bool:
    return manifest.id not in settings.deny and (settings.allow is None or manifest.id in settings.allow)


def _hook(folder: Path, manifest: Manifest, settings: PluginSettings) -> PluginHook:
    given = settings.entries.get(manifest.id, PluginEntry())
    check_config(f"plugins.entries.{manifest.id}.config", given.config, manifest.config_schema)
    return PluginHook(Plugin(folder.resolve(), find_entry(folder), manifest, given.config, given.environment))


def _folders(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        path = path.expanduser()
        if not path.is_dir():
            raise ConfigError(f"plugins.paths names {path}, which is no folder")
        if (path / MANIFEST).exists():
            yield path
            continue
        inside = sorted(each.parent for each in path.glob(f"*/{MANIFEST}"))
        if not inside:
            raise ConfigError(f"plugins.paths names {path}, where no {MANIFEST} is, nor in a folder in it")
        yield from inside
