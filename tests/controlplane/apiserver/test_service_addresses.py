"""Addresses and ports of services: absent values are allocated, and requested values are allocated only once."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import MERGE, Http, Plain

SERVICES = "/api/v1/namespaces/default/services"
PORTS = [{"port": 80}]


def create_service(api: Http, name: str, **spec: Any) -> Plain:
    made: Plain = api.ok("POST", SERVICES, service(name, **spec))["spec"]
    return made


def service(name: str, **spec: Any) -> Plain:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": PORTS} | spec}


def test_service_gets_unique_cluster_ip(api: Http) -> None:
    first, second = create_service(api, "a"), create_service(api, "b")
    assert first["clusterIP"].startswith("10.96.")
    assert first["clusterIPs"] == [first["clusterIP"]] != second["clusterIPs"]
    assert (first["ipFamilies"], first["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert "clusterIP" not in create_service(api, "named", type="ExternalName", externalName="a.example", ports=None)
    dry = api.ok("POST", SERVICES, service("dry"), dryRun="All")
    assert dry["spec"]["clusterIP"] not in ("", first["clusterIP"], second["clusterIP"])


def test_headless_service_families_depend_on_selector(api: Http) -> None:
    """Without allocation the service names both families; with a selector, the family of the network."""
    alone = create_service(api, "a", clusterIP="None")
    assert (alone["clusterIPs"], alone["ipFamilies"], alone["ipFamilyPolicy"]) == (
        ["None"],
        ["IPv4", "IPv6"],
        "RequireDualStack",
    )
    chosen = create_service(api, "b", clusterIP="None", selector={"a": "b"})
    assert (chosen["ipFamilies"], chosen["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"clusterIP": "10.96.7.7"},
            'spec.clusterIPs: Invalid value: ["10.96.7.7"]: failed to allocate IP 10.96.7.7: provided IP is already'
            " allocated",
        ),
        (
            {"clusterIP": "1.2.3.4"},
            'spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided network does not'
            " match the current range",
        ),
        (
            {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30001}]},
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
        ),
        (
            {"type": "NodePort", "ports": [{"port": 1, "nodePort": 1}]},
            "spec.ports[0].nodePort: Invalid value: 1: provided port is not in the valid range. The range of valid"
            " ports is 30000-32767",
        ),
        (
            {"clusterIP": "x"},
            'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
        ),
        (
            {"clusterIPs": ["10.96.7.9"]},
            'spec.clusterIPs: Invalid value: ["10.96.7.9"]: must be empty when `clusterIP` is not specified',
        ),
        ({"ports": None}, "spec.ports: Required value"),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack'
            " services",
        ),
    ],
)
def test_unallocatable_address_or_port_is_refused(api: Http, spec: Plain, expected: str) -> None:
    create_service(api, "first", clusterIP="10.96.7.7", type="NodePort", ports=[{"port": 1, "nodePort": 30001}])
    answer = api.send("POST", SERVICES, service("second", **spec))
    assert (answer.status, answer.message) == (422, f'Service "second" is invalid: {expected}')
    api.ok("DELETE", f"{SERVICES}/first")
    if "already" in expected:
        create_service(api, "second", **spec)  # the address or port is free again


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"ipFamilyPolicy": "X"},
            'spec.ipFamilyPolicy: Unsupported value: "X": supported values: "PreferDualStack", "RequireDualStack",'
            ' "SingleStack"',
        ),
        (
            {"ipFamilies": ["IPv4", "IPv4"]},
            'spec.ipFamilies[1]: Duplicate value: "IPv4"',
        ),
        (
            {"clusterIP": "10.96.0.9", "ipFamilies": ["IPv6"]},
            'spec.clusterIPs[0]: Invalid value: "10.96.0.9": expected an IPv6 value as indicated by `ipFamilies[0]`',
        ),
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        (
            {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]},
            'spec.clusterIPs: Invalid value: ["10.96.0.8"]: first value must match `clusterIP`',
        ),
    ],
)
def test_address_error_is_reported_before_other_errors(api: Http, spec: Plain, expected: str) -> None:
    """Other errors, in the name and the ports, are not reported."""
    wrong = service("a", ports=[{"port": 0}], **spec)
    wrong["metadata"]["labels"] = {"a": "-"}
    assert api.send("POST", SERVICES, wrong).message == f'Service "a" is invalid: {expected}'


def test_other_service_errors_are_reported_in_order(api: Http) -> None:
    spec = {"type": "ClusterIP", "sessionAffinity": "X", "externalTrafficPolicy": "Local", "loadBalancerClass": "x"}
    wrong = service("a", ports=[{"port": 1, "nodePort": 30001}], allocateLoadBalancerNodePorts=True, **spec)
    assert [each["field"] for each in api.send("POST", SERVICES, wrong).body["details"]["causes"]] == [
        "spec.sessionAffinity",
        "spec.ports[0].nodePort",
        "spec.allocateLoadBalancerNodePorts",
        "spec.loadBalancerClass",
        "spec.externalTrafficPolicy",
    ]


def test_dry_run_allocates_no_node_ports(api: Http) -> None:
    """The answers show ports outside the range, and requested ports are not checked against it."""
    ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    made = api.ok("POST", SERVICES, service("a", type="NodePort", ports=ports), dryRun="All")
    assert [each["nodePort"] for each in made["spec"]["ports"]] == [32769, 32770]
    low = service("a", type="NodePort", ports=[{"port": 1, "nodePort": 7}])
    assert api.send("POST", SERVICES, low, dryRun="All").status == 201
    create_service(api, "b", type="NodePort", ports=[{"port": 1, "nodePort": 30001}])
    taken = service("a", type="NodePort", ports=[{"port": 1, "nodePort": 30001}])
    assert "already allocated" in api.send("POST", SERVICES, taken, dryRun="All").message


def test_ingress_status_is_refused_without_load_balancer_type(api: Http) -> None:
    create_service(api, "a")
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    answer = api.send("PATCH", f"{SERVICES}/a/status", status, content=MERGE)
    assert answer.message == (
        'Service "a" is invalid: status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is'
        " 'LoadBalancer'"
    )


def test_ingress_ip_mode_defaults_to_vip(api: Http) -> None:
    create_service(api, "a", type="LoadBalancer")
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    answer = api.ok("PATCH", f"{SERVICES}/a/status", status, content=MERGE)
    assert answer["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4", "ipMode": "VIP"}]


def test_cluster_ip_is_immutable(api: Http) -> None:
    create_service(api, "a", clusterIP="10.96.7.7")
    other = {"spec": {"clusterIP": "10.96.7.8", "clusterIPs": ["10.96.7.8"]}}
    answer = api.send("PATCH", f"{SERVICES}/a", other, content=MERGE)
    assert answer.message == (
        'Service "a" is invalid: spec.clusterIPs[0]: Invalid value: ["10.96.7.8"]: may not change once set'
    )


def test_service_type_change_releases_ports_and_addresses(api: Http) -> None:
    """An update that omits allocated values keeps them."""
    made = create_service(api, "a", type="LoadBalancer", externalTrafficPolicy="Local")
    assert made["allocateLoadBalancerNodePorts"] is True
    assert {made["ports"][0]["nodePort"], made["healthCheckNodePort"]} <= {*range(30000, 32768)}
    whole = service("a", type="LoadBalancer", externalTrafficPolicy="Local")
    assert api.ok("PUT", f"{SERVICES}/a", whole)["spec"] == made
    inner = api.ok("PATCH", f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}}, content=MERGE)["spec"]
    assert inner["clusterIP"] == made["clusterIP"]
    gone = ("allocateLoadBalancerNodePorts", "healthCheckNodePort", "externalTrafficPolicy")
    assert not {*gone} & {*inner}
    assert "nodePort" not in inner["ports"][0]
    named = {"spec": {"type": "ExternalName", "externalName": "a.example"}}
    assert not {"clusterIP", "clusterIPs", "ipFamilies"} & {
        *api.ok("PATCH", f"{SERVICES}/a", named, content=MERGE)["spec"]
    }


def test_service_table_has_columns_of_kubectl(api: Http) -> None:
    create_service(
        api, "a", clusterIP="10.96.7.7", type="NodePort", ports=[{"port": 1, "nodePort": 30001}], selector={"a": "b"}
    )
    create_service(api, "b", type="ExternalName", externalName="a.example", ports=None)
    create_service(api, "c", type="LoadBalancer", clusterIP="10.96.7.8", ports=[{"port": 2, "nodePort": 30002}])
    shown = api.ok("GET", SERVICES, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    names = ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]
    assert [each["name"] for each in shown["columnDefinitions"]] == names
    assert [[*row["cells"][:5], row["cells"][6]] for row in shown["rows"]] == [
        ["a", "NodePort", "10.96.7.7", "<none>", "1:30001/TCP", "a=b"],
        ["b", "ExternalName", "<none>", "a.example", "<none>", "<none>"],
        ["c", "LoadBalancer", "10.96.7.8", "<pending>", "2:30002/TCP", "<none>"],
    ]


def test_service_is_refused_when_node_port_range_is_full(api: Http) -> None:
    """The last port is allocated. The next service is refused at once with a real server's message."""
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 2769)]
    made = create_service(api, "greedy", type="NodePort", ports=ports)
    assert {each["nodePort"] for each in made["ports"]} == {*range(30000, 32768)}
    answer = api.send("POST", SERVICES, service("late", type="NodePort"))
    message = "Internal error occurred: failed to allocate a nodePort: range is full"
    assert (answer.status, answer.message) == (500, message)


def test_external_ip_with_zone_is_refused(api: Http) -> None:
    answer = api.send("POST", SERVICES, service("a", externalIPs=["2001:db8::1%eth0"]))
    assert answer.message == (
        'Service "a" is invalid: spec.externalIPs[0]: Invalid value: "2001:db8::1%eth0": must be a valid IP address,'
        " (e.g. 10.9.8.7 or 2001:db8::ffff)"
    )
