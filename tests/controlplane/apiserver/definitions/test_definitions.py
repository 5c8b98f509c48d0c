"""CustomResourceDefinitions: kinds that are added and removed while the server runs."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import APPLY, CLASSES, MERGE, Http, device_class

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DRIVERS = "/apis/example.com/v1alpha1/namespaces/default/drivers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SPEC = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "maxLength": 10},
        "n": {"type": "integer", "minimum": 1, "default": 3},
        "e": {"type": "string", "enum": ["x", "y"]},
        "p": {"type": "string", "pattern": "^a"},
        "l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS = {"type": "object", "properties": {"x": {"type": "integer"}}}


def definition(**spec: Any) -> dict[str, Any]:
    """A definition of drivers."""
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
        "additionalPrinterColumns": [{"name": "Type", "type": "string", "jsonPath": ".spec.type"}],
    }
    names = {"plural": "drivers", "kind": "Driver", "shortNames": ["dr"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "drivers.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]} | spec,
    }


def driver(name: str, spec: Any, **more: Any) -> dict[str, Any]:
    """A custom resource."""
    return {"apiVersion": "example.com/v1alpha1", "kind": "Driver", "metadata": {"name": name}, "spec": spec} | more


@pytest.fixture
def drivers(api: Http) -> Http:
    """A server that has the definition."""
    api.ok("POST", DEFINITIONS, definition())
    return api


def test_definition_is_served_at_once_and_deleted_with_its_objects(drivers: Http) -> None:
    """Status and discovery show the kind. Deleting the definition deletes the objects."""
    found = drivers.ok("GET", f"{DEFINITIONS}/drivers.example.com")
    assert [each["type"] for each in found["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert found["spec"]["names"]["listKind"] == "DriverList"
    (resource, status) = drivers.ok("GET", "/apis/example.com/v1alpha1")["resources"]
    assert (resource["name"], resource["shortNames"], status["name"]) == ("drivers", ["dr"], "drivers/status")
    drivers.ok("POST", DRIVERS, driver("a", {"type": "gpu"}))
    drivers.ok("DELETE", f"{DEFINITIONS}/drivers.example.com")
    assert drivers.send("GET", DRIVERS).text == "404 page not found\n"
    drivers.ok("POST", DEFINITIONS, definition())
    assert drivers.ok("GET", DRIVERS)["items"] == []


def test_defaults_are_added_and_unknown_fields_dropped(drivers: Http) -> None:
    """The server adds defaults, drops unknown fields, and warns about them."""
    made = drivers.send("POST", DRIVERS, driver("a", {"type": "x", "extra": 1, "free": {"b": 1}}, status={"x": 1}))
    assert made.body["spec"] == {"type": "x", "n": 3, "free": {"b": 1}}
    assert "status" not in made.body
    assert made.warnings == ['299 - "unknown field \\"spec.extra\\""']
    strict = drivers.send("POST", DRIVERS, driver("b", {"type": "x", "extra": 1}), fieldValidation="Strict")
    assert "strict decoding error" in strict.message


def test_all_validation_errors_are_reported_in_field_order(drivers: Http) -> None:
    """All errors are reported, ordered by field name."""
    value = driver("b", {"type": 5, "n": 0, "l": [{"a": 1}], "e": "z", "p": "b"})
    assert drivers.send("POST", DRIVERS, value).message == (
        'Driver.example.com "b" is invalid: [spec.e: Unsupported value: "z": supported values: "x", "y",'
        ' spec.l[0].a: Invalid value: "integer": spec.l[0].a in body must be of type string: "integer",'
        " spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1,"
        " spec.p: Invalid value: \"b\": spec.p in body should match '^a',"
        ' spec.type: Invalid value: "integer": spec.type in body must be of type string: "integer"]'
    )
    long = drivers.send("POST", DRIVERS, driver("b", {"type": "much-too-long-type"}))
    assert long.message.endswith("spec.type: Too long: may not be more than 10 bytes")
    assert drivers.send("POST", DRIVERS, driver("b", {})).message.endswith("spec.type: Required value")
    other = drivers.send("POST", DRIVERS, driver("b", {"type": "x"}) | {"kind": "Other"})
    assert other.message == 'Other.example.com "b" is invalid: kind: Invalid value: "Other": must be Driver'
    bare = drivers.send("POST", DRIVERS, {"metadata": {"name": "b"}})
    assert bare.message.startswith(
        "the object provided is unrecognized (must be of type Driver): Object 'Kind' is missing"
    )
    bare = drivers.send("POST", f"{DRIVERS}?fieldValidation=Ignore", {"metadata": {"name": "b"}})
    assert bare.message.endswith(
        """cannot be handled as a Driver: Object 'Kind' is missing in '{"metadata":{"name":"b"}}'"""
    )
    unversioned = drivers.send("POST", DRIVERS, {"kind": "Driver", "metadata": {"name": "b"}})
    assert unversioned.message.startswith("the API version in the data () does not match the expected API version (")


def test_custom_resource_is_created_updated_applied_and_deleted(drivers: Http) -> None:
    """Generation, required resource versions, status, tables, apply."""
    made = drivers.ok("POST", DRIVERS, driver("a", {"type": "gpu"}))
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {".": {}, "f:n": {}, "f:type": {}}}
    assert drivers.ok("PATCH", f"{DRIVERS}/a", {"spec": {"type": "nic"}}, content=MERGE)["metadata"]["generation"] == 2
    blind = drivers.send("PUT", f"{DRIVERS}/a", driver("a", {"type": "x"}))
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in blind.message
    status = drivers.ok("PATCH", f"{DRIVERS}/a/status", {"status": {"x": 3}, "spec": {"type": "no"}}, content=MERGE)
    assert (status["status"], status["spec"]["type"], status["metadata"]["generation"]) == ({"x": 3}, "nic", 2)
    table = drivers.ok("GET", DRIVERS, accept=TABLE)
    assert [row["cells"] for row in table["rows"]] == [["a", "nic"]]
    strategic = drivers.send("PATCH", f"{DRIVERS}/a", {}, content="application/strategic-merge-patch+json")
    assert strategic.status == 415
    applied = drivers.ok("PATCH", f"{DRIVERS}/b", driver("b", {"type": "x"}), content=APPLY, fieldManager="m")
    assert applied["spec"] == {"type": "x", "n": 3}
    gone = drivers.ok("DELETE", f"{DRIVERS}/a")
    assert (gone["kind"], gone["status"], gone["details"]["kind"]) == ("Status", "Success", "drivers")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"name": "x"}}, 'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'),
        ({"spec": {}}, "spec.group: Required value"),
        (
            {"spec": definition(versions=[{"name": "v1", "served": True, "storage": True}])["spec"]},
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        ({"spec": definition(scope="Other")["spec"]}, 'spec.scope: Unsupported value: "Other"'),
        (
            {"metadata": {"name": "drivers.x.k8s.io"}, "spec": definition(group="x.k8s.io")["spec"]},
            "protected groups must have approval annotation",
        ),
    ],
)
def test_invalid_definition_is_refused(api: Http, change: Any, message: str) -> None:
    """The messages are the reference server's."""
    answer = api.send("POST", DEFINITIONS, definition() | change)
    assert answer.status == 422
    assert message in answer.message


