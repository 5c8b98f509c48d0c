"""Random device selectors, each with a device. Equal seeds produce equal selectors."""

import random
from collections.abc import Mapping
from typing import Any

from tests.resourceapi.cel.random_expressions import ExpressionGenerator, Kind, mutated_expression

Json = dict[str, Any]

_DRIVER = "gpu.example.com"
_DOMAINS = (_DRIVER, _DRIVER, _DRIVER, "nic.example.com", "a.b")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "int": ("count", "numa"),
    "string": ("model", "bus"),
    "bool": ("healthy",),
    "semver": ("firmware",),
    "list(int)": ("lanes",),
    "list(string)": ("tags",),
    "list(bool)": ("flags",),
    "list(semver)": ("versions",),
    "quantity": ("memory", "bandwidth"),
}
"""The names of a device's values by type: quantities are capacities, all others are attributes."""
_FORMS = """
device.attributes['{d}'].{n}
device.attributes['{d}'].{n}
device.attributes["{d}"]["{n}"]
device.attributes['{d}'].?{n}.orValue({v})
device.attributes[?'{d}'].?{n}.orValue({v})
device.attributes['{d}'][?'{n}'].value()
device.?attributes['{d}'].{n}.orValue({v})
cel.bind(a, device.attributes['{d}'], a.{n})
(has(device.attributes['{d}'].{n}) ? device.attributes['{d}'].{n} : {v})
('{n}' in device.attributes['{d}'] ? device.attributes['{d}'].{n} : {v})
"""
_TESTS = """
has(device.attributes['{d}'].{n})
'{n}' in device.attributes['{d}']
'{d}' in device.attributes
device.attributes['{d}'].exists(k, k == '{n}')
device.attributes.exists(d, d.startsWith('a') && '{n}' in device.attributes[d])
device.attributes['{d}'].all(k, v, type(v) == string || k != '{n}')
device.attributes['{d}'].?{n}.hasValue()
device.attributes['{d}'].{n} == {v}
device.attributes['{d}'].{n}.includes({v})
device.allowMultipleAllocations
device.driver == '{d}'
size(device.attributes['{d}']) > 2
device.attributes['{d}'] == {{}}
device.attributes['{d}'] == device.attributes['a.b']
device.attributes['{d}'].map(k, v, k).size() == 3
device == device
device.nothing == 1
'{n}' in device
device.capacity == device.attributes
"""


def random_selector(seed: int) -> Json:
    """One problem in the form that upstream's program reads: `name`, `expression` and `device`."""
    rng = random.Random(seed)
    generator = _SelectorGenerator(rng)
    kind = ("bool", ()) if rng.random() < 0.93 else generator.any_kind(1)
    text = generator.make(kind, rng.choice((1, 2, 2, 3, 3, 4)))
    expression = mutated_expression(rng, text) if rng.random() < 0.04 else text
    return {"name": f"seed-{seed}", "expression": expression, "device": _device(rng)}


class _SelectorGenerator(ExpressionGenerator):
    def leaf(self, kind: Kind, depth: int) -> str:
        """A literal, or a value of the device."""
        name = _written(kind)
        if name not in _NAMES or self.rng.random() < 0.3:
            return super().leaf(kind, depth)
        names = {"n": self.rng.choice(_NAMES[name]), "d": self.rng.choice(_DOMAINS), "v": super().leaf(kind, 0)}
        if name == "bool" and self.rng.random() < 0.7:
            other = self.rng.choice(tuple(_NAMES))
            names |= {"n": self.rng.choice(_NAMES[other]), "v": self._literal(other)}
            return f"({self._one(_TESTS, names)})"
        if name == "string" and self.rng.random() < 0.2:
            return "device.driver"
        text = self._one(_FORMS, names)
        return text.replace("attributes", "capacity") if name == "quantity" else text

    def _literal(self, name: str) -> str:
        inner = name.removeprefix("list(").removesuffix(")")
        return super().leaf((inner, ()), 0)

    def _one(self, forms: str, names: Mapping[str, str]) -> str:
        return self.rng.choice(forms.strip().splitlines()).format_map(names)


def _written(kind: Kind) -> str:
    name, params = kind
    return f"{name}({', '.join(map(_written, params))})" if params else name


def _device(rng: random.Random) -> Json:
    attributes: Json = {}
    capacity: Json = {}
    for kind, names in _NAMES.items():
        for name in names:
            if rng.random() < 0.25:
                continue
            domain = rng.choice(("", "", "", f"{_DRIVER}/", "nic.example.com/", "a.b/"))
            if kind == "quantity":
                capacity[domain + name] = {"value": rng.choice(("1Gi", "40Gi", "0", "1500m", "10", "1e3"))}
            else:
                attributes[domain + name] = _value(rng, kind)
    device: Json = {"driver": _DRIVER, "attributes": attributes, "capacity": capacity}
    if rng.random() < 0.5:
        device["allowMultipleAllocations"] = rng.random() < 0.7
    return device


def _value(rng: random.Random, kind: str) -> Json:
    inner = kind.removeprefix("list(").removesuffix(")")
    if inner == kind:
        return {"version" if kind == "semver" else kind: rng.choice(_VALUES[kind])}
    plural = "versions" if inner == "semver" else f"{inner}s"
    return {plural: [rng.choice(_VALUES[inner]) for _ in range(rng.choice((0, 1, 1, 2, 3)))]}


_VALUES: Mapping[str, tuple[Any, ...]] = {
    "int": (0, 1, 2, 3, 8, -1, 2**63 - 1),
    "string": ("", "a", "ab", "abc", "A100", "1.2.3", "pci", "é"),
    "bool": (False, True),
    "semver": ("1.0.0", "1.2.3", "2.0.0-rc.1", "0.1.0+build"),
}
