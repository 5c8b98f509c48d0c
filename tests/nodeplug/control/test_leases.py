"""`nodeplug leases`: holders, their witnesses, and releasing a lease."""

import json

import pytest

from checkpoint.reconciler import Reconciler
from kubelet.node import Node
from kubelet.pods import container
from kubelet.pods import pod as a_pod
from tests.checkpoint.build import lease, opened
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, cells

POD = "pod/default/a/c"


async def start_with_leases(daemon: DaemonUnderTest) -> None:
    """Start a daemon without a kubelet, whose ledger has a lease of a pod and one of a claim."""
    ledger = await opened(daemon.state)
    await ledger.grant([lease("misc-fuse.0", "example.com/fuse", shares=2, holder=POD, pods="u1")])
    await ledger.grant([lease("misc-kvm", "example.com/other")])
    await ledger.close()
    await daemon.start(FUSE, KVM)


async def test_list_shows_holders_and_filters_by_resource(daemon: DaemonUnderTest) -> None:
    await start_with_leases(daemon)
    rows = cells((await daemon.run("leases", "list")).stdout)
    assert rows[1] == ["misc-fuse.0", "example.com/fuse", "device-plugin", "default", "a", "c"]
    assert rows[2][-3:] == ["reported", "yet", "-"]
    found = (await daemon.json("leases", "list", "--resource", "example.com/fuse"))["leases"]
    assert [(x["holder"], x["pod"], x["podUids"], x["devices"]) for x in found] == [(POD, "a", ["u1"], ["misc-fuse"])]
    result = await daemon.run("leases", "list", "--resource", "example.com/kvm")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing is leased\n")
    found = json.loads((await daemon.run("status", "-o", "json")).stdout)["leases"]
    assert [x["unit"] for x in found] == ["misc-fuse.0", "misc-kvm"]


async def test_show_lists_the_statements_of_witnesses(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    for name in ("misc-fuse", "misc-fuse.0"):
        shown = (await daemon.run("leases", "show", name)).stdout
        assert "pod-resources   names it for pod/default/a/c (holds it)" in shown
    statements = (await daemon.json("leases", "show", "misc-fuse"))["leases"][0]["statements"]
    assert [(x["witness"], x["holds"]) for x in statements[:2]] == [("pod-resources", True), ("kubelet's file", True)]
    result = await daemon.run("leases", "show", "misc-kvm")
    assert result.exit_code == 1
    assert result.stderr == "Error: there is no lease of misc-kvm; nodeplug leases list shows all\n"


async def test_leases_are_found_by_pod_and_unknown_names_are_refused(daemon: DaemonUnderTest) -> None:
    await start_with_leases(daemon)
    assert "misc-fuse.0" in (await daemon.run("leases", "show", "a")).stdout
    for words, message in (
        (("show", "default/aa"), "there is no lease of default/aa; did you mean default/a?"),
        (("show", "default/b"), "there is no lease of default/b; nodeplug leases list shows all"),
        (("show", "misc-fuze.0"), "there is no lease of misc-fuze.0; did you mean misc-fuse.0?"),
        (("release", "misc-fuse"), "misc-fuse is not a unit; it has the units misc-fuse.0: name one"),
        (("release", "default/a"), "default/a is not a unit; it has the units misc-fuse.0: name one"),
        (
            ("list", "--resource", "example.com/fuze"),
            "there is no resource example.com/fuze; did you mean example.com/fuse?",
        ),
    ):
        result = await daemon.run("leases", *words)
        assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")
    result = await daemon.run("leases", "list", "--resource", "example.com/other")  # it is no longer offered
    assert "misc-kvm" in result.stdout
    result = await daemon.run("events", "--resource", "example.com/fuze")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "did you mean example.com/fuse?" in result.stderr


async def test_show_lists_leases_that_end_during_the_request(
    daemon: DaemonUnderTest, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of several queries triggers a pass, which ends all leases of the pod."""
    defaults = dict(Reconciler.__init__.__kwdefaults__ or {})
    monkeypatch.setattr(Reconciler.__init__, "__kwdefaults__", defaults | {"grace": 0.0})  # no lease is too young
    ledger = await opened(daemon.state)
    units = [lease(f"misc-fuse.{i}", "example.com/fuse", shares=2, holder=POD, pods="u1") for i in range(2)]
    await ledger.grant(units)
    await ledger.close()
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    assert (await node.admit(a_pod("other", container("c")))).phase == "Running"
    shown = await daemon.run("leases", "show", "default/a")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.count("it has ended, or no witness answers") == 2


async def test_silent_witness_is_shown_and_release_is_refused(daemon: DaemonUnderTest) -> None:
    await start_with_leases(daemon)
    shown = (await daemon.run("leases", "show", "default/a")).stdout
    assert "pod-resources   does not answer" in shown
    assert "holds it" not in shown
    result = await daemon.run("leases", "release", "misc-fuse.0")
    assert result.exit_code == 1  # the daemon just started: an answer from before could be unknown to it
    assert "less than 5 s ago" in result.stderr


async def test_lease_of_a_running_pod_is_released_only_with_force(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await daemon.run("leases", "release", "misc-fuse.0")
    assert result.exit_code == 1
    assert "which a pod still has (pod-resources: names it for pod/default/a/c" in result.stderr
    assert result.stderr.endswith("; delete the pod instead\n")
    result = await daemon.run("leases", "release", "misc-fuse.0", "--force")
    assert result.stdout.startswith("released: example.com/fuse misc-fuse.0, which ")
    assert "there is no lease" in (await daemon.run("leases", "release", "misc-fuse.0")).stderr


async def test_release_of_a_unit_of_two_resources_needs_the_resource(daemon: DaemonUnderTest) -> None:
    ledger = await opened(daemon.state)
    for resource in ("example.com/a", "example.com/b"):
        await ledger.grant([lease("misc-x.0", resource, exclusive=resource)])
    await ledger.close()
    await daemon.start(FUSE)
    result = await daemon.run("leases", "release", "misc-x.0")
    assert result.exit_code == 2
    assert "name one with --resource: example.com/a, example.com/b" in result.stderr
    result = await daemon.run("leases", "release", "misc-x.0", "--resource", "example.com/b", "--force")
    assert result.stdout.startswith("released: example.com/b misc-x.0, which ")
    assert [x["resource"] for x in (await daemon.json("leases", "list"))["leases"]] == ["example.com/a"]
    result = await daemon.run("leases", "release", "misc-x.0", "--force", "-o", "json")
    (ended,) = json.loads(result.stdout)["leases"]
    assert (ended["resource"], ended["unit"]) == ("example.com/a", "misc-x.0")
