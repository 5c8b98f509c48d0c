"""Unknown fields of manifests: the list of known names is complete, compared with upstream's."""

import pytest

from controlplane.apiserver.protobuf.messages import fields_of
from kubelet.pods import container, decode_pod, pod, unknown_fields
from kubelet.pods.unknown_fields import OF_CONTAINER, OF_SPEC
from resourceapi.objects import ObjectMeta, Record
from resourceapi.objects.codec import json_fields
from resourceapi.objects.core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    PodOS,
    PodResourceClaim,
    PodSpec,
    ResourceClaimUse,
    ResourceRequirements,
    Toleration,
)


@pytest.mark.parametrize(
    ("message", "record", "unread"),
    [
        ("v1.PodSpec", PodSpec, OF_SPEC),
        ("v1.Container", Container, OF_CONTAINER),
        ("v1.ContainerPort", ContainerPort, frozenset()),
        ("v1.Affinity", Affinity, frozenset()),
        ("v1.NodeAffinity", NodeAffinity, frozenset()),
        ("v1.PodOS", PodOS, frozenset()),
        ("v1.Toleration", Toleration, frozenset()),
        ("v1.PodResourceClaim", PodResourceClaim, frozenset()),
        ("v1.ResourceClaim", ResourceClaimUse, frozenset()),
        ("v1.ResourceRequirements", ResourceRequirements, frozenset()),
        ("meta.k8s.io/v1.ObjectMeta", ObjectMeta, frozenset()),
    ],
)
def test_all_upstream_fields_are_known(message: str, record: type[Record], unread: frozenset[str]) -> None:
    read = {*json_fields(record)}
    assert read | unread == {field.name for field in fields_of(message)}
    assert not read & unread


def test_unknown_fields_are_listed_with_their_path() -> None:
    spec = {"containers": [{"name": "c", "tty": True, "limits": {}}], "volumes": [{"any": 1}], "schedular": "x"}
    found = unknown_fields(decode_pod({"metadata": {"name": "p", "label": {}}, "spec": spec, "status": {"x": 1}}, "f"))
    assert sorted(found) == [
        'unknown field "metadata.label"',
        'unknown field "spec.containers[0].limits"',
        'unknown field "spec.schedular"',
    ]


def test_stays_field_of_stand_in_is_known() -> None:
    assert unknown_fields(pod("p", container("c"), init=(container("i", stays=True),))) == ()
