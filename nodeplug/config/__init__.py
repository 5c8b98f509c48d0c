"""The configuration file: one table of settings, a strict reader that tells places, and what the file means."""

from nodeplug.config.errors import ConfigError, Finding
from nodeplug.config.load import Config, builtin, load, loads, read
from nodeplug.config.nodes import node_name
from nodeplug.config.schema import Settings

__all__ = ["Config", "ConfigError", "Finding", "Settings", "builtin", "load", "loads", "node_name", "read"]
