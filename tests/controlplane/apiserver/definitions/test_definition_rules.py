"""Validation of definitions, with a real API server's messages (1.37; `python -m tests.e2e.compare_definitions`)."""

from typing import Any

import pytest

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition, driver
from tests.controlplane.apiserver.running import APPLY, MERGE, Http, Plain

ROOT = "spec.validation.openAPIV3Schema"
A = f"{ROOT}.properties[a]"
LIST, KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
EMBEDDED, OPEN = "x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"
TEXT = {"type": "string"}
WITH_STATUS = (
    "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern"
    " MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields"
    " XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
)


@pytest.fixture
def drivers(api: Http) -> Http:
    """A server that has the definition."""
    api.ok("POST", DEFINITIONS, definition())
    return api


def with_schema(schema: Plain, **version: Any) -> Plain:
    made = definition()
    made["spec"]["versions"][0] |= {"schema": {"openAPIV3Schema": {"type": "object"} | schema}} | version
    return made


def validation_errors(api: Http, made: Plain) -> list[str]:
    answer = api.send("POST", DEFINITIONS, made, dryRun="All")
    assert answer.status == 422, answer
    return [f"{each['field']}: {each['message']}" for each in answer.body["details"]["causes"]]


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ({"type": "null"}, ['type: Unsupported value: "null": supported values: "array", "boolean", "integer",'
          ' "number", "object", "string"',
          "type: Forbidden: type cannot be set to null, use nullable as an alternative"]),
        ({"type": "array"}, ["items: Required value: must be specified"]),
        (TEXT | {"id": "x"}, ["id: Forbidden: id is not supported"]),
        (TEXT | {"dependencies": {"x": ["y"]}}, ["dependencies: Forbidden: dependencies is not supported"]),
        (TEXT | {"additionalItems": True}, ["additionalItems: Forbidden: additionalItems is not supported"]),
        (TEXT | {"uniqueItems": True}, ["uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime"
          " complexity becomes quadratic"]),
        ({"type": "object", "properties": {"b": TEXT}, "additionalProperties": TEXT},
         ["additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"]),
        (TEXT | {OPEN: False}, [f"{OPEN}: Invalid value: false: must be true or undefined"]),
        ({"type": "object", EMBEDDED: True},
         [f"properties: Required value: must not be empty if {EMBEDDED} is true without {OPEN}"]),
        (TEXT | {EMBEDDED: True, OPEN: True}, [f'type: Invalid value: "string": must be object if {EMBEDDED} is true']),
        ({"x-kubernetes-int-or-string": True, OPEN: True},
         [f"{OPEN}: Invalid value: true: must be false if x-kubernetes-int-or-string is true"]),
        (TEXT | {"allOf": [{"title": "t", "default": 1, "nullable": True}]},
         ["allOf[0].default: Forbidden: must be undefined to be structural",
          "allOf[0].nullable: Forbidden: must be false to be structural",
          "allOf[0].title: Forbidden: must be empty to be structural"]),
        ({"type": "array", "items": TEXT, LIST: "map", KEYS: ["k"]},
         ['items.type: Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map']),
        ({"type": "array", "items": TEXT, LIST: "x"},
         [f'{LIST}: Unsupported value: "x": supported values: "atomic", "set", "map"']),
        (TEXT | {"x-kubernetes-map-type": "atomic"},
         ['type: Invalid value: "string": must be object if x-kubernetes-map-type is specified']),
    ],
)  # fmt: skip
def test_schema_error_has_its_field_path(api: Http, a: Plain, expected: list[str]) -> None:
    assert validation_errors(api, with_schema({"properties": {"a": a}})) == [f"{A}.{each}" for each in expected]


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (TEXT | {"default": 1}, 'Invalid value: "integer":  in body must be of type string: "integer"'),
        (TEXT | {"default": "abc", "maxLength": 2}, "Too long: may not be more than 2 bytes"),
        ({"type": "object", "properties": {"b": TEXT}, "default": {"c": 1}},
         'Invalid value: {"c":1}: must not have unknown fields'),
        ({"type": "array", "items": {"type": "object"}, "default": [{"c": 1}, {}]},
         'Invalid value: [{"c":1},{}]: must not have unknown fields'),
        ({"type": "integer", "default": 1, "multipleOf": 0.5},
         'Invalid value: "": MultipleOf value must be of type integer (default format) in '),
        (TEXT | {"default": "x", "x-kubernetes-validations": [{"rule": "self == 'y'"}]},
         "Invalid value: failed rule: self == 'y'"),
    ],
)  # fmt: skip
def test_default_that_violates_its_schema_is_refused(api: Http, a: Plain, expected: str) -> None:
    found = validation_errors(api, with_schema({"properties": {"a": a}}))
    assert f"{A}.default: {expected}" in found[0].replace('Invalid value: "x": failed', "Invalid value: failed")


