"""The containers of a plugin's settings: a ConfigMap, an object of its operator, a DaemonSet, or a program's arguments.

Flags become keys of the operator's object, or of its file, so that a plugin has one schema for both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias, get_type_hints

from msgspec import Struct, structs

from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Sequence, Unreadable, parse
from nodeplug.convert.json_text import without_tabs

PERMITTED = "permittedHostDevices"
CONFIG_MAP, DAEMON_SET = "ConfigMap", "DaemonSet"
PERMITTING = {
    "KubeVirt": (("spec", "configuration"),),
    "HyperConverged": (("spec", "virtualization"), ("spec",)),
    "": (("spec", "configuration"), ("configuration",)),  # a part of the first, as in KubeVirt's user guide
}
"""Where objects have `PERMITTED`, by their kind; of several places the first that is there."""
_HAMI = (
    "HAMi limits the memory and cores of shared GPUs by a library that it loads into their programs; nodeplug does not",
    "share GPUs with `shares`, `sharesOf` or `mps` (docs/configuration.md)",
)
_WITHOUT_SETTINGS = {
    "kubevirt-gpu-device-plugin": (
        "this plugin has no settings: it offers the GPUs and vGPUs that it finds, under names of its own",
        "convert KubeVirt's permittedHostDevices, which has these names, without its externalResourceProvider",
    ),
    "volcano-vgpu-device-plugin": _HAMI,
    "projecthami/hami": _HAMI,
}
"""Images of plugins whose DaemonSets cannot be converted: why, and what to do."""
_LOGGING = frozenset({"v", "vmodule", "logtostderr", "alsologtostderr", "stderrthreshold", "log_dir", "prefix"})
_SHELLS = frozenset({"bash", "sh"})
_ENDS = re.compile(r"[;&\n]")  # ends of a pipeline in a shell script
_REDIRECTION = re.compile(r"(&|(?<!\S)[0-9])?>{1,2}&?\s*[^\s;&|]+")
_Entries: TypeAlias = list[tuple[Scalar, Node]]


class Wrapping(Struct, frozen=True):
    """Where the settings of a program are, if it has no file.

    `kind` is that of its operator's objects, whose `spec` contains them. `image` is a part of the name of its image;
    `helpers` are programs of that image that offer no devices, beside it or in DaemonSets of their own. `flags` and
    `variables` are the keys of the same settings on its command line and in its environment; a key with a dot is one in
    a mapping. `others` are flags that do not concern devices. With one of the flags and variables in `file`, or with
    `only_file`, the program has a file, and its DaemonSet does not contain its settings.

    A ConfigMap can have a file for each node, in entries by the nodes' names (`entry_is_node`), or by the value of a
    label (`entry_label`).

    `api_group` is that of the objects' kind if other groups have a kind with that name; `settings` extracts the
    settings from an object if they are not its `spec`.
    """

    kind: str = ""
    image: str = ""
    flags: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}
    others: frozenset[str] = frozenset()
    file: frozenset[str] = frozenset()
    only_file: bool = False
    entry_is_node: bool = False
    entry_label: str = ""
    api_group: str = ""
    settings: Callable[[Keys], Keys] | None = None
    helpers: frozenset[str] = frozenset()


Formats: TypeAlias = Mapping[str, tuple[Wrapping, type]]
"""Each format's wrapping and schema, by its name."""


def unwrapped(root: Node, formats: Formats, name: str, entry: str = "") -> tuple[str, Node]:
    """Return the part to convert, and the name of its format if its wrapping determines it, else `name`.

    `entry` is the entry of a ConfigMap that has several. Raises `Unreadable`.
    """
    if isinstance(root, Keys):
        return _unwrap_object(root, formats, name, entry)
    if isinstance(root, Sequence) and _has_device_flag(root):
        return name, _device_arguments(root)
    if isinstance(root, Sequence) and name and all(isinstance(x, Scalar) for x in root.items):
        return name, _nested(list(_flags(root, name, *formats[name])), root)
    return name, root


def _unwrap_object(root: Keys, formats: Formats, name: str, entry: str) -> tuple[str, Node]:
    kind = text_of(root, "kind")
    places = PERMITTING.get(kind, ())
    permitted = next((x for place in places if (x := below(root, *place, PERMITTED)) is not None), None)
    if permitted is not None:
        return name, Keys(((key(PERMITTED, root), permitted),), root.line, root.column)
    if kind and places:
        where = ".".join((*places[0], PERMITTED))
        raise Unreadable(Finding(root.line, root.column, f"this {kind} has no {where}"))
    if kind == CONFIG_MAP:
        return name, parsed(_entry(root, entry))
    if kind == DAEMON_SET:
        return _unwrap_daemon_set(root, formats)
    for found, (wrapping, _) in formats.items():
        is_its = not wrapping.api_group or text_of(root, "apiVersion").startswith(f"{wrapping.api_group}/")
        if kind and wrapping.kind == kind and is_its:
            spec = wrapping.settings(root) if wrapping.settings else below(root, "spec")
            return found, spec if isinstance(spec, Keys) else Keys((), root.line, root.column)
    return name, root


