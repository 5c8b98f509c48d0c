"""The plugin watcher: finds and registers plugins whose sockets are in `plugins_registry`."""

from kubelet.pluginwatcher.states import ActualState, DesiredState, PluginSocket, RegisteredPlugin
from kubelet.pluginwatcher.watcher import PluginWatcher

__all__ = ["ActualState", "DesiredState", "PluginSocket", "PluginWatcher", "RegisteredPlugin"]
