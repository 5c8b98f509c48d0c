"""Each row of the tables in checkpoint/holdings.py, with real sockets, files and folders, up to the lease."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

import pytest
from msgspec import Struct

from checkpoint import Lease, Ledger, kubelet_claims, kubelet_devices
from checkpoint.holdings import ClaimName, UnitEntry
from checkpoint.reconciler import Reconciler
from hostdevices import Host
from hostdevices.pod_cgroups import running_pods
from tests.checkpoint.build import claimed, lease, opened
from tests.running import running
from tests.threads import no_more_threads
from tests.witnesses.kubelet import DRIVER, ScriptedKubelet, claim_state, devices, pod
from witnesses import KubeletFiles, NodeWitnesses, PodResources

GPU = "example.com/gpu"
List = Literal["silent", "starting", "others", "named", "junk"]
File = Literal["named", "others", "broken"]
UID, OTHER = "uid-1", "uid-9"


class Row(Struct, frozen=True, kw_only=True):
    """The witnesses' answers, and whether the lease exists afterwards.

    `pods` are the uids in the lease, `cgroups` those of pods with a cgroup (None: cgroups cannot be seen), and
    `before` those that had one at the previous pass. `rewritten` is the kubelet's file after it is written again.
    `wanted` is the API server's answer: None if it does not answer, "" if there is no API server.
    """

    pods: str = ""
    listed: List = "others"
    file: File = "others"
    rewritten: File | None = None
    cgroups: Sequence[str] | None = (OTHER,)
    before: Sequence[str] = ()
    wanted: bool | Literal[""] | None = None
    held: bool


class World:
    """A kubelet, cgroups and an API server that answer as a row says; the ledger and its reconciler."""

    def __init__(self, ledger: Ledger, kubelet: ScriptedKubelet, root: Path, row: Row) -> None:
        self.kubelet = kubelet
        self.row = row
        self._cgroups = root / "sys/fs/cgroup"
        witnesses = NodeWitnesses(
            PodResources(kubelet.socket, self.serves, DRIVER, ["node"]),
            KubeletFiles(kubelet.device_plugins, kubelet.root, self.serves, DRIVER),
            lambda: running_pods(Host(root)),
            None if row.wanted == "" else self.wanted,
        )
        self.reconciler = Reconciler(ledger, witnesses, interval=3600.0, grace=0.0)
        self.reconciler.units = self.reconciler.claims = self
        self.ledger = ledger

    async def wanted(self, claims: Sequence[ClaimName]) -> Mapping[str, bool]:
        return {} if self.row.wanted is None else {claim.uid: bool(self.row.wanted) for claim in claims}

    def serves(self, resource: str) -> bool:
        return resource == GPU

    def republish(self, resources: Iterable[str]) -> None:
        if self.row.rewritten:
            self.write(self.row.rewritten)

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        raise AssertionError("nothing is held without a lease here")

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        raise AssertionError("nothing is held without a lease here")

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        await self.ledger.end(self.ledger.of_owner(f"claim/{claim.uid}"), unless_answered_since=unless_answered_since)

    async def start_kubelet(self, listed: List) -> None:
        if listed == "silent":
            return
        mine = pod("p", {GPU: ["gpu-0"]}, {"c": ["gpu-0"]})
        self.kubelet.answer = {"starting": [pod("etcd-node")], "others": [pod("q")], "named": [mine]}.get(
            listed, b"\xff"
        )
        await self.kubelet.start()

    def write(self, file: File) -> None:
        if file == "broken":
            for folder, name in (
                (self.kubelet.device_plugins, kubelet_devices.FILE_NAME),
                (self.kubelet.root, kubelet_claims.FILE_NAME),
            ):
                self.kubelet.write(folder / name, b"{")
            return
        self.kubelet.write_devices(devices(GPU, "gpu-0" if file == "named" else "gpu-9"))
        self.kubelet.write_claims(claim_state("c" if file == "named" else "d", pods=[UID]))

    def set_cgroups(self, pods: Sequence[str] | None) -> None:
        """Create cgroups of exactly these pods; None makes the cgroups invisible."""
        hidden = self._cgroups.with_name("hidden")
        if hidden.exists():
            hidden.rename(self._cgroups)
        top = self._cgroups / "kubepods/besteffort"
        top.mkdir(parents=True, exist_ok=True)
        (self._cgroups / "cgroup.controllers").touch()
        for uid in (UID, OTHER):
            if uid in (pods or ()):
                (top / f"pod{uid}").mkdir(exist_ok=True)
            elif (top / f"pod{uid}").exists():
                (top / f"pod{uid}").rmdir()
        if pods is None:
            self._cgroups.rename(hidden)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    found = await opened(tmp_path / "state")
    found.is_complete = True
    yield found
    await found.close()


async def outcome(row: Row, leased: Lease, ledger: Ledger, socket_dir: Path, tmp_path: Path) -> bool:
    """Return whether the lease exists after the witnesses were asked."""
    kubelet = ScriptedKubelet(socket_dir)
    world = World(ledger, kubelet, tmp_path / "host", row)
    await ledger.grant([leased])
    world.write(row.file)
    world.set_cgroups(row.before)
    async with asyncio.timeout(30), running(world.reconciler.run()):
        await world.reconciler.refresh()  # pod-resources does not answer yet
        assert ledger.leases()
        world.set_cgroups(row.cgroups)
        await world.start_kubelet(row.listed)
        await world.reconciler.refresh()
        await world.reconciler.refresh()
    await kubelet.stop()
    return bool(ledger.leases())


UNITS = {
    "pod-resources names it": Row(listed="named", file="broken", held=True),
    "its pod has a cgroup": Row(pods=UID, cgroups=(UID,), held=True),
    "the pod for which the kubelet's file names it has a cgroup": Row(file="named", cgroups=(UID,), held=True),
    "its pod's cgroup is gone": Row(pods=UID, listed="silent", before=(UID, OTHER), held=False),
    "its pod's cgroup is gone, the kubelet has just started": Row(
        pods=UID, listed="starting", file="named", before=(UID, OTHER), held=False
    ),
    "no kubelet answers": Row(pods=UID, listed="silent", held=True),
    "the kubelet's answers are invalid": Row(pods=UID, listed="junk", held=True),
    "the kubelet does not know its pods yet": Row(pods=UID, listed="starting", held=True),
    "its file is unreadable, its pod has no cgroup": Row(pods=UID, file="broken", held=False),
    "its file is unreadable, its pod is not known": Row(file="broken", held=True),
    "its file is unreadable, no cgroups can be seen": Row(pods=UID, file="broken", cgroups=None, held=True),
    "no witness names it": Row(pods=UID, cgroups=None, held=False),
    "the kubelet's file names it again": Row(file="named", rewritten="named", held=True),
    "the kubelet's file does not name it any more": Row(file="named", rewritten="others", held=False),
    "the kubelet does not write its file again": Row(file="named", held=True),
}


@pytest.mark.parametrize("row", UNITS.values(), ids=UNITS.keys())
async def test_unit_lease_is_kept_or_ended_as_the_table_requires(
    row: Row, ledger: Ledger, socket_dir: Path, tmp_path: Path
) -> None:
    leased = lease("gpu-0", holder="pod/default/p/c", pods=row.pods)
    assert await outcome(row, leased, ledger, socket_dir, tmp_path) is row.held


CLAIMS = {
    "pod-resources names its device": Row(listed="named", file="broken", wanted=False, held=True),
    "one of its pods has a cgroup": Row(pods=UID, cgroups=(UID,), wanted=False, held=True),
    "no kubelet answers": Row(pods=UID, listed="silent", wanted=False, held=True),
    "the kubelet's answers are invalid": Row(pods=UID, listed="junk", wanted=False, held=True),
    "the kubelet does not know its pods yet": Row(pods=UID, listed="starting", wanted=False, held=True),
    "the kubelet's file names it": Row(file="named", wanted=False, held=True),
    "its file is unreadable, its pods are not known": Row(file="broken", wanted=False, held=True),
    "its file is unreadable, no cgroups can be seen": Row(
        pods=UID, file="broken", cgroups=None, wanted=False, held=True
    ),
    "its file is unreadable, its pods have no cgroups": Row(pods=UID, file="broken", wanted=False, held=False),
    "the API server wants it": Row(wanted=True, held=True),
    "the API server does not want it": Row(wanted=False, held=False),
    "there is no API server to ask": Row(wanted="", held=False),
    "the API server does not answer": Row(wanted=None, held=True),
}


@pytest.mark.parametrize("row", CLAIMS.values(), ids=CLAIMS.keys())
async def test_claim_lease_is_kept_or_ended_as_the_table_requires(
    row: Row, ledger: Ledger, socket_dir: Path, tmp_path: Path
) -> None:
    leased = claimed("gpu-0", "c", pods=row.pods)
    assert await outcome(row, leased, ledger, socket_dir, tmp_path) is row.held


async def test_witness_without_a_free_thread_gives_no_answer(socket_dir: Path) -> None:
    """A pass continues without their answers."""
    kubelet = ScriptedKubelet(socket_dir)
    kubelet.write_devices(devices(GPU, "gpu-0"))
    asked: list[str] = []

    def pods() -> frozenset[str] | None:
        asked.append("pods")
        return frozenset()

    witnesses = NodeWitnesses(
        PodResources(kubelet.socket, lambda _: True, DRIVER, ["node"]),
        KubeletFiles(kubelet.device_plugins, kubelet.root, lambda _: True, DRIVER),
        pods,
    )
    await kubelet.start()
    try:
        with no_more_threads():
            assert await witnesses.listed() is not None
            assert await witnesses.device_file() is None
            assert await witnesses.claim_file() is None
            assert await witnesses.pods() is None
        assert await witnesses.device_file() is not None
        await witnesses.pods()
        assert asked == ["pods"]  # called once: the question during the shortage was dropped
    finally:
        await kubelet.stop()