def entries_of(config_map: Keys) -> tuple[tuple[Scalar, Node], ...]:
    """Return the files in a ConfigMap, by their names."""
    data = below(config_map, "data")
    return data.entries if isinstance(data, Keys) else ()


def _entry(config_map: Keys, wanted: str) -> Scalar:
    entries = entries_of(config_map)
    found = [x for x in entries if not wanted or len(entries) == 1 or x[0].text == wanted]
    if len(found) == 1 and isinstance(found[0][1], Scalar):
        return found[0][1]
    names = ", ".join(sorted(name.text for name, _ in entries))
    message = f"this ConfigMap has {len(entries)} entries: {names}" if names else "this ConfigMap has no entries"
    if wanted and not found:
        message = f"this ConfigMap has no entry {wanted}; its entries are {names}"
    hint = "say which one is meant, `--entry NAME`" if names else "convert the one that the plugin reads"
    raise Unreadable(Finding(config_map.line, config_map.column, message, hint))


def _unwrap_daemon_set(root: Keys, formats: Formats) -> tuple[str, Node]:
    pod = below(root, "spec", "template", "spec")
    containers = below(pod, "containers") if isinstance(pod, Keys) else None
    for container in containers.items if isinstance(containers, Sequence) else ():
        image = text_of(container, "image").partition("@")[0] if isinstance(container, Keys) else ""
        if why := next((x for name, x in _WITHOUT_SETTINGS.items() if name in image), None):
            raise Unreadable(Finding(container.line, container.column, *why))
        for name, (wrapping, schema) in formats.items():
            if not wrapping.image or wrapping.image not in image or not isinstance(container, Keys):
                continue
            words = _words([x for part in ("command", "args") for x in _items(below(container, part))])
            if words and words[0].text.rpartition("/")[2] in wrapping.helpers:
                continue
            arguments = Sequence(tuple(words), container.line, container.column)
            selector = below(pod, "nodeSelector") if isinstance(pod, Keys) else None
            labels = [] if selector is None else [(key("nodeSelector", selector), selector)]
            if _has_device_flag(arguments):
                found = _device_arguments(arguments)
                return name, Keys((*found.entries, *labels), found.line, found.column)
            if wrapping.only_file or _has_file(container, arguments, wrapping):
                message = f"the devices of {name} are in its file, and not in its DaemonSet"
                raise Unreadable(
                    Finding(container.line, container.column, message, "convert the ConfigMap that it mounts")
                )
            entries = [*_flags(arguments, name, wrapping, schema), *_variables(container, wrapping)]
            if any(x.name == "node_selector" for x in structs.fields(schema)):
                entries += labels
            return name, _nested(entries, container)
    known = ", ".join(sorted(wrapping.image for wrapping, _ in formats.values() if wrapping.image))
    raise Unreadable(
        Finding(root.line, root.column, "no container of this DaemonSet is a known plugin", f"images: {known}")
    )


def _words(command: list[Node]) -> list[Scalar]:
    """Return a program and its arguments; of a shell script the last command, before which operators put others.

    The result excludes pipes and redirections of its output, commands after a failure, and the shell's waiting.
    """
    words = [x for x in command if isinstance(x, Scalar)]
    if len(words) < 3 or words[0].text.rpartition("/")[2] not in _SHELLS or words[1].text != "-c":
        return words
    pipelines = _ENDS.split(_REDIRECTION.sub(" ", words[2].text))
    commands = [x.partition("|")[0].split() for x in pipelines]
    programs = [x for x in commands if x not in ([], ["wait"])]
    return [with_text(words[2], x) for x in programs[-1] if x != "exec"] if programs else []


def _flags(arguments: Sequence, name: str, wrapping: Wrapping, schema: type) -> Iterator[tuple[Scalar, Node]]:
    """Yield the settings of `-flag VALUE`, `--flag=VALUE` and, for booleans, `-flag`, as Go reads them."""
    truths = {key for key in wrapping.flags.values() if _type_of(schema, key) is bool}
    texts = [x for x in arguments.items if isinstance(x, Scalar)]
    place = next((i for i, x in enumerate(texts) if x.text.startswith("-")), len(texts))
    while place < len(texts):
        one = texts[place]
        flag, equals, value = one.text.lstrip("-").partition("=")
        place += 1
        field = wrapping.flags.get(flag, "")
        is_other = flag in _LOGGING or flag in wrapping.others
        if not one.text.startswith("-") or not (field or is_other):
            hint = f"flags: {', '.join(sorted(wrapping.flags))}" if wrapping.flags else ""
            raise Unreadable(Finding(one.line, one.column, f"{one.text} is not a flag of {name}", hint))
        if not equals and field in truths:
            value = "true"
        elif not equals and place < len(texts) and not (is_other and texts[place].text.startswith("-")):
            value = texts[place].text
            place += 1
        if field:
            yield key(field, one), _value(value, one)


