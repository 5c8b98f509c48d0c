"""The plugin watcher: plugins whose sockets lie in `plugins_registry` are found and registered."""

from kubelet.pluginwatcher.states import ActualState, DesiredState, PluginSocket, Registered
from kubelet.pluginwatcher.watcher import PluginWatcher

__all__ = ["ActualState", "DesiredState", "PluginSocket", "PluginWatcher", "Registered"]