def test_default_error_has_the_path_of_the_item(api: Http) -> None:
    """The path of a type error has a dot before the index; the path of a rule error has none."""
    flags = {"type": "array", "items": {"type": "boolean"}, "default": [True, []]}
    (found,) = validation_errors(api, with_schema({"properties": {"a": flags}}))
    assert found.startswith(f"{A}.default.[1]: Invalid value:")
    texts = TEXT | {"x-kubernetes-validations": [{"rule": "self == 'y'"}]}
    a = {"type": "object", "additionalProperties": texts, "default": {"k": "x"}}
    assert validation_errors(api, with_schema({"properties": {"a": a}}))[0].startswith(
        f"{A}.default[k]: Invalid value:"
    )


def test_default_of_kind_or_metadata_is_refused(api: Http) -> None:
    named = {"metadata": {"type": "object", "default": {}}, "kind": TEXT | {"default": "x"}}
    assert validation_errors(api, with_schema({"properties": named})) == [
        f"{ROOT}.properties[kind].default: Forbidden: must not be set in top-level kind",
        f"{ROOT}.properties[metadata].default: Forbidden: must not be set in top-level metadata",
    ]
    for narrow in ({"properties": {"labels": {"type": "object"}}}, {"x-kubernetes-map-type": ""}):
        assert (
            f"{ROOT}.properties[metadata]: Forbidden: must not specify anything other than name and generateName,"
            " but metadata is implicitly specified"
        ) in validation_errors(api, with_schema({"properties": {"metadata": {"type": "object"} | narrow}}))


def test_root_keyword_is_refused_if_status_subresource_is_enabled(api: Http) -> None:
    (why,) = validation_errors(api, with_schema({"minProperties": 0}))
    assert why.startswith(f'{ROOT}: Invalid value: {{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object",')
    assert why.endswith(f": {WITH_STATUS}")
    api.ok("POST", DEFINITIONS, with_schema({"minProperties": 0}, subresources={}), dryRun="All")


def test_property_only_in_all_of_is_refused(api: Http) -> None:
    narrowed = {"properties": {"a": TEXT}, "allOf": [{"properties": {"b": {"minLength": 1}}}]}
    assert validation_errors(api, with_schema(narrowed, subresources={})) == [
        f"{ROOT}.properties[b]: Required value: because it is defined in {ROOT}.allOf[0].properties[b]"
    ]


