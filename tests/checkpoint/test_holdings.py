"""Each row of the two tables in holdings.py."""

import pytest

from checkpoint import Lease
from checkpoint.holdings import ClaimEntry, DeviceFile, Holdings, Listed, UnitEntry, Verdict, claim_of
from tests.checkpoint.build import claimed, lease

HELD, ENDED, NOT_KNOWN = Verdict.HELD, Verdict.ENDED, Verdict.NOT_KNOWN
UNIT = ("example.com/gpu", "gpu-0")
NOT_LISTED = Listed(knows_its_pods=True)  # lists other pods, none of which has the unit
STARTING = Listed()  # a kubelet that has just started
IN_FILE = DeviceFile({UNIT: UnitEntry("uid-1", "c")})
IN_OLD_FILE = DeviceFile({UNIT: UnitEntry("uid-1", "c")}, is_fresh=False)
ANONYMOUS, KNOWN = lease("gpu-0"), lease("gpu-0", holder="pod/default/p/c", pods="uid-1")
RUNNING, OTHER_PODS = frozenset({"uid-1", "uid-9"}), frozenset({"uid-9"})
ENDED_PODS = frozenset({"uid-1"})

UNITS: dict[str, tuple[Lease, Holdings, Verdict]] = {
    "pod-resources names it": (ANONYMOUS, Holdings(Listed({UNIT: "pod/default/p/c"})), HELD),
    "pod-resources names it though its cgroup is gone": (
        KNOWN,
        Holdings(Listed({UNIT: "pod/default/p/c"}), pods=OTHER_PODS, ended_pods=ENDED_PODS),
        HELD,
    ),
    "the cgroup of the pod that the lease knows": (KNOWN, Holdings(NOT_LISTED, DeviceFile(), pods=RUNNING), HELD),
    "the cgroup of the pod that the file names": (ANONYMOUS, Holdings(NOT_LISTED, IN_OLD_FILE, pods=RUNNING), HELD),
    "only a cgroup is known": (KNOWN, Holdings(pods=RUNNING), HELD),
    "its cgroup was seen and is gone, without other evidence": (
        KNOWN,
        Holdings(pods=OTHER_PODS, ended_pods=ENDED_PODS),
        ENDED,
    ),
    "its cgroup is gone and the file is old": (
        KNOWN,
        Holdings(STARTING, IN_OLD_FILE, pods=OTHER_PODS, ended_pods=ENDED_PODS),
        ENDED,
    ),
    "one of two pods is gone": (
        ANONYMOUS,
        Holdings(STARTING, DeviceFile({UNIT: UnitEntry("uid-2", "c")}), pods=OTHER_PODS, ended_pods=ENDED_PODS),
        NOT_KNOWN,
    ),
    "no kubelet": (KNOWN, Holdings(None, DeviceFile(), pods=OTHER_PODS), NOT_KNOWN),
    "a kubelet that does not know its pods": (KNOWN, Holdings(STARTING, DeviceFile(), pods=OTHER_PODS), NOT_KNOWN),
    "only static pods are listed": (ANONYMOUS, Holdings(Listed({("a.com/r", "u"): "pod/x/y/z"})), NOT_KNOWN),
    "no file can be read, the pod is known and has no cgroup": (
        KNOWN,
        Holdings(NOT_LISTED, None, pods=OTHER_PODS),
        ENDED,
    ),
    "no file can be read and the pod is not known": (ANONYMOUS, Holdings(NOT_LISTED, None, pods=OTHER_PODS), NOT_KNOWN),
    "no file can be read and no cgroups can be seen": (KNOWN, Holdings(NOT_LISTED, None), NOT_KNOWN),
    "neither listed nor in the file": (KNOWN, Holdings(NOT_LISTED, DeviceFile(is_fresh=False)), ENDED),
    "a plain init container, or a pod that has not begun": (
        ANONYMOUS,
        Holdings(NOT_LISTED, IN_FILE, pods=OTHER_PODS),
        HELD,
    ),
    "the file may be older than the end of the pod": (
        ANONYMOUS,
        Holdings(NOT_LISTED, IN_OLD_FILE),
        Verdict.FILE_TOO_OLD,
    ),
}


