"""The plugin watcher: finds and registers plugins whose sockets are in `plugins_registry`."""

from kubelet.pluginwatcher.states import ActualState, DesiredState, PluginSocket, Registered
from kubelet.pluginwatcher.watcher import PluginWatcher

__all__ = ["ActualState", "DesiredState", "PluginSocket", "PluginWatcher", "Registered"]