@pytest.mark.parametrize(
    ("spec", "version", "expected"),
    [
        ({"group": "example"}, {}, 'spec.group: Invalid value: "example": should be a domain with at least one dot'),
        ({}, {"deprecationWarning": "w"},
         'spec.versions[0].deprecationWarning: Invalid value: "w": can only be set for deprecated versions'),
        ({}, {"storage": False}, "spec.versions: Invalid value: "
         '[{"Name":"v1alpha1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,'
         '"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version'
         " marked as storage version"),
        ({}, {"subresources": {"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}}},
         'spec.subresources.scale.specReplicasPath: Invalid value: ".status.n": should be a json path under .spec'),
        ({}, {"additionalPrinterColumns": [{"name": "n", "type": "string", "format": "x", "jsonPath": ".a"}]},
         'spec.additionalPrinterColumns[0].format: Invalid value: "x": must be one of'
         " byte,date,date-time,double,float,int32,int64,password"),
        ({}, {"selectableFields": [{"jsonPath": ".spec.none"}]},
         'spec.selectableFields[0].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid'
         " field"),
        ({}, {"selectableFields": [{"jsonPath": ".spec"}]},
         'spec.selectableFields[0].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or'
         " integer. Enum string fields and strings with formats are allowed."),
        ({}, {"selectableFields": [{"jsonPath": ".a.b"}], "schema": {"openAPIV3Schema": {"type": "object",
         "properties": {"a": {"type": "object", "additionalProperties": True}}}}},
         'spec.selectableFields[0].jsonPath: Invalid value: ".a.b": must point to a field of type string, boolean or'
         " integer. Enum string fields and strings with formats are allowed."),
        ({"conversion": {"strategy": "Webhook"}}, {},
         "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"),
        ({"preserveUnknownFields": True}, {},
         "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema"),
    ],
)  # fmt: skip
def test_invalid_fields_beside_the_schema_are_refused(api: Http, spec: Plain, version: Plain, expected: str) -> None:
    made = definition(**spec)
    made["metadata"]["name"] = f"drivers.{made['spec']['group']}"
    made["spec"]["versions"][0] |= version
    assert expected in validation_errors(api, made)


def test_schema_error_names_the_version_if_schemas_differ(api: Http) -> None:
    """Errors that all versions share are reported for the definition, others for the version that has them."""
    made = with_schema({"properties": {"a": {}}})
    other = made["spec"]["versions"][0] | {"name": "v2", "storage": False}
    made["spec"]["versions"].append(other)
    why = "Required value: must not be empty for specified object fields"
    assert validation_errors(api, made) == [f"{A}.type: {why}"]
    nested = {"type": "object", "properties": {"b": {"type": "object", "$schema": "x"}}}
    made["spec"]["versions"][1] = other | {"schema": {"openAPIV3Schema": nested}}
    unread = "spec.versions[1].schema.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"
    assert validation_errors(api, made) == [
        f"spec.versions[0].schema.openAPIV3Schema.properties[a].type: {why}",
        unread,
    ]
    made["spec"]["versions"][1] = other | {"schema": {"openAPIV3Schema": {"type": "object"}}}
    assert validation_errors(api, made) == [f"spec.versions[0].schema.openAPIV3Schema.properties[a].type: {why}"]


def test_update_keeps_scope_and_kind_and_records_stored_versions(api: Http) -> None:
    api.ok("POST", DEFINITIONS, definition())
    path = f"{DEFINITIONS}/drivers.example.com"
    other = api.send("PATCH", path, {"spec": {"scope": "Cluster", "names": {"kind": "Other"}}}, content=MERGE)
    assert [(each["field"], each["message"]) for each in other.body["details"]["causes"]] == [
        ("spec.scope", 'Invalid value: "Cluster": field is immutable'),
        ("spec.names.kind", 'Invalid value: "Other": field is immutable'),
    ]
    first = definition()["spec"]["versions"][0]
    both = [first | {"storage": False}, first | {"name": "v1"}]
    changed = api.ok("PATCH", path, {"spec": {"versions": both}}, content=MERGE)
    assert changed["status"]["storedVersions"] == ["v1alpha1", "v1"]
    gone = api.send("PATCH", path, {"spec": {"versions": both[1:]}}, content=MERGE)
    assert 'status.storedVersions[0]: Invalid value: "v1alpha1": missing from spec.versions' in gone.message


def test_empty_versions_and_empty_dependencies_are_refused(api: Http) -> None:
    body = definition()
    body["spec"]["versions"] = []
    assert "spec.versions: Invalid value: []: must have exactly one" in api.send("POST", DEFINITIONS, body).message
    inner = {"type": "object", "dependencies": {}}
    answer = api.send("POST", DEFINITIONS, with_schema({"properties": {"dependencies": inner}}))
    assert [(each["field"], each["message"]) for each in answer.body["details"]["causes"]] == [
        (
            "spec.validation.openAPIV3Schema.properties[dependencies].dependencies",
            "Forbidden: dependencies is not supported",
        )
    ]


def test_empty_schema_lists_are_reported_but_not_stored(api: Http) -> None:
    body = definition()
    version = body["spec"]["versions"][0]
    schema = {"type": "object", "enum": [], "properties": {"p": {"type": "array", "items": []}}}
    version |= {"subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    texts = [each["message"] for each in api.send("POST", DEFINITIONS, body).body["details"]["causes"]]
    assert "Required value: must be specified" in texts
    assert any('"Enum":[],' in text and '"Items":{"Schema":null,"JSONSchemas":[]}' in text for text in texts)
    version |= {"subresources": None, "schema": {"openAPIV3Schema": {"type": "object", "enum": [], "required": []}}}
    first = api.ok("POST", DEFINITIONS, body)
    assert first["spec"]["versions"][0]["schema"] == {"openAPIV3Schema": {"type": "object"}}
    path, change = f"{DEFINITIONS}/{first['metadata']['name']}", {"spec": {"versions": body["spec"]["versions"]}}
    assert api.ok("GET", path) == api.ok("PATCH", path, change, content=MERGE)


def test_status_update_accepts_any_stored_version(api: Http) -> None:
    api.ok("POST", DEFINITIONS, definition())
    path = f"{DEFINITIONS}/drivers.example.com/status"
    for stored in (["v0", "v1alpha1"], ["v0"]):
        changed = api.ok("PATCH", path, {"status": {"storedVersions": stored}}, content=MERGE)
        assert changed["status"]["storedVersions"] == stored
    bad = api.send("PATCH", path, {"status": {"acceptedNames": {"plural": "A_"}}}, content=MERGE)
    assert bad.body["details"]["causes"][0]["field"] == "status.acceptedNames.plural"


def test_embedded_resource_is_validated_and_pruned(api: Http) -> None:
    inner = {"type": "object", EMBEDDED: True, OPEN: True}
    api.ok("POST", DEFINITIONS, with_schema({"properties": {"spec": inner}}))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1}, "y": 1}
    made = api.send("POST", DRIVERS, driver("a", pod))
    assert made.body["spec"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "y": 1}
    assert made.warnings == ['299 - "unknown field \\"spec.metadata.x\\""']
    bare = api.send("POST", DRIVERS, driver("b", {"kind": "_", "metadata": {"labels": {"a b": ""}}}))
    assert [each["field"] for each in bare.body["details"]["causes"]] == [
        "spec.apiVersion",
        "spec.kind",
        "spec.metadata.labels",
    ]
    assert api.send("POST", DRIVERS, driver("b", {"apiVersion": 1})).status == 400


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer", "enum": [1, 2]}, 3, ['spec.v: Unsupported value: 3: supported values: "1", "2"']),
        (TEXT | {"enum": ["a"]}, [], ['spec.v: Invalid value: "array": spec.v in body must be of type string: "array"',
                                     'spec.v: Unsupported value: []: supported values: "a"']),
        ({"type": "integer"}, 1.5, ['spec.v: Invalid value: "number": spec.v in body must be of type integer: "number"',
                                   '<nil>: Invalid value: "": Checked value must be of type integer (default format) in'
                                   " spec.v"]),
        ({"type": "integer", "multipleOf": -1}, 1,
         ["spec.v: Invalid value: -1: factor MultipleOf declared for spec.v must be positive: -1"]),
        ({"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 5}]}, 3,
         ['<nil>: Invalid value: "": "spec.v" must validate at least one schema (anyOf)',
          "spec.v: Invalid value: 3: spec.v in body should be less than or equal to 1"]),
        ({"type": "integer", "allOf": [{"maximum": 1}]}, 3,
         ["spec.v: Invalid value: 3: spec.v in body should be less than or equal to 1",
          '<nil>: Invalid value: "": "spec.v" must validate all the schemas (allOf). None validated']),
        ({"type": "object", "maxProperties": 0, OPEN: True}, {"a": 1},
         ["spec.v: Too many: 1: must have at most 0 items"]),
    ],
)  # fmt: skip
def test_invalid_value_reports_all_errors_in_order(api: Http, schema: Plain, value: Any, expected: list[str]) -> None:
    """Each error has its path, and the errors have upstream's order."""
    api.ok("POST", DEFINITIONS, with_schema({"properties": {"spec": {"type": "object", "properties": {"v": schema}}}}))
    answer = api.send("POST", DRIVERS, driver("a", {"v": value}))
    assert [f"{each['field']}: {each['message']}" for each in answer.body["details"]["causes"]] == expected


