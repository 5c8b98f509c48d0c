"""Pods that do not fit their node: what the kubelet writes into their status, and the event that it records."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubelet.pods import decode_pod
from resourceapi.objects.core import Pod, Taint
from tests.kubelet.both.scenario import both, healthy
from tests.kubelet.both.world import ScenarioFixture

Json = dict[str, Any]
Warned = tuple[str, str]

NO_AFFINITY = "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
NO_PORTS = "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
NO_TOLERATION = "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
NOTHING_TO_PREEMPT = (
    "UnexpectedAdmissionError",
    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to"
    " preempt: no set of running pods found to reclaim resources: [(res: {}, q: {}), ]",
)
CRITICAL: Json = {"priorityClassName": "system-node-critical", "priority": 2_000_001_000}
TEBIBYTE = 2**40


def out_of(resource: str, requested: int, used: int, capacity: int) -> Warned:
    amounts = f"requested: {requested}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {amounts}"


def asking(
    name: str,
    requests: Mapping[str, str] | None = None,
    *,
    container: Json | None = None,
    init: Sequence[Json] = (),
    labels: Json | None = None,
    **spec: Any,
) -> Pod:
    """A pod with one container `c`."""
    app = {"name": "c", "resources": {"requests": requests or {}}} | (container or {})
    members = {"containers": [app], "initContainers": list(init), "restartPolicy": "Never"} | spec
    return decode_pod({"metadata": {"name": name, "labels": labels or {}}, "spec": members}, name)


def port(number: int, **more: str) -> Json:
    """Members of a container with a host port."""
    return {"ports": [{"containerPort": 80, "hostPort": number} | more]}


def affinity(**term: Any) -> Json:
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


async def rejected(fixture: ScenarioFixture, pod: Pod) -> Warned:
    """The reason in a rejected pod's status and event, and the event's message."""
    view = await fixture.run(pod, "Failed")
    warned = await fixture.world.warned(pod.metadata.name)
    assert (view.reason, view.message, view.containers) == (warned[0], f"Pod was rejected: {warned[1]}", {})
    return warned


@both
async def requests_that_are_larger_than_the_node(fixture: ScenarioFixture) -> None:
    name, has = fixture.name, await fixture.world.allocatable()
    cpu, memory, storage = has["cpu"], has["memory"], has.get("ephemeral-storage", 0)
    over = f"{cpu + 1}m"
    huge = {"limits": {"hugepages-2Mi": "2Mi", "memory": "1Mi"}}
    assert await rejected(fixture, asking(f"{name}1", {"cpu": over})) == out_of("cpu", cpu + 1, 0, cpu)
    limited = asking(f"{name}2", container={"resources": {"limits": {"cpu": over}}})
    assert await rejected(fixture, limited) == out_of("cpu", cpu + 1, 0, cpu)
    asked = {"memory": "100Ti", "ephemeral-storage": "100Ti"}
    assert await rejected(fixture, asking(f"{name}3", asked)) == out_of("memory", 100 * TEBIBYTE, 0, memory)
    asked = {"ephemeral-storage": "100Ti"}
    assert await rejected(fixture, asking(f"{name}4", asked)) == out_of("ephemeral-storage", 100 * TEBIBYTE, 0, storage)
    assert await rejected(fixture, asking(f"{name}5", container={"resources": huge})) == out_of(
        "hugepages-2Mi", 2**21, 0, 0
    )
    of_pod = {"requests": {"cpu": over}}
    assert await rejected(fixture, asking(f"{name}6", resources=of_pod)) == out_of("cpu", cpu + 1, 0, cpu)
    selecting = asking(f"{name}7", {"cpu": over}, nodeSelector={"no": "node"})
    assert await rejected(fixture, selecting) == out_of("cpu", cpu + 1, 0, cpu), "resources come first"


@both
async def requests_of_init_containers(fixture: ScenarioFixture) -> None:
    name, cpu = fixture.name, (await fixture.world.allocatable())["cpu"]
    little, most = ({"requests": {"cpu": f"{amount}m"}} for amount in (1, cpu))
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": little}
    with_sidecar = asking(f"{name}1", most["requests"], init=[sidecar])
    assert await rejected(fixture, with_sidecar) == out_of("cpu", cpu + 1, 0, cpu)
    with_init = asking(f"{name}2", init=[sidecar, {"name": "i", "resources": most}])
    assert await rejected(fixture, with_init) == out_of("cpu", cpu + 1, 0, cpu)
    await fixture.run(asking(f"{name}3", little["requests"], init=[{"name": "i", "resources": most}]))


@both
async def requests_of_other_pods(fixture: ScenarioFixture) -> None:
    name, cpu = fixture.name, (await fixture.world.allocatable())["cpu"]
    await fixture.run(asking(f"{name}1", {"cpu": f"{cpu}m"}))
    assert await rejected(fixture, asking(f"{name}2", {"cpu": "1m"})) == out_of("cpu", 1, cpu, cpu)
    await fixture.run(asking(f"{name}3"))
    await fixture.run(asking(f"{name}4", {"cpu": "0"}))
    await fixture.world.end_container(f"{name}1", "c", "Succeeded")
    await fixture.run(asking(f"{name}5", {"cpu": "1m"}, resources={"requests": {"cpu": f"{cpu}m"}}))
    assert await rejected(fixture, asking(f"{name}6", {"cpu": "1m"})) == out_of("cpu", 1, cpu, cpu)


@both
async def devices_of_a_pod_that_does_not_fit(fixture: ScenarioFixture) -> None:
    await fixture.offering(healthy("a", "b"))
    name, r, cpu = fixture.name, fixture.resource, (await fixture.world.allocatable())["cpu"]
    too_large = {"requests": {"cpu": f"{cpu + 1}m"}, "limits": {r: "2"}}
    found = await rejected(fixture, asking(f"{name}1", container={"resources": too_large}))
    assert found == out_of("cpu", cpu + 1, 0, cpu)
    await fixture.run(asking(f"{name}2", container={"resources": {"limits": {r: "2"}}}))
    assert sorted((await fixture.held(f"{name}2") or {})["c"]) == ["a", "b"]
    too_large["limits"] = {r: "3"}
    assert await fixture.rejection(asking(f"{name}3", container={"resources": too_large})) == (
        f"requested number of devices unavailable for {r}. Requested: 3, Available: 0"
    )


@both
async def resource_that_appears_later(fixture: ScenarioFixture) -> None:
    """A pod that ran without its devices, because the node did not have the resource, counts with all its requests."""
    name, r = fixture.name, fixture.resource
    await fixture.run(asking(f"{name}1", container={"resources": {"limits": {r: "5"}}}))
    await fixture.offering(healthy("a", "b"))
    one = {"resources": {"limits": {r: "1"}}}
    assert await rejected(fixture, asking(f"{name}2", container=one)) == out_of(r, 1, 5, 2)
    await fixture.world.remove(f"{name}1")
    await fixture.run(asking(f"{name}3", container=one))


@both
async def node_affinity_of_pods(fixture: ScenarioFixture) -> None:
    name = fixture.name
    await fixture.set_node({"both.example/disk": "ssd", "both.example/age": "5"})
    older = {"key": "both.example/age", "operator": "Gt", "values": ["4"]}
    other = {"key": "metadata.name", "operator": "In", "values": ["other"]}
    fitting: list[Json] = [
        {"nodeSelector": {"both.example/disk": "ssd"}},
        {"affinity": affinity(matchExpressions=[older])},
    ]
    misfits: list[Json] = [
        {"nodeSelector": {"both.example/disk": "hdd"}},
        {"affinity": affinity(matchExpressions=[older | {"values": ["5"]}])},
        {"affinity": affinity(matchFields=[other])},
        {"affinity": affinity()},
        {"affinity": affinity(matchFields=[other]), "containers": [{"name": "c"} | port(18080)]},
    ]
    for number, spec in enumerate(fitting):
        await fixture.run(asking(f"{name}-{number}", **spec))
    for number, spec in enumerate(misfits):
        assert await rejected(fixture, asking(f"{name}{number}", **spec)) == NO_AFFINITY


@both
async def label_of_the_node_is_gone_at_a_restart(fixture: ScenarioFixture) -> None:
    name = fixture.name
    await fixture.set_node({"both.example/disk": "ssd"})
    await fixture.run(asking(name, nodeSelector={"both.example/disk": "ssd"}))
    await fixture.run(asking(f"{name}2"))
    await fixture.set_node({})
    await fixture.world.restart_kubelet(refused=name)
    assert await fixture.world.warned(name) == NO_AFFINITY
    await fixture.world.until_ended(name)
    assert (await fixture.world.view(f"{name}2")).containers["c"].state == "running"


@both
async def host_ports_of_pods(fixture: ScenarioFixture) -> None:
    name = fixture.name
    sidecar = {"name": "s", "restartPolicy": "Always"}
    await fixture.run(asking(f"{name}1", container=port(18080), init=[sidecar | port(18090)]))
    await fixture.run(asking(f"{name}2", container=port(18080, protocol="UDP")))
    await fixture.run(asking(f"{name}3", container=port(18081, hostIP="127.0.0.1")))
    await fixture.run(asking(f"{name}4", container=port(18081, hostIP="127.0.0.2")))
    await fixture.run(asking(f"{name}5", init=[{"name": "i"} | port(18080)]))
    taken = [port(18080), port(18080, hostIP="127.0.0.1"), port(18081), port(18090)]
    for number, container in enumerate(taken):
        assert await rejected(fixture, asking(f"{name}-{number}", container=container)) == NO_PORTS
    assert await rejected(fixture, asking(f"{name}-s", init=[sidecar | port(18080)])) == NO_PORTS
    await fixture.world.remove(f"{name}1")
    await fixture.run(asking(f"{name}6", container=port(18080)))


@both
async def taints_of_the_node(fixture: ScenarioFixture) -> None:
    """Only NoExecute matters, and not to static pods. In a cluster, the pods that a kubelet rejects are deleted."""
    name = fixture.name
    no_execute = Taint(key="both.example/t", value="v", effect="NoExecute")
    await fixture.set_node({}, [no_execute, Taint(key="both.example/u", effect="NoSchedule")])
    equal = {"key": "both.example/t", "value": "v", "effect": "NoExecute"}
    for number, tolerations in enumerate(([], [equal | {"value": "w"}], [equal | {"effect": "NoSchedule"}])):
        await fixture.bind(asking(f"{name}{number}", tolerations=tolerations))
        assert await fixture.world.warned(f"{name}{number}") == NO_TOLERATION
    for number, tolerations in enumerate(([equal], [{"operator": "Exists"}])):
        await fixture.run(asking(f"{name}-{number}", tolerations=tolerations))
    await fixture.run_static(asking(f"{name}-s"))
    await fixture.world.until_state(fixture.static_name(f"{name}-s"), "c", "running")


@both
async def operating_system_of_pods(fixture: ScenarioFixture) -> None:
    name, label = fixture.name, "kubernetes.io/os"
    windows = asking(f"{name}1", os={"name": "windows"})
    unsupported = "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    assert await rejected(fixture, windows) == unsupported
    labelled = asking(f"{name}2", {"cpu": "5000"}, labels={label: "windows"})
    text = f"Failed to admit pod as the `{label}` label doesn't match node label"
    assert await rejected(fixture, labelled) == ("PodOSSelectorNodeLabelDoesNotMatch", text)
    await fixture.run(asking(f"{name}3", os={"name": "linux"}, labels={label: "linux"}))


@both
async def static_pods_that_do_not_fit(fixture: ScenarioFixture) -> None:
    name, cpu = fixture.name, (await fixture.world.allocatable())["cpu"]
    over, reason, text = {"cpu": f"{cpu + 1}m"}, *NOTHING_TO_PREEMPT
    await fixture.run_static(asking(f"{name}1", over, nodeName="other"))
    assert await fixture.world.warned(fixture.static_name(f"{name}1")) == (reason, text.format("cpu", 1))
    await fixture.run_static(asking(f"{name}2", over, nodeSelector={"no": "node"}))
    assert await fixture.world.warned(fixture.static_name(f"{name}2")) == NO_AFFINITY


@both
async def critical_pods_preempt_others(fixture: ScenarioFixture) -> None:
    name, cpu = fixture.name, (await fixture.world.allocatable())["cpu"]
    preempting = "Preempting", "Preempted in order to admit critical pod"
    for number, amount in ((1, cpu - 700), (2, 400), (3, 300)):
        await fixture.run(asking(f"{name}{number}", {"cpu": f"{amount}m"}))
    await fixture.run_static(asking(f"{name}-s", {"cpu": "350m"}))
    await fixture.world.until_state(fixture.static_name(f"{name}-s"), "c", "running")
    assert await fixture.world.warned(f"{name}2") == preempting, "the smallest that is large enough"
    await fixture.world.until_state(f"{name}2", "c", "terminated")
    ended = await fixture.world.view(f"{name}2")
    failed = ended.containers["c"].exit_code != 0  # a program can end well when it is stopped
    expected = ("Failed", *preempting) if failed else ("Succeeded", "", "")
    assert (ended.phase, ended.reason, ended.message) == expected
    await fixture.run(asking(f"{name}-a", {"cpu": f"{cpu - 650}m"}, **CRITICAL))
    assert await fixture.world.warned(f"{name}1") == preempting
    for other in (f"{name}3", f"{name}-a"):
        assert (await fixture.world.view(other)).phase == "Running"
    found = await rejected(fixture, asking(f"{name}-b", {"cpu": f"{cpu}m"}, **CRITICAL))
    assert found == (NOTHING_TO_PREEMPT[0], NOTHING_TO_PREEMPT[1].format("cpu", cpu - 300))
