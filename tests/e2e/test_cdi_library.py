"""CDI's own library, which container runtimes use, reads our specs, and agrees with our validation.

Needs no node, but Go, and its module proxy once.
"""

import json
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cdi import CdiDirectory, ContainerEdits, Device, DeviceNode, IntelRdt, Mount, NetDevice, Spec, encode, validate
from tests.e2e import go_programs

pytestmark = pytest.mark.e2e
SOURCES = Path(__file__).with_name("cdi_library")
HOST = ("/dev/null", "/dev/zero", "/dev/full")  # exist everywhere: the library looks them up


@pytest.fixture(scope="module")
def library() -> Path:
    """The program, kept until its sources change."""
    return go_programs.built(SOURCES, "nodeplug-cdi-library") / "cdi_library"


def verdicts(library: Path, folder: Path) -> Mapping[str, Any]:
    """The library's verdict for each file in a folder."""
    done = subprocess.run([library, folder], capture_output=True, check=True)
    return dict(json.loads(done.stdout))


class RandomSpecs:
    """Random edits, the same in each run. Those of `wrong` are invalid, and are sometimes mixed in."""

    def __init__(self, seed: int, *, wrong: bool = False) -> None:
        self._random = random.Random(seed)
        self._wrong = wrong

    def spec(self) -> Spec:
        pick = self._random.choice
        names = self._random.sample(("gpu-0", "0000:82:00.0", "usb.1_a", "9a"), self._random.randint(1, 2))
        devices = [Device.of(name, self._edits()) for name in names]
        common = self._edits() if self._random.random() < 0.2 else ContainerEdits()
        annotations = pick(({}, {}, {"nodeplug.dev/of": "x"}))
        made = Spec.of(pick(("example.com/gpu", "nodeplug.dev/claim", "a.b/c-d.e")), devices, common, annotations)
        return replace(made, cdi_version=pick(("0.2.9", "0.3.0", "0.5.0", "1.1.0"))) if self._makes_invalid() else made

    def _makes_invalid(self) -> bool:
        return self._wrong and self._random.random() < 0.1

    def _some(self, *found: Any) -> tuple[Any, ...]:
        return tuple(self._random.sample(found, self._random.randint(0, len(found))))

    def _edits(self) -> ContainerEdits:
        rdt = IntelRdt(clos_id="a/b" if self._makes_invalid() else "gold")
        edits = ContainerEdits(
            env=(*self._some("A=1", "B="), *(["=C"] * self._makes_invalid())),
            device_nodes=tuple(map(self._node, self._some(*HOST))),
            net_devices=self._some(NetDevice(host_interface_name="eth1", name="net1")) * (1 + self._makes_invalid()),
            mounts=self._some(
                Mount.read_only("/usr", "/opt/usr"),
                Mount(host_path="" if self._makes_invalid() else "/srv", container_path="/srv", options=("bind",)),
                Mount(host_path="/dev/shm", container_path="/dev/shm", type="tmpfs"),
            ),
            intel_rdt=self._random.choice((None, None, rdt, replace(rdt, schemata=("L3:0=f",)))),
            additional_gids=self._some(44, 107),
        )
        return edits if edits != ContainerEdits() or self._makes_invalid() else replace(edits, env=("A=1",))

    def _node(self, path: str) -> DeviceNode:
        pick = self._random.choice
        made = DeviceNode.of(
            path,
            container_path=pick(("", "/dev/inside")),
            permissions="rx" if self._makes_invalid() else pick(("", "r", "rw")),
            uid=pick((None, 0, 107)),
            gid=pick((None, 107)),
            file_mode=pick((None, 0o600, 0o660)),
        )
        return replace(made, type="c", major=-1) if self._makes_invalid() else made


def test_library_accepts_our_specs_at_their_lowest_version(library: Path, tmp_path: Path) -> None:
    generator = RandomSpecs(1)
    specs = {f"s{number}": generator.spec() for number in range(300)}
    directory = CdiDirectory(tmp_path, "test")
    for name, spec in specs.items():
        directory.write(name, spec)
    found = verdicts(library, tmp_path)
    assert len({spec.cdi_version for spec in specs.values()}) > 4
    assert found == {
        f"nodeplug-test~{name}.json": {"refused": "", "version": spec.cdi_version, "injected": ""}
        for name, spec in specs.items()
    }


def test_library_refuses_exactly_the_specs_that_we_refuse(library: Path, tmp_path: Path) -> None:
    generator = RandomSpecs(2, wrong=True)
    problems: dict[str, list[str]] = {}
    for number in range(600):
        spec = generator.spec()
        name = f"{number}.json"
        problems[name] = validate(spec)
        (tmp_path / name).write_bytes(encode(spec))
    refused = {name: verdict["refused"] for name, verdict in verdicts(library, tmp_path).items()}
    assert {name for name, why in refused.items() if why} == {name for name, why in problems.items() if why}
    assert 100 < sum(map(bool, problems.values())) < 500
