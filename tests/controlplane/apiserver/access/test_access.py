"""Authentication and authorization: service account tokens and roles."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from controlplane.apiserver.access.authorization import first_roles
from resourceapi.manifests import read_documents
from tests.controlplane.apiserver.running import CLASSES, MERGE, Http, Running
from tests.controlplane.scheduler.kit import claim, device_class, node, request, slice_

SHIPPED = Path(__file__).resolve().parents[4] / "deploy" / "daemonset.yaml"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SELF_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNT = "system:serviceaccount:nodeplug:nodeplug"
TOKEN = "/api/v1/namespaces/nodeplug/serviceaccounts/nodeplug/token"
NODE_NAME = "authentication.kubernetes.io/node-name"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Running(authorization="RBAC", collect_after=None) as running:
        yield running


@pytest.fixture
def admin(server: Running) -> Iterator[Http]:
    """An administrator's client; the server has the shipped account, its role and policy, and nodes n1 and n2."""
    server.clear()
    shipped = to_builtins(read_documents(SHIPPED.read_bytes()))
    server.load(*first_roles(), *shipped, node("n1"), node("n2"))
    with server.http() as http:
        yield http


def bound(kind: str, name: str, **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": kind, "name": name, **more}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}


def node_client(admin: Http, server: Running, name: str) -> Http:
    """A client with the shipped account's token, bound to a node."""
    return server.http(admin.ok("POST", TOKEN, bound("Node", name))["status"]["token"])


def test_token_is_accepted_as_first_path_segment(admin: Http, server: Running) -> None:
    """A kubeconfig without TLS uses this form. The token has the same rights as in a header."""
    token = admin.ok("POST", TOKEN, bound("Node", "n1"))["status"]["token"]
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    with server.http("") as nobody:
        for first, user in ((server.server.token, "nodeplug"), (token, ACCOUNT)):
            user_info = nobody.ok("POST", f"/{first}{review}", {})["status"]["userInfo"]
            assert user_info["username"] == user
        assert nobody.send("POST", f"/{token}x{review}", {}).status == 403, "anonymous, with a path that nobody has"
    with server.http(token) as account:
        user_info = account.ok("POST", f"/{server.server.token}{review}", {})["status"]["userInfo"]
    assert user_info["username"] == ACCOUNT, "a credential in a header goes before"


def test_node_bound_token_names_its_node(admin: Http, server: Running) -> None:
    token = admin.ok("POST", TOKEN, bound("Node", "n1"))["status"]["token"]
    status = admin.ok("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == ACCOUNT
    groups = ["system:serviceaccounts", "system:serviceaccounts:nodeplug", "system:authenticated"]
    assert status["user"]["groups"] == groups
    assert status["user"]["extra"][NODE_NAME] == ["n1"]
    uid = admin.ok("GET", "/api/v1/nodes/n1")["metadata"]["uid"]
    assert status["user"]["extra"]["authentication.kubernetes.io/node-uid"] == [uid]
    with server.http(token) as me:
        assert me.ok("POST", SELF_REVIEW, {})["status"]["userInfo"] == status["user"]


def test_token_review_of_server_token_returns_administrator(admin: Http, server: Running) -> None:
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    reviewed = admin.ok("POST", reviews, {"spec": {"token": server.server.token}})["status"]
    assert reviewed["authenticated"] is True
    assert reviewed["user"] == admin.ok("POST", SELF_REVIEW, {})["status"]["userInfo"]
    other = admin.ok("POST", reviews, {"spec": {"token": f"{server.server.token}x"}})["status"]
    assert other == {"authenticated": False, "error": "[invalid bearer token]"}


def test_pod_bound_token_names_its_node_and_expires_with_the_pod(admin: Http, server: Running) -> None:
    containers = [{"name": "c", "image": "i"}]
    spec = {"serviceAccountName": "nodeplug", "nodeName": "n2", "containers": containers}
    pods = "/api/v1/namespaces/nodeplug/pods"
    uid = admin.ok("POST", pods, {"metadata": {"name": "p"}, "spec": spec})["metadata"]["uid"]
    other = admin.send("POST", TOKEN, bound("Pod", "p", uid="another"))
    assert other.status == 409
    assert "the UID in the bound object reference (another) does not match" in other.message
    token = admin.ok("POST", TOKEN, bound("Pod", "p", uid=uid))["status"]["token"]
    with server.http(token) as me:
        extra = me.ok("POST", SELF_REVIEW, {})["status"]["userInfo"]["extra"]
        assert extra["authentication.kubernetes.io/pod-uid"] == [uid]
        assert extra[NODE_NAME] == ["n2"]
        admin.ok("DELETE", f"{pods}/p", {"gracePeriodSeconds": 0})
        assert me.send("GET", SLICES).status == 401


def test_invalid_token_request_is_refused_and_forged_token_rejected(admin: Http, server: Running) -> None:
    assert admin.send("POST", TOKEN, bound("Node", "n3")).message == 'nodes "n3" not found'
    missing = admin.send("POST", TOKEN.replace("/nodeplug/token", "/nobody/token"), bound("Node", "n1"))
    assert missing.message == 'serviceaccounts "nobody" not found'
    odd = bound("ConfigMap", "n1")
    assert "cannot bind token to object of type v1, Kind=ConfigMap" in admin.send("POST", TOKEN, odd).message
    short = {"spec": {"expirationSeconds": 5}}
    assert "may not specify a duration less than 10 minutes" in admin.send("POST", TOKEN, short).message
    with server.http("a.b.c") as forger:
        assert forger.send("GET", SLICES).status == 401


def test_anonymous_client_can_read_only_health_and_version(server: Running) -> None:
    """With RBAC, a client without a credential has almost no rights."""
    nobody = 'User "system:anonymous" cannot'
    with server.http("") as me:
        assert me.send("GET", "/readyz").text == "ok"
        assert me.send("GET", "/version").status == 200
        refused = me.send("GET", "/api/v1/pods")
        assert (refused.status, refused.message) == (
            403,
            f'pods is forbidden: {nobody} list resource "pods" in API group "" at the cluster scope',
        )
        assert me.send("GET", "/readyz/ping").message == f'forbidden: {nobody} get path "/readyz/ping"'
        assert me.send("POST", "/healthz").message == f'forbidden: {nobody} post path "/healthz"'
    with server.http("nope") as me:
        assert me.send("GET", "/healthz").status == 401


def test_roles_limit_requests_of_the_service_account(admin: Http, server: Running) -> None:
    with node_client(admin, server, "n1") as me:
        assert me.ok("GET", SLICES)["items"] == []
        refused = me.send("DELETE", SLICES)
        assert refused.status == 403
        assert refused.message == (
            f'resourceslices.resource.k8s.io is forbidden: User "{ACCOUNT}" cannot deletecollection resource'
            ' "resourceslices" in API group "resource.k8s.io" at the cluster scope'
        )
        refused = me.send("PATCH", "/api/v1/namespaces/default/pods/p", {}, content=MERGE)
        assert refused.message == (
            f'pods "p" is forbidden: User "{ACCOUNT}" cannot patch resource "pods" in API group ""'
            ' in the namespace "default"'
        )
        assert me.ok("GET", "/apis/resource.k8s.io/v1")["resources"]
        assert me.send("GET", "/metrics").message == f'forbidden: User "{ACCOUNT}" cannot get path "/metrics"'
        for verb, allowed in (("watch", True), ("patch", False)):
            spec = {"resourceAttributes": {"verb": verb, "group": "resource.k8s.io", "resource": "resourceslices"}}
            access_review = me.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})
            assert access_review["status"]["allowed"] is allowed


