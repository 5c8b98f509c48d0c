"""Conformance runs against correct and faulty DRA drivers."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from kubelet.conformance import NODE, Check, DriverConformance
from kubelet.conformance.dra_driver import RESTARTS
from nodeplug.commands.kubelet_cluster import api_server_with_node

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
LONG_TIMEOUT = 30.0  # seconds
SHORT_TIMEOUT = 1.0  # seconds, the timeout where a test expects one
PAGE = CHECKOUT / "docs" / "testing-a-plugin.md"


async def verify(
    *command: str,
    device: str = "pool/g0",
    timeouts: Mapping[str, float] = MappingProxyType({}),
    restarts: bool = False,
) -> list[Check]:
    """The failures and warnings, without the warnings about slow answers. The driver is restarted only with `restarts`.

    `timeouts` maps a check's name to the timeout after this check; `start` is the initial timeout.
    """
    checks: list[Check] = []

    def on_check(check: Check) -> None:
        checks.append(check)
        run.seconds = timeouts.get(check.name, run.seconds)

    async with api_server_with_node(NODE) as (client, kubeconfig, requests):
        seconds = timeouts.get("start", LONG_TIMEOUT)
        run = DriverConformance(
            command, seconds, on_check, client, kubeconfig, requests, device, has_plugin_restarts=restarts
        )
        await run.run()
    assert checks == run.checks
    assert run.is_passed == (not any(check.outcome == "fail" for check in checks))
    return [
        check
        for check in checks
        if check.outcome == "fail" or (check.outcome == "warn" and not check.detail.endswith(" ms"))
    ]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")


def command_for(behaviour: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "driver_process.py"), "{dir}", "{kubeconfig}", behaviour)


def texts(checks: list[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.detail) for check in checks]


async def test_correct_driver_passes() -> None:
    assert await verify(*command_for("correct"), restarts=True) == []


async def test_driver_without_slices_fails() -> None:
    timeouts = {"registers": SHORT_TIMEOUT, "publishes devices": LONG_TIMEOUT}
    assert texts(await verify(*command_for("correct"), device="", timeouts=timeouts)) == [
        (
            "publishes devices",
            "no ResourceSlice of driver.example.com after 1 s; it sent no request to the API server, whose kubeconfig"
            " is {kubeconfig} in the command",
        )
    ]


async def test_driver_with_incomplete_pool_fails() -> None:
    timeouts = {"registers": 5.0, "publishes devices": LONG_TIMEOUT}
    assert texts(await verify(*command_for("incomplete-pool"), device="", timeouts=timeouts)) == [
        ("publishes devices", "1 of 2 slices of pool pool, generation 1, after 5 s")
    ]


async def test_refused_slice_fails_with_error_of_api_server() -> None:
    timeouts = {"registers": 5.0, "publishes devices": LONG_TIMEOUT}
    invalid = (
        'ResourceSlice.resource.k8s.io "s" is invalid: spec.devices[0].name: Invalid value: "G_0": a lowercase RFC 1123'
        " label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric"
        " character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
    )
    refused = f"create ResourceSlice s (422, 2 times): {invalid}"
    assert texts(await verify(*command_for("invalid-slice"), device="", timeouts=timeouts)) == [
        ("publishes devices", f"no ResourceSlice of driver.example.com after 5 s; the API server refused: {refused}"),
        ("its writes are accepted", "2 refused, see the failed checks"),
    ]


async def test_driver_exit_after_refused_request_names_the_request() -> None:
    (check,) = await verify(*command_for("exits-after-refusal"))
    assert check.detail == (
        "the command ended with exit code 4; the API server refused: get Node elsewhere (404):"
        ' nodes "elsewhere" not found'
    )


async def test_refused_later_write_is_a_warning() -> None:
    (check,) = await verify(*command_for("reports-other-device"))
    assert (check.name, check.outcome) == ("its writes are accepted", "warn")
    assert re.sub(r"\d+ times", "N times", check.detail) == (
        'patch ResourceClaim/status verify (422, N times): ResourceClaim.resource.k8s.io "verify" is invalid:'
        ' status.devices[0]: Invalid value: {"Driver":"driver.example.com","Pool":"pool","Device":"g9","ShareID":""}:'
        " must be an allocated device in the claim"
    )


async def test_driver_that_publishes_for_another_node_fails() -> None:
    checks = await verify(*command_for("other-node"), device="")
    assert texts(checks) == [("publishes for its node", "for other, but it runs on node: no pod can get them")]


async def test_driver_with_shared_devices_and_capacity_passes() -> None:
    assert await verify(*command_for("shared-device"), device="", restarts=True) == []


async def test_refused_driver_fails_with_the_reason() -> None:
    (check,) = await verify(*command_for("unsupported-version"))
    assert check.detail.startswith("the command ended with exit code 1; the kubelet had refused /")
    assert 'none of services supported by the plugin (["v0.DRAPlugin"]) are supported by the kubelet' in check.detail


async def test_unregistered_driver_fails() -> None:
    (check,) = await verify(*command_for("unregistered"), timeouts={"start": SHORT_TIMEOUT})
    assert (check.group, check.outcome) == ("registration", "fail")
    assert re.fullmatch(r"no socket is in /\S+/plugins_registry, where {dir} leads, after 1 s", check.detail)


async def test_driver_with_invalid_name_fails() -> None:
    (check,) = await verify(*command_for("invalid-name"))
    assert check.detail.startswith("GetInfo returns the name 'Driver Example': an RFC 1123 subdomain must consist of")


async def test_driver_that_prepares_unallocated_device_fails() -> None:
    assert texts(await verify(*command_for("unallocated-device"))) == [
        ("its answer lists the prepared devices", "pool/other was not allocated")
    ]


async def test_driver_with_different_second_answer_fails() -> None:
    assert texts(await verify(*command_for("device-per-call"))) == [
        ("its answer lists the prepared devices", "pool/g1 was not allocated"),
        ("preparing again changes nothing", "other devices"),
    ]


async def test_driver_with_other_cdi_ids_after_restart_fails() -> None:
    (check,) = await verify(*command_for("cdi-id-per-process"), restarts=True)
    assert (check.group, check.name) == ("restart of the driver", "preparing again after its restart changes nothing")
    assert re.fullmatch(r"other CDI ids: example.com/gpu=gpu-\d+ instead of example.com/gpu=gpu-\d+", check.detail)


async def test_driver_that_deletes_its_slices_and_does_not_publish_again_fails() -> None:
    timeouts = {"comes back after its restart": SHORT_TIMEOUT, "publishes its devices after its restart": LONG_TIMEOUT}
    timeouts |= {"comes back after a crash": SHORT_TIMEOUT, "publishes its devices after a crash": LONG_TIMEOUT}
    gone = "they are not there after 1 s; the kubelet deletes them while no driver runs"
    assert texts(await verify(*command_for("deletes-slices"), device="", timeouts=timeouts, restarts=True)) == [
        (f"publishes its devices after {event}", gone) for event in ("its restart", "a crash")
    ]


async def test_driver_that_needs_claim_for_unprepare_fails() -> None:
    timeouts = {f"comes back after restart {RESTARTS}": 3.0, "is unprepared without the claim": LONG_TIMEOUT}
    failed = "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim verify:"
    missing = 'resourceclaims.resource.k8s.io "verify" not found'
    assert texts(await verify(*command_for("unprepare-needs-claim"), timeouts=timeouts)) == [
        ("is unprepared without the claim", f"the pod has not ended after 3 s; {failed} {missing}"),
        (
            "a claim that was never prepared is unprepared",
            'resourceclaims.resource.k8s.io "verify-nobody" not found; its pod would never end',
        ),
    ]


async def test_driver_that_fails_whole_call_for_one_claim_fails() -> None:
    failed = "the whole call failed, for all claims: rpc error: code = Internal desc ="
    missing = 'resourceclaims.resource.k8s.io "verify-nobody" not found'
    assert texts(await verify(*command_for("fails-whole-call"))) == [
        ("a claim that does not exist is refused", f"{failed} {missing}"),
        ("a claim with the uid of another is refused", f"{failed} another claim has the name"),
        ("one bad claim does not harm the other", f"{failed} {missing}"),
    ]


async def test_driver_that_omits_claims_from_answer_fails() -> None:
    left_out = "it is not in the answer; every claim has to be"
    assert texts(await verify(*command_for("omits-claims"))) == [
        ("a claim that does not exist is refused", left_out),
        ("a claim with the uid of another is refused", left_out),
    ]


async def test_driver_that_dies_during_prepare_fails() -> None:
    checks = await verify(*command_for("dies-in-prepare"))
    assert {check.outcome for check in checks} == {"fail"}
    assert (checks[-1].name, checks[-1].detail) == ("still runs", "the command ended with exit code 3")


async def test_driver_of_documentation_fails_only_known_checks(folder: Path) -> None:
    (driver,) = [
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "PluginInfo" in block
    ]
    (folder / "driver.py").write_text(driver)
    checks = await verify(sys.executable, str(folder / "driver.py"), "{dir}/driver.sock", device="node/gpu-0")
    assert [(check.name, check.outcome) for check in checks] == [
        ("a claim that does not exist is refused", "fail"),
        ("a claim with the uid of another is refused", "fail"),
        ("stops on SIGTERM", "warn"),
        ("leaves no registration socket behind", "warn"),
    ]
