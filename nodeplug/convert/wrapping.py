"""What a plugin's file comes in: a ConfigMap, an object of its operator, a DaemonSet, or a program's arguments.

Flags become the keys of the operator's object, so that a plugin has one schema for both.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct, structs

from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Node, Scalar, Sequence, Unreadable, parse

PERMITTED = "permittedHostDevices"
_LOGGING = frozenset({"v", "vmodule", "logtostderr", "alsologtostderr", "stderrthreshold", "log_dir", "prefix"})
_Entries: TypeAlias = list[tuple[Scalar, Node]]


class Wrapping(Struct, frozen=True):
    """Where the settings of a program stand that has no file.

    `kind` is that of its operator's objects, whose `spec` has them. `image` is in the name of its image. `flags` and
    `variables` are the keys of the same settings on its command line and in its environment.
    """

    kind: str = ""
    image: str = ""
    flags: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}


def unwrapped(root: Node, formats: Mapping[str, tuple[Wrapping, type]], name: str) -> tuple[str, Node]:
    """Return what there is to convert, and the name of its format where its wrapping tells it, else `name`.

    `formats` has each format's wrapping and schema. Raises `Unreadable`.
    """
    if isinstance(root, Keys):
        return _of_object(root, formats, name)
    if isinstance(root, Sequence) and _has_device_flag(root):
        return name, _device_arguments(root)
    if isinstance(root, Sequence) and name and all(isinstance(x, Scalar) for x in root.items):
        return name, Keys(tuple(_flags(root, name, *formats[name])), root.line, root.column)
    return name, root


def _of_object(root: Keys, formats: Mapping[str, tuple[Wrapping, type]], name: str) -> tuple[str, Node]:
    kind = _text_of(root, "kind")
    if kind == "KubeVirt":
        permitted = _below(root, "spec", "configuration", PERMITTED)
        if permitted is None:
            raise Unreadable(Finding(root.line, root.column, f"this KubeVirt has no spec.configuration.{PERMITTED}"))
        return name, Keys(((key(PERMITTED, root), permitted),), root.line, root.column)
    if kind == "ConfigMap":
        data = _below(root, "data")
        entries = data.entries if isinstance(data, Keys) else ()
        if len(entries) != 1 or not isinstance(entries[0][1], Scalar):
            wanted = "give the one that is the plugin's as a file of its own"
            raise Unreadable(Finding(root.line, root.column, f"this ConfigMap has {len(entries)} entries", wanted))
        return name, _parsed(entries[0][1])
    if kind == "DaemonSet":
        return _of_daemon_set(root, formats)
    for found, (wrapping, _) in formats.items():
        if kind and wrapping.kind == kind:
            spec = _below(root, "spec")
            return found, spec if isinstance(spec, Keys) else Keys((), root.line, root.column)
    return name, root


def _of_daemon_set(root: Keys, formats: Mapping[str, tuple[Wrapping, type]]) -> tuple[str, Node]:
    pod = _below(root, "spec", "template", "spec")
    containers = _below(pod, "containers") if isinstance(pod, Keys) else None
    for container in containers.items if isinstance(containers, Sequence) else ():
        image = _text_of(container, "image").partition("@")[0] if isinstance(container, Keys) else ""
        for name, (wrapping, schema) in formats.items():
            if not wrapping.image or wrapping.image not in image or not isinstance(container, Keys):
                continue
            words = [x for part in ("command", "args") for x in _items(_below(container, part))]
            arguments = Sequence(tuple(words), container.line, container.column)
            if _has_device_flag(arguments):
                return name, _device_arguments(arguments)
            entries = [*_flags(arguments, name, wrapping, schema), *_variables(container, wrapping)]
            selector = _below(pod, "nodeSelector") if isinstance(pod, Keys) else None
            if selector is not None and any(x.name == "node_selector" for x in structs.fields(schema)):
                entries.append((key("nodeSelector", selector), selector))
            return name, Keys(tuple(entries), container.line, container.column)
    known = ", ".join(sorted(wrapping.image for wrapping, _ in formats.values() if wrapping.image))
    raise Unreadable(
        Finding(
            root.line, root.column, "no container of this DaemonSet is of a plugin that is known", f"images: {known}"
        )
    )


def _flags(arguments: Sequence, name: str, wrapping: Wrapping, schema: type) -> Iterator[tuple[Scalar, Node]]:
    """Yield what `-flag VALUE`, `--flag=VALUE` and, of a truth value, `-flag` stand for, as Go reads them."""
    truths = {field.encode_name for field in structs.fields(schema) if field.type is bool}
    texts = [x for x in arguments.items if isinstance(x, Scalar)]
    place = next((i for i, x in enumerate(texts) if x.text.startswith("-")), len(texts))
    while place < len(texts):
        one = texts[place]
        flag, equals, value = one.text.lstrip("-").partition("=")
        place += 1
        field = wrapping.flags.get(flag, "")
        if not one.text.startswith("-") or not (field or flag in _LOGGING):
            hint = f"flags: {', '.join(sorted(wrapping.flags))}" if wrapping.flags else ""
            raise Unreadable(Finding(one.line, one.column, f"{one.text} is no flag of {name}", hint))
        if not equals and field in truths:
            value = "true"
        elif not equals and place < len(texts) and not (flag in _LOGGING and texts[place].text.startswith("-")):
            value = texts[place].text
            place += 1
        if field:
            yield key(field, one), _value(value, one)


def _variables(container: Keys, wrapping: Wrapping) -> Iterator[tuple[Scalar, Node]]:
    for entry in _items(_below(container, "env")):
        if isinstance(entry, Keys) and (field := wrapping.variables.get(_text_of(entry, "name"))):
            yield key(field, entry), _value(_text_of(entry, "value"), entry)


def _value(text: str, at: Node) -> Scalar:
    """Return the value of a flag: a number or a truth value where it looks like one."""
    return Scalar(text, text.isdecimal() or text in ("true", "false"), at.line, at.column)


def _has_device_flag(root: Sequence) -> bool:
    return any(isinstance(x, Scalar) and x.text.startswith("--device") for x in root.items)


def _device_arguments(root: Sequence) -> Keys:
    """Return what `--device VALUE` and `--device=VALUE` stand for; other arguments are about the program."""
    texts = [x for x in root.items if isinstance(x, Scalar)]
    found = [
        _parsed(after if one.text == "--device" else with_text(one, one.text.removeprefix("--device=")))
        for one, after in zip(texts, [*texts[1:], Scalar("", False, root.line, root.column)], strict=True)
        if one.text == "--device" or one.text.startswith("--device=")
    ]
    domain = [x.text.removeprefix("--domain=") for x in texts if x.text.startswith("--domain=")]
    domain += [b.text for a, b in pairwise(texts) if a.text == "--domain"]
    entries: _Entries = [(key("devices", root), Sequence(tuple(found), root.line, root.column))]
    entries += [(key("domain", root), key(x, root)) for x in domain[:1]]
    return Keys(tuple(entries), root.line, root.column)


def _parsed(scalar: Scalar) -> Node:
    """Return what a text is as YAML; whatever is wrong with it is at the text's own place."""
    try:
        root, twice = parse(scalar.text.encode())
    except Unreadable as error:
        found = error.finding
        message = f"{found.message} (line {found.line} of this text)"
        raise Unreadable(Finding(scalar.line, scalar.column, message, found.hint)) from None
    if twice:
        raise Unreadable(Finding(scalar.line, scalar.column, twice[0].message))
    return root


def _below(root: Node | None, *names: str) -> Node | None:
    """Return what stands under keys in one another; None where one of them is not there."""
    for name in names:
        root = next((x for k, x in root.entries if k.text == name), None) if isinstance(root, Keys) else None
    return root


def _items(root: Node | None) -> tuple[Node, ...]:
    return root.items if isinstance(root, Sequence) else ()


def _text_of(root: Keys, name: str) -> str:
    """Return the text under a key; empty where there is none."""
    value = _below(root, name)
    return value.text if isinstance(value, Scalar) else ""


def key(text: str, at: Node) -> Scalar:
    """Return a text that stands where another node stands."""
    return Scalar(text, True, at.line, at.column)


def with_text(scalar: Scalar, text: str) -> Scalar:
    """Return a scalar at the same place that says something else."""
    return Scalar(text, scalar.plain, scalar.line, scalar.column)