def test_role_applies_in_its_namespace_and_missing_role_is_named(admin: Http, server: Running) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get"]}]
    admin.ok("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "nodeplug", "namespace": "nodeplug"}]
    for name, kind in (("r", "Role"), ("gone", "ClusterRole")):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        admin.ok("POST", f"{RBAC}/namespaces/default/rolebindings", binding)
    maps = "/api/v1/namespaces/{}/configmaps/{}"
    with node_client(admin, server, "n1") as me:
        assert me.send("GET", maps.format("default", "mine")).status == 404
        refused = me.send("GET", maps.format("default", "other"))
        assert refused.status == 403
        assert refused.message.endswith('RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')
        assert me.send("GET", maps.format("kube-system", "mine")).status == 403


def test_shipped_policy_refuses_slices_of_other_nodes(admin: Http, server: Running) -> None:
    message = "nodeplug on node n1 may only write its own slices"
    of_other = slice_("n2", "gpu-0", name="other")
    with node_client(admin, server, "n1") as me:
        own = me.ok("POST", SLICES, slice_("n1", "gpu-0"))["metadata"]["name"]
        refused = me.send("POST", SLICES, of_other)
        about = "ValidatingAdmissionPolicy 'nodeplug-resourceslices' with binding 'nodeplug-resourceslices'"
        assert refused.status == 422
        assert refused.body["reason"] == "Invalid"
        assert refused.body["details"]["causes"] == [{"message": f"{about} denied request: {message}"}]
        assert refused.message == (
            f'resourceslices.resource.k8s.io "other" is forbidden: {about} denied request: {message}'
        )
        admin.ok("POST", SLICES, of_other)  # the policy restricts only the account
        assert message in me.send("DELETE", f"{SLICES}/other").message
        older = SLICES.replace("/v1/", "/v1beta2/")
        assert message in me.send("PUT", f"{older}/other", admin.ok("GET", f"{older}/other")).message
        me.ok("DELETE", f"{SLICES}/{own}")
    plain = admin.ok("POST", TOKEN, {"spec": {}})["status"]["token"]
    with server.http(plain) as nobody:
        message = "nodeplug's token names no node; it needs one that is bound to a pod"
        assert message in nobody.send("POST", SLICES, slice_("n1", "gpu-0")).message


def test_driver_writes_status_only_of_its_devices_on_its_node(admin: Http, server: Running) -> None:
    admin.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class("gpu"))
    made = claim("c", request(deviceClassName="gpu"))
    admin.ok("POST", CLAIMS, made)
    result = {"request": made["spec"]["devices"]["requests"][0]["name"], "pool": "n1", "device": "gpu-0"}
    results = [{**result, "driver": "nodeplug.dev"}, {**result, "driver": "other.example", "device": "gpu-1"}]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [on_node]}}
    status = f"{CLAIMS}/c/status"
    with node_client(admin, server, "n1") as me:
        refused = me.send("PATCH", status, {"status": {"allocation": allocation}}, content=MERGE)
        assert 'requires resource="resourceclaims/binding", verb="patch" permission: ' in refused.message
        admin.ok("PATCH", status, {"status": {"allocation": allocation}}, content=MERGE)
        ours = {"driver": "nodeplug.dev", "pool": "n1", "device": "gpu-0", "data": {"a": 1}}
        me.ok("PATCH", status, {"status": {"devices": [ours]}}, content=MERGE)
        theirs = ours | {"driver": "other.example", "device": "gpu-1"}
        refused = me.send("PATCH", status, {"status": {"devices": [ours, theirs]}}, content=MERGE)
        verbs = "[associated-node:patch arbitrary-node:patch]"
        assert f'changing status.devices requires resource="resourceclaims/driver", verb="{verbs}"' in refused.message
    with node_client(admin, server, "n2") as me:
        refused = me.send("PATCH", status, {"status": {"devices": []}}, content=MERGE)
        assert 'verb="[arbitrary-node:patch]" permission: ' in refused.message


