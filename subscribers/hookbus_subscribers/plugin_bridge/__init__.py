"""The plugin bridge: hooks in JavaScript, each plugin in a process of Node.js."""

from hookbus_subscribers.plugin_bridge.channel import PluginError, PluginUnavailable
from hookbus_subscribers.plugin_bridge.child import Plugin
from hookbus_subscribers.plugin_bridge.find import load_plugin, load_plugins
from hookbus_subscribers.plugin_bridge.hook import PLUGIN_REGISTRATION, PluginHook
from hookbus_subscribers.plugin_bridge.settings import PluginEntry, PluginSettings

__all__ = [
    "PLUGIN_REGISTRATION",
    "Plugin",
    "PluginEntry",
    "PluginError",
    "PluginHook",
    "PluginSettings",
    "PluginUnavailable",
    "load_plugin",
    "load_plugins",
]
