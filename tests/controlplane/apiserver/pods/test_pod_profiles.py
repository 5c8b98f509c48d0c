"""AppArmor and seccomp profiles in pod annotations: the answers of a real API server 1.37.1."""

from typing import Any

import pytest

from tests.controlplane.apiserver.rules.test_rules import CONTAINER, SELECTOR
from tests.controlplane.apiserver.running import Http
from tests.controlplane.apiserver.test_warnings_and_validation import APPS, warnings_of

PODS = "/api/v1/namespaces/default/pods"
ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_OF_C = "container.seccomp.security.alpha.kubernetes.io/c"
OLD = f'metadata.annotations[{ARMOR}]: deprecated since v1.30; use the "appArmorProfile" field instead'
DEFAULT = {"type": "RuntimeDefault"}


def _pod(annotations: dict[str, str], context: Any = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"} | ({"securityContext": context} if context else {})
    metadata = {"name": "p", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


@pytest.mark.parametrize(
    ("profile", "found", "warnings"),
    [
        ("runtime/default", DEFAULT, [OLD]),
        ("unconfined", {"type": "Unconfined"}, [OLD]),
        ("localhost/p", {"type": "Localhost", "localhostProfile": "p"}, [OLD]),
        ("localhost/ p", None, [OLD]),
        ("localhost/", None, [OLD]),
    ],
)
def test_apparmor_annotation_sets_the_profile_field(api: Http, profile: str, found: Any, warnings: list[str]) -> None:
    made = api.send("POST", PODS, _pod({ARMOR: profile}))
    context = made.body["spec"]["containers"][0].get("securityContext") or {}
    assert (context.get("appArmorProfile"), warnings_of(made)) == (found, warnings)


@pytest.mark.parametrize(
    "spec", [{"securityContext": {"appArmorProfile": DEFAULT}}, {"os": {"name": "windows"}}], ids=["as-pod", "windows"]
)
def test_annotation_is_ignored_if_pod_profile_matches_or_os_is_windows(api: Http, spec: Any) -> None:
    made = api.send("POST", PODS, _pod({ARMOR: "runtime/default"}, **spec))
    assert warnings_of(made) == []
    assert "securityContext" not in made.body["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("annotations", "context", "field", "why"),
    [
        ({ARMOR: "localhost/p"}, {"appArmorProfile": DEFAULT}, "appArmorProfile.type", "apparmor type"),
        (
            {ARMOR: "localhost/p"},
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "q"}},
            "appArmorProfile.localhostProfile",
            "apparmor profile",
        ),
        ({SECCOMP_OF_C: "unconfined"}, {"seccompProfile": DEFAULT}, "seccompProfile.type", "seccomp type"),
        (
            {SECCOMP_OF_C: "localhost/a"},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}},
            "seccompProfile.localhostProfile",
            "seccomp profile",
        ),
        ({SECCOMP_OF_C: "docker/default"}, {"seccompProfile": DEFAULT}, "", ""),
    ],
)
def test_container_annotation_and_field_must_match(
    api: Http, annotations: Any, context: Any, field: str, why: str
) -> None:
    made = api.send("POST", PODS, _pod(annotations, context))
    if not why:
        assert made.status == 201
        return
    path = f"spec.containers[0].securityContext.{field}"
    assert made.message == f'Pod "p" is invalid: {path}: Forbidden: {why} in annotation and field must match'


def test_pod_annotation_and_field_must_match(api: Http) -> None:
    made = api.send("POST", PODS, _pod({SECCOMP: "unconfined"}, securityContext={"seccompProfile": DEFAULT}))
    why = "seccomp type in annotation and field must match"
    assert made.message == f'Pod "p" is invalid: spec.securityContext.seccompProfile.type: Forbidden: {why}'


def test_template_annotation_warns_and_sets_no_field(api: Http) -> None:
    labels = SELECTOR["matchLabels"]
    template = {
        "metadata": {"labels": labels, "annotations": {ARMOR: "unconfined"}},
        "spec": {"containers": [CONTAINER]},
    }
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    made = api.send("POST", f"{APPS}/deployments", deployment | {"spec": {"selector": SELECTOR, "template": template}})
    assert warnings_of(made) == [f"spec.template.{OLD}"]
    assert "securityContext" not in made.body["spec"]["template"]["spec"]["containers"][0]