def test_only_administrator_can_impersonate(admin: Http, server: Running) -> None:
    sender = {"Impersonate-User": ACCOUNT, "Impersonate-Extra-Authentication.kubernetes.io%2fnode-Name": "n1"}
    with server.http(sender=sender) as other:
        who = other.ok("POST", SELF_REVIEW, {})["status"]["userInfo"]
        assert who["username"] == ACCOUNT
        assert "system:serviceaccounts:nodeplug" in who["groups"]
        assert other.send("POST", SLICES, slice_("n2", "gpu-0")).status == 422
    token = admin.ok("POST", TOKEN, bound("Node", "n1"))["status"]["token"]
    with server.http(token, {"Impersonate-User": "somebody"}) as me:
        refused = me.send("GET", SLICES)
        assert (refused.status, "cannot impersonate" in refused.message) == (403, True)


def test_every_request_is_allowed_without_rbac(api: Http) -> None:
    spec = {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}
    access_review = api.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})
    assert access_review["status"] == {"allowed": True}
    assert api.ok("GET", f"{RBAC}/clusterroles")["items"] == []


def test_rules_review_lists_permissions_of_the_account(admin: Http, server: Running) -> None:
    with node_client(admin, server, "n1") as me:
        status = me.ok("POST", RULES, {"spec": {"namespace": "default"}})["status"]
        assert me.send("POST", RULES, {"spec": {}}).status == 400
    slices = next(each for each in status["resourceRules"] if "resourceslices" in each["resources"])
    assert {"get", "list", "watch", "create"} <= set(slices["verbs"])
    assert "/version" in status["nonResourceRules"][0]["nonResourceURLs"]
    assert status["incomplete"] is False


def test_impersonation_without_user_name_is_refused(server: Running) -> None:
    with server.http(sender={"Impersonate-Group": "g"}) as api:
        answer = api.send("GET", CLASSES)
    found = '&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'
    assert (answer.status, answer.message) == (400, f"requested {found} without impersonating a user name")


def test_impersonated_anonymous_user_is_not_authenticated(server: Running) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with server.http(sender={"Impersonate-User": "system:anonymous"}) as api:
        answer = api.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert answer.status == 403
    assert 'User "system:anonymous" cannot create resource "selfsubjectreviews"' in answer.message