def test_whole_number_is_stored_without_decimal_point(api: Http) -> None:
    numbers = {"type": "object", OPEN: True}
    api.ok("POST", DEFINITIONS, with_schema({"properties": {"spec": numbers}}))
    made = api.send("POST", DRIVERS, b'{"apiVersion":"example.com/v1alpha1","kind":"Driver","metadata":{"name":"a"},'
                    b'"spec":{"a":1.0,"b":1e3,"c":2.5}}')  # fmt: skip
    assert b'"spec":{"a":1,"b":1000,"c":2.5}' in made.data


def test_null_is_refused_in_apply_and_dropped_in_create(drivers: Http) -> None:
    """As on a real server: applied configurations do not pass through the decoder that drops null."""
    assert "spec" not in drivers.ok("POST", DRIVERS, driver("a", None))
    applied = drivers.send("PATCH", f"{DRIVERS}/b", driver("b", None), content=APPLY, fieldManager="m")
    assert 'spec: Invalid value: "null": spec in body must be of type object: "null"' in applied.message
    whole = driver("c", {"type": "x", "n": None})
    assert drivers.ok("PATCH", f"{DRIVERS}/c", whole, content=APPLY, fieldManager="m")["spec"]["n"] == 3


def test_object_of_another_kind_is_refused_except_for_status(drivers: Http) -> None:
    """The server first checks whether the object exists and its version. A status update ignores the kind."""
    made = drivers.ok("POST", DRIVERS, driver("a", {"type": "x"}))
    other = driver("a", {"type": "x"}) | {"kind": "Other"}
    assert drivers.send("POST", DRIVERS, other).message.endswith('kind: Invalid value: "Other": must be Driver')
    assert drivers.send("PUT", f"{DRIVERS}/none", other | {"metadata": {"name": "none"}}).status == 404
    assert "must be specified for an update" in drivers.send("PUT", f"{DRIVERS}/a", other).message
    other["metadata"] = made["metadata"]
    assert drivers.send("PUT", f"{DRIVERS}/a", other).message.startswith('Other.example.com "a" is invalid: kind:')
    assert drivers.ok("PUT", f"{DRIVERS}/a/status", other | {"status": {"x": 1}})["kind"] == "Driver"


