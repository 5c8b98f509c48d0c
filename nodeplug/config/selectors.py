"""Selectors and groups from the file's entries; every wrong name is reported with its place."""

import re
from collections.abc import Iterable

from msgspec import UNSET

from hostdevices.attributes import ATTRIBUTES, STANDARD
from hostdevices.globs import is_glob, path_pattern
from hostdevices.readers import READERS
from nodeplug.config.document import Document, Path, did_you_mean
from nodeplug.config.schema import GroupEntry, Select, Texts, Value
from resources.groups import Folder, Functions, Group, PathMember, PathSet, SameAttribute, Within
from resources.mounts import is_plain
from resources.presets import PRESETS, preset
from resources.selector import AllOf, AnyOf, Attribute, Ids, Kinds, Not, Paths, Selection

KINDS = tuple(sorted({reader.kind for reader in READERS} | {"path"}))
_WILDCARDS = 6  # the most wildcards in one glob
_ELSEWHERE = {"pciAddress": "pciBusID", "pciAddresses": "pciBusID", "rootDevices": "pf", "linkTypes": "linkType"}
"""Names of attributes in other device plugins that are not similar to ours."""
_BYTES = frozenset({"memory", "size"})
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[KMGTP]i|[kMGTP])(?![A-Za-z])")  # of bytes, as in 10Gi
_LINKS = {"ether": "ethernet"}  # as the SR-IOV plugin calls it
_COMPARISON = re.compile(r"(>=|<=|>|<|=)?\s*-?[0-9]{1,19}|-?[0-9]{1,19}\.\.-?[0-9]{1,19}")
_RANGE = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)")
_NUMBERED = re.compile(r"(.+)#([0-9]+)(?:-([0-9]+))?.*")  # as the SR-IOV plugin writes it
_HEXADECIMAL = re.compile(r"(0x)?[0-9a-fA-F*?\[\]!^-]+")
_FORMS = {
    "integer": 'a whole number, a comparison (">=2") or a range ("2..7")',
    "bytes": 'an amount of bytes (10Gi), a comparison (">=10Gi") or a range ("10Gi..40Gi")',
    "boolean": "true or false",
    "hexadecimal": 'hexadecimal digits in quotes ("10de"), or a glob',
    "text": "a text or a glob",
    "version": 'a text (">=2.1")',
}


def selection(document: Document, path: Path, entry: str | Select) -> Selection:
    """Return the selection of an entry at `path`; findings go to the document."""
    if isinstance(entry, str):
        return _preset(document, path, entry)
    selectors: list[Selection] = []
    if entry.preset is not UNSET:
        names = [_preset(document, place, name) for place, name in _each(path, "preset", entry.preset)]
        selectors.append(names[0] if len(names) == 1 else AnyOf(tuple(names)))
    if entry.kind is not UNSET:
        for place, kind in _each(path, "kind", entry.kind):
            _known_kind(document, place, kind, f"it is a preset: `{{preset: {kind}}}`" if kind in PRESETS else "")
        selectors.append(Kinds(_texts(entry.kind)))
    if entry.id is not UNSET:
        selectors.append(Ids(_texts(entry.id)))
    if entry.path is not UNSET:
        for place, glob in _each(path, "path", entry.path):
            check_glob(document, place, glob)
        selectors.append(Paths(_texts(entry.path)))
    for name, value in entry.attributes.items():
        selectors.append(_attribute(document, (*path, "attributes", name), name, value))
    if entry.all is not UNSET:
        selectors.append(AllOf(tuple(selection(document, (*path, "all", i), x) for i, x in enumerate(entry.all))))
    if entry.any is not UNSET:
        selectors.append(AnyOf(tuple(selection(document, (*path, "any", i), x) for i, x in enumerate(entry.any))))
    if entry.negated is not UNSET:
        selectors.append(Not(selection(document, (*path, "not"), entry.negated)))
    for name in ("preset", "kind", "id", "path", "any"):
        if getattr(entry, name) == ():
            document.at((*path, name), "an empty list selects nothing")
    if not selectors:
        document.at(path, "this selects every device", "select some; `all: []` selects all of them")
    return selectors[0] if len(selectors) == 1 else AllOf(tuple(selectors))


