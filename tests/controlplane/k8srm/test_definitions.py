"""The served kinds: valid on every API server with CustomResourceDefinitions, and tolerant of unknown fields."""

from collections.abc import Iterator
from typing import Any

import yaml
from click.testing import CliRunner

from controlplane.k8srm.definitions import definitions
from controlplane.k8srm.types import KINDS
from nodeplug.commands.k8srm import k8srm


def definitions_by_kind() -> dict[str, Any]:
    return {each["spec"]["names"]["kind"]: each for each in definitions()}


def test_definitions_have_expected_names_and_scopes() -> None:
    assert {each["metadata"]["name"]: each["spec"]["scope"] for each in definitions()} == {
        "devicedrivers.devmgmtproto.k8s.io": "Cluster",
        "deviceclasses.devmgmtproto.k8s.io": "Cluster",
        "deviceclaims.devmgmtproto.k8s.io": "Namespaced",
        "deviceprivilegedclaims.devmgmtproto.k8s.io": "Namespaced",
        "devicepools.devmgmtproto.k8s.io": "Cluster",
        "foozerconfigs.foozer.example.com": "Namespaced",
    }
    assert set(KINDS) <= set(definitions_by_kind())


def test_only_claims_and_pools_have_status_subresource() -> None:
    with_status = {
        kind for kind, each in definitions_by_kind().items() if "subresources" in each["spec"]["versions"][0]
    }
    assert with_status == {"DeviceClaim", "DevicePrivilegedClaim", "DevicePool"}


def test_schemas_are_structural() -> None:
    """An API server requires a type everywhere, except beside int-or-string."""
    for each in definitions():
        for schema in schemas_in(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            assert ("type" in schema) != ("x-kubernetes-int-or-string" in schema)
            assert not {"properties", "additionalProperties"} <= set(schema)
            if "properties" in schema:
                assert schema["x-kubernetes-preserve-unknown-fields"] is True


def test_request_amounts_are_numbers_or_strings() -> None:
    claim = definitions_by_kind()["DeviceClaim"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    detail = claim["properties"]["spec"]["properties"]["claims"]["items"]["properties"]
    assert detail["requests"]["additionalProperties"]["x-kubernetes-int-or-string"] is True
    assert set(detail["oneOf"]["items"]["properties"]) == set(detail) - {"oneOf"}


def test_every_field_has_a_description() -> None:
    undescribed = []
    for kind in KINDS:
        schema = definitions_by_kind()[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        undescribed += [(kind, name) for each in schemas_in(schema) for name in undescribed_fields(each)]
    assert not undescribed
    claims = definitions_by_kind()["DeviceClaim"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
        "spec"
    ]
    detail = claims["properties"]["claims"]["items"]["properties"]
    assert "sriov-nic" in detail["deviceType"]["description"]
    assert detail["oneOf"]["items"]["properties"]["limits"]["description"] == detail["limits"]["description"]


def undescribed_fields(schema: dict[str, Any]) -> list[str]:
    return [name for name, field in schema.get("properties", {}).items() if not field.get("description")]


def test_command_prints_definitions_as_yaml() -> None:
    printed = CliRunner().invoke(k8srm, ["definitions"])
    assert list(yaml.safe_load_all(printed.output)) == definitions()


def schemas_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    nested = [*schema.get("properties", {}).values()]
    nested += [schema[name] for name in ("items", "additionalProperties") if name in schema]
    for each in nested:
        yield from schemas_in(each)