@pytest.mark.parametrize(("leased", "holdings", "verdict"), UNITS.values(), ids=UNITS.keys())
def test_unit_verdict_follows_the_table(leased: Lease, holdings: Holdings, verdict: Verdict) -> None:
    assert holdings.verdict(leased) is verdict


CLAIM = claimed("gpu-0", "uid-c")
SHARE = claimed("gpu-0/s1", "uid-c", exclusive="", shared="gpu-0")
ADMIN = claimed("gpu-0@uid-c", "uid-c", exclusive="")
PODS = claimed("gpu-0", "uid-c", pods="uid-1")
FILE = {"uid-c": ClaimEntry("default", "uid-c", frozenset({"uid-1"}))}


def listed(*units: str, name: str = "uid-c") -> Listed:
    return Listed(claims={("default", name): frozenset(units)}, knows_its_pods=True)


CLAIMS: dict[str, tuple[Lease, Holdings, Verdict]] = {
    "pod-resources names its device": (CLAIM, Holdings(listed("gpu-0")), HELD),
    "pod-resources names its share": (SHARE, Holdings(listed("gpu-0/s1")), HELD),
    "pod-resources names a device with admin access": (ADMIN, Holdings(listed("gpu-0")), HELD),
    "a cgroup of a pod that the lease knows": (PODS, Holdings(NOT_LISTED, claim_file={}, pods=RUNNING), HELD),
    "a cgroup of a pod that the file names": (CLAIM, Holdings(NOT_LISTED, claim_file=FILE, pods=RUNNING), HELD),
    "no kubelet": (CLAIM, Holdings(None, claim_file={}, claims={"uid-c": False}), NOT_KNOWN),
    "a kubelet that does not know its pods": (
        CLAIM,
        Holdings(STARTING, claim_file={}, claims={"uid-c": False}),
        NOT_KNOWN,
    ),
    "the kubelet will unprepare it": (CLAIM, Holdings(NOT_LISTED, claim_file=FILE, claims={"uid-c": False}), HELD),
    "the file cannot be read, its pods are not known": (
        CLAIM,
        Holdings(NOT_LISTED, pods=OTHER_PODS, claims={"uid-c": False}),
        NOT_KNOWN,
    ),
    "the file cannot be read, no cgroups can be seen": (PODS, Holdings(NOT_LISTED, claims={"uid-c": False}), NOT_KNOWN),
    "the file cannot be read, its pods have no cgroups": (
        PODS,
        Holdings(NOT_LISTED, pods=OTHER_PODS, claims={"uid-c": False}),
        ENDED,
    ),
    "another share is named": (SHARE, Holdings(listed("gpu-0/s2"), claim_file={}, claims={"uid-c": False}), ENDED),
    "another claim is named": (
        CLAIM,
        Holdings(listed("gpu-0", name="other"), claim_file={}, claims={"uid-c": False}),
        ENDED,
    ),
    "the API server wants it": (CLAIM, Holdings(NOT_LISTED, claim_file={}, claims={"uid-c": True}), HELD),
    "the API server was not asked": (CLAIM, Holdings(NOT_LISTED, claim_file={}), Verdict.ASK_SERVER),
    "there is no API server": (CLAIM, Holdings(NOT_LISTED, claim_file={}, claims=None), ENDED),
}


@pytest.mark.parametrize(("leased", "holdings", "verdict"), CLAIMS.values(), ids=CLAIMS.keys())
def test_claim_verdict_follows_the_table(leased: Lease, holdings: Holdings, verdict: Verdict) -> None:
    assert holdings.verdict(leased) is verdict


def test_claim_lease_without_a_name_is_held_while_its_device_is_listed() -> None:
    old = Lease(
        resource="r", unit="gpu-0", api="dra", owner="claim/u", exclusive=frozenset(), holder="claim/u", boot_id=""
    )
    assert claim_of(old).uid == "u"
    assert Holdings(listed("gpu-0", name="any"), claim_file={}, claims={"u": False}).verdict(old) is HELD
    assert Holdings(listed("gpu-1", name="any"), claim_file={}, claims={"u": False}).verdict(old) is ENDED