def test_definition_of_a_builtin_kind_changes_nothing(api: Http) -> None:
    """The server stores it, as a real server does. The kind and its objects remain, even after it is deleted."""
    names = {"plural": "deviceclasses", "kind": "DeviceClass"}
    theirs = definition(group="resource.k8s.io", scope="Cluster", names=names)
    metadata = {"name": "deviceclasses.resource.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}}
    api.ok("POST", CLASSES, device_class("gpu"))
    api.ok("POST", DEFINITIONS, theirs | {"metadata": metadata})
    assert api.send("GET", "/apis/resource.k8s.io/v1alpha1/deviceclasses").status == 404
    assert api.ok("GET", f"{CLASSES}/gpu")["kind"] == "DeviceClass"
    api.ok("DELETE", f"{DEFINITIONS}/deviceclasses.resource.k8s.io")
    assert api.ok("GET", f"{CLASSES}/gpu")["kind"] == "DeviceClass"


def test_prototype_kind_is_restored_after_its_definition_is_deleted(api: Http) -> None:
    """The prototype's kinds are served without a definition, and again after a definition is deleted."""
    configs = "/apis/foozer.example.com/v1alpha1/namespaces/default/foozerconfigs"
    names = {"plural": "foozerconfigs", "kind": "FoozerConfig"}
    assert api.ok("GET", configs)["items"] == []
    mine = definition(group="foozer.example.com", names=names) | {
        "metadata": {"name": "foozerconfigs.foozer.example.com"}
    }
    api.ok("POST", DEFINITIONS, mine)
    config = {"apiVersion": "foozer.example.com/v1alpha1", "kind": "FoozerConfig", "metadata": {"name": "a"}}
    assert "spec.type: Required value" in api.send("POST", configs, config | {"spec": {}}).message
    api.ok("DELETE", f"{DEFINITIONS}/foozerconfigs.foozer.example.com")
    api.ok("POST", configs, config | {"spec": {}})


@pytest.mark.parametrize(
    ("schema", "code", "message"),
    [
        ("x", 400, "json: cannot unmarshal string into Go struct field CustomResourceValidation.spec.versions.schema"),
        ({"type": 1}, 400, "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.type of type string"),
        ({"properties": {"a": "x"}}, 400, "openAPIV3Schema.properties of type v1.JSONSchemaProps"),
        ({"properties": {"a": {"maxLength": 1.5}}}, 400, "cannot unmarshal number 1.5 into Go struct field"),
        ({"properties": {"a": None}}, 422, "properties[a].type: Required value: must not be empty for specified"),
        ({"properties": {"a": {"type": "x"}}}, 422, 'properties[a].type: Unsupported value: "x": supported values'),
        ({"properties": {"a": {"type": "array"}}}, 422, "properties[a].items: Required value: must be specified"),
        ({"properties": {"a": {"$ref": "#/x"}}}, 422, "properties[a].$ref: Forbidden: $ref is not supported"),
        ({"allOf": [{"type": "object"}]}, 422, "allOf[0].type: Forbidden: must be empty to be structural"),
    ],
)
def test_invalid_schema_is_refused_and_kind_not_served(api: Http, schema: Any, code: int, message: str) -> None:
    """Schemas with invalid types or that are not structural: no version of the kind is served."""
    wanted = definition()
    whole = {"type": "object"} | schema if isinstance(schema, dict) else schema
    wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = whole
    answer = api.send("POST", DEFINITIONS, wanted)
    assert answer.status == code
    assert message in answer.message
    assert api.send("GET", DRIVERS).status == 404


def test_foreground_deletion_of_definition_deletes_its_objects(api: Http) -> None:
    """Foreground deletion of a definition also deletes the kind and its objects."""
    api.ok("POST", DEFINITIONS, definition())
    value = {"apiVersion": "example.com/v1alpha1", "kind": "Driver", "metadata": {"name": "d"}, "spec": {"type": "a"}}
    api.ok("POST", DRIVERS, value)
    marked = api.ok("DELETE", f"{DEFINITIONS}/drivers.example.com", propagationPolicy="Foreground")
    version = marked["metadata"]["resourceVersion"]
    with api.watch(DEFINITIONS, resourceVersion=version, timeoutSeconds="10") as events:
        assert next(events)["type"] == "DELETED"
    assert api.send("GET", DRIVERS).status == 404
    api.ok("POST", DEFINITIONS, definition())
    assert api.ok("GET", DRIVERS)["items"] == []
