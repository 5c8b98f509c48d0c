"""Random CustomResourceDefinitions and objects of the kinds they define. About half of them are invalid."""

import copy
import random
from collections.abc import Callable
from typing import Any

from tests.controlplane.apiserver.definitions.test_definitions import definition
from tests.controlplane.apiserver.running import Plain

_LIST, _KEYS, _MAP = (f"x-kubernetes-{name}" for name in ("list-type", "list-map-keys", "map-type"))
_FLAGS = tuple(f"x-kubernetes-{name}" for name in ("preserve-unknown-fields", "embedded-resource", "int-or-string"))
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_NAMES = ("a", "b", "k", "metadata", "kind", "apiVersion", "spec")
_SCALARS: tuple[Any, ...] = (0, 1, -3, 2.5, "", "a", "abc", "x y", True, False, None, 2**40)
_FORMATS = ("date", "ipv4", "uuid", "int32", "float", "byte", "none", "k8s-short-name", "date-time", "duration")
_RULES = ("self == oldSelf", "true", "self.a == 1", "size(self) < 3", "1", "self.", "has(self.b)", "", "self.x == 2")
_PATTERNS = ("^a", "[", "^[a-z]+$", "(?P<x>a)", "a{2,1}")


class Definitions:
    """Random definitions. Equal seeds produce equal definitions."""

    def __init__(self, seed: int, *, faults: float = 0.06) -> None:
        self._choose, self._faults = random.Random(seed), faults

    def next(self) -> Plain:
        """A definition of drivers with a random schema."""
        choose = self._choose
        made = definition()
        version = made["spec"]["versions"][0]
        version["schema"]["openAPIV3Schema"] = self.schema(0)
        if choose.random() < 0.5:
            version["subresources"] = choose.choice(({}, None, self._scale(), {"status": {}, **self._scale()}))
        if choose.random() < 0.3:
            other = copy.deepcopy(version) | {"name": choose.choice(("v2", "v1beta1", "v1alpha1")), "storage": False}
            if choose.random() < 0.6:
                other["schema"] = {"openAPIV3Schema": self.schema(0)}
            made["spec"]["versions"].append(other)
        if choose.random() < 0.3:
            self._change(made)
        return made

    def schema(self, depth: int) -> Plain:
        """A schema. Deeper schemas are smaller. The schema at depth 0 has type object."""
        choose = self._choose
        kind = "object" if depth == 0 else choose.choice(_TYPES)
        made: Plain = {"type": kind}
        if kind == "object" and depth < 3:
            names = choose.sample(_NAMES[:3] if depth else _NAMES, choose.randrange(1, 4))
            if depth and choose.random() < 0.3:
                made["additionalProperties"] = choose.choice((True, self.schema(depth + 1), self.schema(depth + 1)))
            else:
                made["properties"] = {name: self.schema(depth + 1) for name in names}
            if depth and choose.random() < 0.15:
                made["x-kubernetes-embedded-resource"] = True
            if choose.random() < 0.2:
                made["required"] = choose.sample(_NAMES[:3], 1)
        elif kind == "array":
            made["items"] = self.schema(depth + 1)
        for _ in range(choose.choice((0, 0, 1, 1, 2))):
            self._limit(made, kind, depth)
        if self._is_fault():
            self._spoil(made, depth)
        return made

    def value(self, schema: Plain, depth: int = 0) -> Any:
        """A value that approximately fits a schema."""
        choose = self._choose
        if choose.random() < 0.08:
            return choose.choice((*_SCALARS, [], {}, {"a": 1}, ["a"], [None]))
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                items = schema.get("items") or {}
                return [self.value(items, depth + 1) for _ in range(choose.randrange(4))] if depth < 6 else []
            case "string":
                return choose.choice(("", "a", "abc", "x y", "2020-01-02", "10.0.0.1", "ä"))
            case "boolean":
                return choose.choice((True, False))
            case "integer":
                return choose.choice((0, 1, 2, -1, 5, 2**40, 1.0))
            case "number":
                return choose.choice((0, 1, 2.5, -0.5, 1e30))
        return choose.choice(_SCALARS)

    def _object(self, schema: Plain, depth: int) -> Plain:
        choose = self._choose
        made = {}
        for name, child in (schema.get("properties") or {}).items():
            if choose.random() < 0.8 and depth < 6:
                made[name] = self.value(child, depth + 1)
        if isinstance(schema.get("additionalProperties"), dict) and depth < 6:
            made |= {name: self.value(schema["additionalProperties"], depth + 1) for name in ("k1", "k2")}
        if choose.random() < 0.2:
            made[choose.choice(("other", "a", "x"))] = choose.choice((1, {"y": 1}, [1], "t"))
        if schema.get("x-kubernetes-embedded-resource") and choose.random() < 0.8:
            made |= {
                "apiVersion": choose.choice(("v1", "a/b", "a/b/c", "", 1)),
                "kind": choose.choice(("Pod", "_", "")),
            }
            made["metadata"] = choose.choice(({"name": "a"}, {"labels": {"a": "b"}, "x": 1}, {"name": 1}, None, {}))
        return made

    def _limit(self, schema: Plain, kind: str, depth: int) -> None:
        """Add another constraint that a schema of this type can have."""
        choose = self._choose
        ways: dict[str, tuple[Callable[[], Plain], ...]] = {
            "string": (
                lambda: {"maxLength": choose.randrange(4)},
                lambda: {"minLength": choose.randrange(3)},
                lambda: {"pattern": choose.choice(_PATTERNS)},
                lambda: {"format": choose.choice(_FORMATS)},
                lambda: {"enum": choose.sample(("a", "b", "abc", 1), 2)},
            ),
            "integer": (
                lambda: {"maximum": choose.randrange(4)},
                lambda: {"minimum": choose.randrange(3), "exclusiveMinimum": choose.random() < 0.5},
                lambda: {"multipleOf": choose.choice((1, 2, 0.5, 0, -1))},
                lambda: {"enum": [1, 2]},
            ),
            "array": (
                lambda: {"maxItems": choose.randrange(3)},
                lambda: {"minItems": choose.randrange(2)},
                lambda: {_LIST: choose.choice(("atomic", "set", "map", "x"))},
                lambda: {_LIST: "map", _KEYS: choose.choice((["a"], ["a", "b"], ["a", "a"], []))},
            ),
            "object": (
                lambda: {"maxProperties": choose.randrange(3)},
                lambda: {"minProperties": choose.randrange(2)},
                lambda: {_MAP: choose.choice(("atomic", "granular", "x"))},
                lambda: {"x-kubernetes-preserve-unknown-fields": True},
            ),
        }
        if kind in ways and choose.random() < 0.8:
            schema |= choose.choice(ways[kind])()
        elif choose.random() < 0.35:
            schema["default"] = self.value({**schema}, depth)
        elif choose.random() < 0.3:
            schema["nullable"] = True
        elif choose.random() < 0.4:
            rule = {"rule": choose.choice(_RULES)}
            schema["x-kubernetes-validations"] = [rule | choose.choice(({}, {"message": "no"}, {"fieldPath": ".a"}))]
        elif choose.random() < 0.6:
            narrow = choose.choice(({"minLength": 1}, {"maximum": 2}, {"required": ["a"]}, {"pattern": "^a"}))
            name = choose.choice(("allOf", "anyOf", "oneOf", "not"))
            schema[name] = narrow if name == "not" else [narrow, choose.choice(({"maxLength": 2}, {"enum": ["a", 1]}))]

    def _spoil(self, schema: Plain, depth: int) -> None:
        """Add something that is invalid in a schema, or invalid at this position."""
        choose = self._choose
        other = self.schema(depth + 1) if depth < 3 else {"type": "string"}
        schema |= choose.choice(
            (
                {"type": choose.choice(("", "null", "x", "string", "array"))},
                {"additionalProperties": choose.choice((other, True, False))},
                {choose.choice(_FLAGS): choose.choice((True, True, False))},
                {"id": "x"},
                {"$schema": "x"},
                {"$ref": choose.choice(("#/x", ""))},
                {"patternProperties": {"x": other}},
                {"definitions": {"x": other}},
                {"dependencies": choose.choice(({"x": ["y"]}, {"x": other}, {}))},
                {"additionalItems": choose.choice((True, other))},
                {"uniqueItems": True},
                {"items": choose.choice((other, [other], [], {}))},
                {"nullable": True},
                {"title": "t", "description": "d"},
                {choose.choice(("allOf", "anyOf", "oneOf")): [other, {"type": "string"}]},
                {"anyOf": [{"type": "integer"}, {"type": "string"}], _FLAGS[2]: True},
                {"not": other},
                {"not": {"properties": {"zz": {"minLength": 1}, "metadata": {}}, "items": {"default": 1}}},
                {"default": choose.choice((*_SCALARS, {"a": {"b": 1}}, [{"a": 1}], {"zz": 1}))},
                {_LIST: choose.choice(("set", "map", ""))},
                {_KEYS: ["a"]},
                {_MAP: choose.choice(("atomic", ""))},
                {"properties": {"metadata": other}},
                {"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}},
                {"properties": None},
                {"enum": choose.choice(([], None, ["a"]))},
                {"x-kubernetes-validations": [{"rule": "self.b", "messageExpression": "1", "reason": "x"}]},
                {"example": {"a": 1}, "externalDocs": {"url": "x"}},
            )
        )

    def _scale(self) -> Plain:
        choose = self._choose
        paths = (".spec.a", ".status.b", "spec.a", "", ".spec", ".metadata.x")
        names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        return {"scale": {name: choose.choice(paths[:2] if choose.random() < 0.7 else paths) for name in names}}

    def _change(self, made: Plain) -> None:
        """Change a part of the definition outside its schemas."""
        choose = self._choose
        spec, version = made["spec"], made["spec"]["versions"][0]
        bad_names = ("A", "a.b", "-", "x" * 64, "1a", "")
        column = {"name": "n", "type": "string", "jsonPath": ".spec.a"}
        client = {"url": "https://a/b", "caBundle": "eA=="}
        service = {"service": {"name": "n", "namespace": "m", "path": choose.choice(("/a", "a", "//", "/a//b", "/A"))}}
        ways: tuple[Callable[[], Any], ...] = (
            lambda: spec["names"].update({choose.choice(("plural", "singular")): choose.choice(bad_names)}),
            lambda: spec["names"].update({choose.choice(("kind", "listKind")): choose.choice((*bad_names, "Driver"))}),
            lambda: spec["names"].update({choose.choice(("shortNames", "categories")): [choose.choice(bad_names)]}),
            lambda: spec.update(group=choose.choice(("example", "Example.com", "", "x.k8s.io", "k8s.io"))),
            lambda: spec.update(scope=choose.choice(("", "x", "Cluster"))),
            lambda: spec.update(preserveUnknownFields=True),
            lambda: spec.update(versions=choose.choice(([], None, [{}], [{"name": "v1", "storage": True}]))),
            lambda: version.update(name=choose.choice(bad_names)),
            lambda: version.update(storage=False),
            lambda: version.update(
                deprecated=choose.choice((True, False)), deprecationWarning=choose.choice(("", "w"))
            ),
            lambda: version.update(additionalPrinterColumns=[column | self._column()]),
            lambda: version.update(selectableFields=[{"jsonPath": self._path()} for _ in range(choose.choice((1, 2)))]),
            lambda: spec.update(conversion={"strategy": choose.choice(("None", "Webhook", "x", ""))}),
            lambda: spec.update(
                conversion={
                    "strategy": choose.choice(("Webhook", "Webhook", "None")),
                    "webhook": {
                        "clientConfig": choose.choice((client, service, {}, client | service, None, self._url())),
                        "conversionReviewVersions": choose.choice((["v1"], [], ["v2", "v2"], ["A"])),
                    },
                }
            ),
            lambda: made["metadata"].update(name=choose.choice(("x", "drivers.example.com", "Drivers.example.com"))),
            lambda: made["metadata"].update(
                annotations={"api-approved.kubernetes.io": choose.choice(("x", "https://a"))}
            ),
        )
        choose.choice(ways)()

    def _column(self) -> Plain:
        choose = self._choose
        return choose.choice(
            (
                {"type": choose.choice(("", "x", "date"))},
                {"format": choose.choice(("x", "int32"))},
                {"jsonPath": choose.choice(("", "a", ".", ".a[0]"))},
                {"name": ""},
                {"priority": 1},
            )
        )

    def _url(self) -> Plain:
        texts = ("http://a", "https://", "https://u@a/b?c#d", "a", "")
        return {"url": self._choose.choice(texts)}

    def _path(self) -> str:
        return self._choose.choice(
            (".spec", ".a", ".spec.a", "a", ".metadata.name", "", ".spec['a']", ".a.b", ".", ".b")
        )

    def _is_fault(self) -> bool:
        return self._choose.random() < self._faults