def grouping(document: Document, path: Path, entry: str | GroupEntry) -> Group | None:
    """Return how devices are grouped; None after a finding."""
    if entry == "parent":
        return Within()
    if isinstance(entry, str):
        return Functions()
    present = [name for name in ("within", "attribute", "paths", "folder") if getattr(entry, name) is not UNSET]
    if len(present) != 1:
        document.at(path, "a group has exactly one of within, attribute, paths and folder")
        return None
    if entry.within is not UNSET:
        _known_kind(document, (*path, "within"), entry.within)
        return Within(entry.within)
    if entry.attribute is not UNSET:
        return SameAttribute(known_attribute(document, (*path, "attribute"), entry.attribute))
    if entry.folder is not UNSET:
        folder = entry.folder.rstrip("/")
        if check_glob(document, (*path, "folder"), folder) and is_glob(folder):
            document.at((*path, "folder"), f"{folder} has wildcards", "name one folder")
        return Folder(folder)
    assert entry.paths is not UNSET
    members = tuple(PathMember(x.path, x.container_path, x.optional) for x in entry.paths)
    wildcards: set[int] = set()
    for i, member in enumerate(members):
        place = (*path, "paths", i)
        if check_glob(document, (*place, "path"), member.glob):
            wildcards.add(path_pattern(member.glob).groups)
        if member.container_path:
            check_path(document, (*place, "containerPath"), member.container_path)
    if len(wildcards) > 1:
        document.at(
            (*path, "paths"), "the paths of a group must have the same number of wildcards, which match the same text"
        )
    inside = [member.container_path or member.glob for member in members]
    if len(set(inside)) < len(inside):
        document.at((*path, "paths"), "two nodes of a group have the same path in the container")
    if all(member.optional for member in members):
        document.at((*path, "paths"), "at least one path of a group must not be optional")
    return PathSet(members)


def known_attribute(document: Document, path: Path, name: str, *, key: bool = False) -> str:
    """Return the full name of an attribute, which a file can abbreviate; an unknown one is a finding."""
    full = STANDARD.get(name, name)
    if full not in ATTRIBUTES:
        ours = _ELSEWHERE.get(name)
        hint = f"did you mean {ours}?" if ours else did_you_mean(name, [*ATTRIBUTES, *STANDARD])
        hint = hint or "`nodeplug discover -o wide` shows those of the devices here"
        document.at(path, f"unknown attribute {name}", hint, key=key)
    return full


def check_glob(document: Document, path: Path, glob: str) -> bool:
    """Add a finding unless `glob` is a path below /dev with few wildcards; return whether it is."""
    if not glob.startswith("/dev/"):
        document.at(path, f"{glob} is not below /dev", "device nodes are")
    elif not is_plain(glob):
        document.at(path, f"{glob} has empty, `.` or `..` components")
    elif glob.endswith("/**"):
        document.at(path, f"{glob} says nothing of the names in these folders", f"for all of them: {glob}/*")
    elif re.search(r"\[[^]]*$", glob):
        document.at(path, f"{glob} has a [ without a ]", "write [[] for the character itself")
    elif path_pattern(glob).groups > _WILDCARDS:
        document.at(path, f"{glob} has more than {_WILDCARDS} wildcards")
    else:
        return True
    return False


def check_path(document: Document, path: Path, text: str) -> bool:
    """Add a finding unless `text` is an absolute path without `..`; return whether it is."""
    if is_plain(text):
        return True
    document.at(path, f"{text} is not an absolute path without empty, `.` or `..` components")
    return False


