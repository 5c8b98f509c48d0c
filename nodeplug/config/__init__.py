"""The configuration file: one table of settings, a strict reader that reports places, and the meaning of the file."""

from nodeplug.config.environment import from_environment, overridden
from nodeplug.config.errors import ConfigError, ConfigUnreadable, Finding
from nodeplug.config.load import Config, builtin, load, loads, read
from nodeplug.config.nodes import node_name
from nodeplug.config.settings import Settings

__all__ = [
    "Config",
    "ConfigError",
    "ConfigUnreadable",
    "Finding",
    "Settings",
    "builtin",
    "from_environment",
    "load",
    "loads",
    "node_name",
    "overridden",
    "read",
]
