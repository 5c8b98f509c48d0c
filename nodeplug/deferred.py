"""Lazy imports of modules that other libraries import and that the daemon does not use.

asyncio always imports TLS, 4 MiB that are not needed without DRA. The rest is imported by the libraries below for
functions that are never called here, together 3 MiB. Each is replaced by a module that becomes the real one at the
first access to an attribute, so importers see no difference.
"""

import importlib
import os
import sys
import typing
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULES = (
    "_colorize",  # traceback, since Python 3.13
    "ssl",
    "asyncio.sslproto",
    "calendar",  # protobuf's well-known types
    "google.protobuf.internal.python_message",  # messages in Python, where protobuf has no C library
    "google.protobuf.text_format",
    "inspect",  # asyncio and typing_extensions; it imports the syntax trees. Since Python 3.14, asyncio itself needs it
    "ipaddress",  # urllib.parse, and rules for claims that the API server applies
    "locale",  # subprocess, which asyncio imports
    "pickle",  # protobuf's containers
    "platform",  # uuid, which msgspec imports
    "shutil",  # tempfile and ctypes.util; it imports the compression libraries
    "tempfile",  # ctypes.util, and certificates from a kubeconfig
    "textwrap",  # traceback
    "tokenize",  # inspect and linecache, for the source of a traceback
    "typing_extensions",  # msgspec, if it is installed
    "yaml.cyaml",  # yaml, for parsers in C; the configuration is read in Python, for the positions in its messages
)
_TYPING = ("NotRequired", "Required", "get_type_hints")
"""The names that msgspec imports from typing_extensions, and that Python's own typing has as well."""


class _Deferred(ModuleType):
    """Becomes the module of its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)  # the import system reads it, which must not load the module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own = self.__dict__["__name__"]
        if sys.modules.get(own) is self:
            del sys.modules[own]
        real = importlib.import_module(own)
        self.__dict__.update(real.__dict__)
        return getattr(real, name)


def defer_unused() -> None:
    """Have these modules loaded at their first use. Call it before asyncio is imported, which would load them."""
    if "asyncio" not in sys.modules:
        for name in _MODULES:
            sys.modules.setdefault(name, _Deferred(name))
        if isinstance(extensions := sys.modules["typing_extensions"], _Deferred):
            vars(extensions).update({name: getattr(typing, name) for name in _TYPING})
        if isinstance(platform := sys.modules["platform"], _Deferred):
            vars(platform)["system"] = lambda: os.uname().sysname  # the only function that uuid uses
