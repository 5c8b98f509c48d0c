"""From a file to a `Config`: read, check everything, and only then use it."""

from pathlib import Path

import msgspec
from msgspec import Struct

from nodeplug.config.document import Document
from nodeplug.config.errors import ConfigError, Finding
from nodeplug.config.resources import check_settings, check_together, resource
from nodeplug.config.schema import File, ResourceEntry, Settings
from nodeplug.config.tree import SIZE_LIMIT, Unreadable, parse
from resources.groups import Folder, PathSet
from resources.resource import Resource
from resources.selector import path_globs

_BUILTIN = Path(__file__).parents[1] / "builtin.yaml"


class Config(Struct, frozen=True):
    """What a configuration says. `source` is the file's name."""

    resources: tuple[Resource, ...]
    settings: Settings = Settings()
    source: str = ""

    @property
    def path_globs(self) -> tuple[str, ...]:
        """The globs below /dev that resources look at, in order: what is to be listed and watched."""
        globs: dict[str, None] = {}
        for item in self.resources:
            globs.update(dict.fromkeys(_globs(item)))
        return tuple(globs)


def load(path: Path) -> Config:
    """Read a configuration file. Raises `ConfigError` with everything that is wrong with it."""
    return loads(read(path), str(path))


def read(path: Path) -> bytes:
    """Return a configuration file's content, up to where it is too long. Raises `ConfigError` where that fails."""
    try:
        with path.open("rb") as file:
            return file.read(SIZE_LIMIT + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(str(path), [Finding(1, 1, f"this file cannot be read: {reason}")]) from None


def loads(data: bytes, source: str = "configuration") -> Config:
    """Read the content of a configuration file. Raises `ConfigError` with everything that is wrong with it."""
    try:
        root, twice = parse(data)
    except Unreadable as error:
        raise ConfigError(source, [error.finding]) from None
    document = Document(root, File)
    settings = Settings()
    if not document.is_wrong(("settings",)):
        settings = msgspec.convert(document.value.get("settings", {}), Settings)
        check_settings(document, settings)
    entries = {
        i: msgspec.convert(values, ResourceEntry)
        for i, values in enumerate(document.value.get("resources", ()))
        if not document.is_wrong(("resources", i))
    }
    found = [resource(document, ("resources", i), entry, settings) for i, entry in entries.items()]
    check_together(document, entries)
    if document.findings or twice:
        raise ConfigError(source, document.findings + twice)
    return Config(tuple(item for item in found if item is not None), settings, source)


def builtin() -> Config:
    """Return the configuration that comes with the program: a resource for each harmless class of devices."""
    return load(_BUILTIN)


def _globs(item: Resource) -> tuple[str, ...]:
    in_group: tuple[str, ...] = ()
    if isinstance(item.group, PathSet):
        in_group = tuple(member.glob for member in item.group.members)
    elif isinstance(item.group, Folder):
        in_group = (item.group.glob,)
    return (*path_globs(item.selector), *in_group)