def _preset(document: Document, path: Path, name: str) -> Selection:
    if name in PRESETS:
        return preset(name)
    if name in KINDS:
        hint = f"it is a kind of device: `{{kind: {name}}}`"
    elif name.startswith("/dev/"):
        hint = f"it is a path: `{{path: {name}}}`"
    else:
        hint = did_you_mean(name, PRESETS) or f"known are {', '.join(sorted(PRESETS))}"
    document.at(path, f"unknown preset {name}", hint)
    return AnyOf(())


def _known_kind(document: Document, path: Path, kind: str, hint: str = "") -> None:
    if kind not in KINDS:
        document.at(path, f"unknown kind {kind}", hint or did_you_mean(kind, KINDS) or f"known are {', '.join(KINDS)}")


def _attribute(document: Document, path: Path, name: str, value: Value | tuple[Value, ...]) -> Selection:
    full = known_attribute(document, path, name, key=True)
    values = value if isinstance(value, tuple) else (value,)
    places = [(*path, i) for i in range(len(values))] if isinstance(value, tuple) else [path]
    if not values:
        document.at(path, f"{name} has an empty list of values")
    type_ = ATTRIBUTES.get(full)
    if type_ is None:
        return AnyOf(())
    written = values
    if full in _BYTES:
        values = tuple(map(_in_bytes, values))
    for place, written_value, wanted in zip(places, written, values, strict=True):
        if not _fits(type_, wanted):
            shown = str(written_value).lower() if isinstance(written_value, bool) else str(written_value)
            hint = f'write it in quotes: "{shown}"' if type_ != "boolean" and not isinstance(wanted, str) else ""
            if type_ == "boolean" and shown in ("true", "false"):
                shown, hint = f'"{shown}"', "leave the quotes out"
            form = _FORMS["bytes" if full in _BYTES else type_]
            document.at(place, f"{name} is {form}, not {shown}", hint)
        elif full == "linkType" and wanted in _LINKS:
            document.at(place, f"no link is of the type {wanted}", f"write {_LINKS[str(wanted)]}")
        elif full == "pfName" and isinstance(wanted, str) and (numbered := _NUMBERED.fullmatch(wanted)):
            pf, first, last = numbered.groups()
            hint = f'write pfName: {pf} and vfIndex: "{first}..{last or first}"'
            document.at(place, f"{wanted} is not the name of an interface: select functions by vfIndex", hint)
        elif type_ == "integer" and isinstance(wanted, str) and (ends := _RANGE.fullmatch(wanted)):
            first, last = map(int, ends.groups())
            if first > last:
                low, _, high = str(written_value).partition("..")
                document.at(place, f"nothing is in the range {written_value}", f'write "{high}..{low}"')
    if type_ == "hexadecimal":
        values = tuple(str(x).lower().removeprefix("0x") for x in values)
    return Attribute(full, values)


def _in_bytes(value: Value) -> Value:
    """Return a condition on an amount of bytes in plain numbers: `>=10737418240` for `>=10Gi`."""
    if not isinstance(value, str) or not _AMOUNT.search(value):
        return value
    from resourceapi.objects import Quantity  # imported here: few files need it

    return _AMOUNT.sub(lambda found: str(Quantity.parse(found[0]).value()), value)


def _fits(type_: str, value: Value) -> bool:
    if type_ == "boolean" or isinstance(value, bool):
        return type_ == "boolean" and isinstance(value, bool)
    if type_ == "integer":
        return isinstance(value, int) or _COMPARISON.fullmatch(value) is not None
    return isinstance(value, str) and (type_ != "hexadecimal" or _HEXADECIMAL.fullmatch(value) is not None)


def _texts(value: Texts) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _each(path: Path, name: str, value: Texts) -> Iterable[tuple[Path, str]]:
    if isinstance(value, str):
        return [((*path, name), value)]
    return [((*path, name, i), text) for i, text in enumerate(value)]
