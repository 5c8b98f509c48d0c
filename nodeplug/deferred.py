"""TLS is loaded by whoever uses it first: asyncio imports it always, and without DRA nobody here needs its 4 MiB.

In the place of `ssl`, and of asyncio's module on top of it, stand modules that become the real ones as soon as they are
asked for an attribute. To those who import them there is no difference.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MODULES = ("ssl", "asyncio.sslproto")


class _Deferred(ModuleType):
    """Becomes the module of its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)  # the import system looks at it, which must not load the module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own = self.__dict__["__name__"]
        if sys.modules.get(own) is self:
            del sys.modules[own]
        real = importlib.import_module(own)
        self.__dict__.update(real.__dict__)
        return getattr(real, name)


def defer_tls() -> None:
    """Have TLS loaded at its first use; before asyncio is imported, else it is there already."""
    if "asyncio" not in sys.modules:
        for name in _MODULES:
            sys.modules.setdefault(name, _Deferred(name))