def _type_of(schema: type, key: str) -> object:
    """Return the type of a key of the schema, or, after a dot, of one of its mappings."""
    outer, _, inner = key.partition(".")
    of = {x.encode_name: x.name for x in structs.fields(schema)}
    found = get_type_hints(schema).get(of.get(outer, ""))
    return _type_of(found, inner) if inner and isinstance(found, type) and issubclass(found, Struct) else found


def _nested(entries: _Entries, at: Node) -> Keys:
    """Return entries as a mapping; those whose keys have a dot are in mappings of their own."""
    found: _Entries = []
    inner: dict[str, _Entries] = {}
    for name, value in entries:
        outer, _, rest = name.text.partition(".")
        if not rest:
            found.append((name, value))
            continue
        inner.setdefault(outer, []).append((with_text(name, rest), value))
    found += [(key(outer, at), _nested(values, at)) for outer, values in inner.items()]
    return Keys(tuple(found), at.line, at.column)


def _has_file(container: Keys, arguments: Sequence, wrapping: Wrapping) -> bool:
    flags = {x.text.lstrip("-").partition("=")[0] for x in arguments.items if isinstance(x, Scalar)}
    named = {text_of(x, "name") for x in _items(below(container, "env")) if isinstance(x, Keys)}
    return bool(wrapping.file & (flags | named))


def _variables(container: Keys, wrapping: Wrapping) -> Iterator[tuple[Scalar, Node]]:
    for entry in _items(below(container, "env")):
        if isinstance(entry, Keys) and (field := wrapping.variables.get(text_of(entry, "name"))):
            yield key(field, entry), _value(text_of(entry, "value"), entry)


def _value(text: str, at: Node) -> Scalar:
    """Return the value of a flag: a number or a boolean if it looks like one."""
    return Scalar(text, text.isdecimal() or text in ("true", "false"), at.line, at.column)


def _has_device_flag(root: Sequence) -> bool:
    return any(isinstance(x, Scalar) and x.text.startswith("--device") for x in root.items)


def _device_arguments(root: Sequence) -> Keys:
    """Return the settings of `--device VALUE` and `--device=VALUE`; other arguments do not concern devices."""
    texts = [x for x in root.items if isinstance(x, Scalar)]
    found = [
        parsed(after if one.text == "--device" else with_text(one, one.text.removeprefix("--device=")))
        for one, after in zip(texts, [*texts[1:], Scalar("", False, root.line, root.column)], strict=True)
        if one.text == "--device" or one.text.startswith("--device=")
    ]
    domain = [x.text.removeprefix("--domain=") for x in texts if x.text.startswith("--domain=")]
    domain += [b.text for a, b in pairwise(texts) if a.text == "--domain"]
    entries: _Entries = [(key("devices", root), Sequence(tuple(found), root.line, root.column))]
    entries += [(key("domain", root), key(x, root)) for x in domain[:1]]
    return Keys(tuple(entries), root.line, root.column)


def parsed(scalar: Scalar) -> Node:
    """Return a text as YAML; a mistake in it is reported at the place of the text."""
    try:
        root, twice = parse(without_tabs(scalar.text.encode()))
    except Unreadable as error:
        found = error.finding
        message = f"{found.message} (line {found.line} of this text)"
        raise Unreadable(Finding(scalar.line, scalar.column, message, found.hint)) from None
    if twice:
        raise Unreadable(Finding(scalar.line, scalar.column, twice[0].message))
    return root


def below(root: Node | None, *names: str) -> Node | None:
    """Return the value at nested keys; None if one of them does not exist."""
    for name in names:
        root = next((x for k, x in root.entries if k.text == name), None) if isinstance(root, Keys) else None
    return root


def _items(root: Node | None) -> tuple[Node, ...]:
    return root.items if isinstance(root, Sequence) else ()


def text_of(root: Keys, name: str) -> str:
    """Return the text of a key; empty if there is none."""
    value = below(root, name)
    return value.text if isinstance(value, Scalar) else ""


def key(text: str, at: Node) -> Scalar:
    """Return a text with the place of another node."""
    return Scalar(text, True, at.line, at.column)


def with_text(scalar: Scalar, text: str) -> Scalar:
    """Return a scalar with another text at the same place."""
    return Scalar(text, scalar.plain, scalar.line, scalar.column)