@pytest.mark.parametrize(("version", "code"), [("x", 201), ("0", 201), ("5", 500)])
def test_resource_version_of_a_new_object_is_ignored_or_refused(drivers: Http, version: str, code: int) -> None:
    """A version that is not a number is ignored. A dry run does not check the version and returns it."""
    made = driver("a", {"type": "x"})
    made["metadata"]["resourceVersion"] = version
    dry = drivers.ok("POST", DRIVERS, made, dryRun="All")
    assert dry["metadata"]["resourceVersion"] == version
    answer = drivers.send("POST", DRIVERS, made)
    assert answer.status == code
    if code == 201:
        assert answer.body["metadata"]["resourceVersion"] != version
        assert drivers.send("POST", DRIVERS, made, dryRun="All").status == 409


def test_unknown_format_or_set_of_objects_warns_once(api: Http) -> None:
    """Warnings: unknown formats and sets of objects. An update warns only about what it adds."""
    atomic = {"type": "object", "x-kubernetes-map-type": "atomic"}
    properties: Plain = {"a": TEXT | {"format": "none"}, "s": {"type": "array", "items": atomic, LIST: "set"}}
    made = api.send("POST", DEFINITIONS, with_schema({"properties": properties}))
    of_sets = (
        '299 - "x-kubernetes-list-type: set for items of type \\"object\\" is not supported by server-side apply or CEL'
        ' validation rules"'
    )
    assert made.warnings == ['299 - "unrecognized format \\"none\\""', of_sets]
    properties["b"] = {"type": "integer", "format": "date"}
    versions = with_schema({"properties": properties})["spec"]["versions"]
    patch = {"spec": {"versions": versions}}
    changed = api.send("PATCH", f"{DEFINITIONS}/drivers.example.com", patch, content=MERGE)
    assert changed.warnings == ['299 - "unrecognized format \\"date\\""']


def test_invalid_resource_version_is_quoted_in_the_error(drivers: Http) -> None:
    drivers.ok("POST", DRIVERS, driver("a", {"type": "x"}))
    made = driver("a", {"type": "x"})
    made["metadata"]["resourceVersion"] = "\0"
    assert '"\\x00": invalid syntax' in drivers.send("PUT", f"{DRIVERS}/a", made).message
