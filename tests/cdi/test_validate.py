import pytest

from cdi import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec, validate
from cdi.validate import policy_problems

NODE = ContainerEdits(device_nodes=(DeviceNode(path="/dev/fuse"),))


def with_edits(edits: ContainerEdits) -> Spec:
    return Spec.of("ab/cd", [Device(name="d", container_edits=edits)])


def with_node(node: DeviceNode) -> Spec:
    return with_edits(ContainerEdits(device_nodes=(node,)))


def with_hook(hook: Hook) -> Spec:
    return with_edits(ContainerEdits(hooks=(hook,)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Spec.of("ab/cd", []), "invalid spec, no devices"),
        (Spec.of("ab/cd", [Device(name="d", container_edits=NODE)] * 2), 'invalid spec, multiple device "d"'),
        (with_edits(ContainerEdits()), "invalid device, empty device edits"),
        (with_edits(ContainerEdits(env=("FOO",))), 'invalid container edits: invalid environment variable "FOO"'),
        (with_edits(ContainerEdits(env=("=BAR",))), 'invalid container edits: invalid environment variable "=BAR"'),
        (with_edits(ContainerEdits(env=("=A=B",))), 'invalid environment variable "=A=B"'),
        (with_edits(ContainerEdits(env=("",))), 'invalid environment variable ""'),
        (with_node(DeviceNode(path="")), "invalid (empty) device path"),
        (with_node(DeviceNode(path="/dev/a", type="x")), 'device "/dev/a": invalid type "x"'),
        (with_node(DeviceNode(path="/dev/a", permissions="rx")), 'device "/dev/a": invalid permissions "rx"'),
        (with_node(DeviceNode(path="/dev/a", permissions="no")), 'device "/dev/a": invalid permissions "no"'),
        (with_node(DeviceNode(path="/dev/a", major=-1)), 'device "/dev/a": invalid (negative) device number -1:0'),
        (with_node(DeviceNode(path="/dev/a", minor=-1)), 'device "/dev/a": invalid (negative) device number 0:-1'),
        (
            with_edits(ContainerEdits(net_devices=(NetDevice(host_interface_name="", name="a"),))),
            "invalid linux net device",
        ),
        (
            with_edits(ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),) * 2)),
            'invalid linux net device, duplicate host interface "a"',
        ),
        (
            with_edits(
                ContainerEdits(
                    net_devices=(
                        NetDevice(host_interface_name="a", name="n"),
                        NetDevice(host_interface_name="b", name="n"),
                    )
                )
            ),
            'invalid linux net device, duplicate name "n"',
        ),
        (with_hook(Hook(hook_name="never", path="/bin/true")), 'invalid hook name "never"'),
        (with_hook(Hook(hook_name="prestart", path="")), 'invalid hook "prestart" with empty path'),
        (with_hook(Hook(hook_name="poststop", path="/x", env=("A",))), 'invalid environment variable "A"'),
        (
            with_edits(ContainerEdits(mounts=(Mount(host_path="", container_path="/c"),))),
            "invalid mount, empty host path",
        ),
        (
            with_edits(ContainerEdits(mounts=(Mount(host_path="/h", container_path=""),))),
            "invalid mount, empty container path",
        ),
        (with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id=".."))), "invalid ClosID"),
        (with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id="ab/cd"))), "invalid ClosID"),
        (with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id="a" * 4096))), "invalid ClosID"),
        (Spec.of("ab/cd", [Device(name="d-", container_edits=NODE)]), 'invalid device name "d-"'),
        (Spec.of("a", [Device(name="d", container_edits=NODE)]), 'invalid kind "a"'),
        (Spec.of("1/b", [Device(name="d", container_edits=NODE)]), 'invalid vendor "1"'),
        (Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"-": ""}), 'invalid annotation "-"'),
        (Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"a_b/c": ""}), 'annotation "a_b/c"'),
        (Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"/c": ""}), 'annotation "/c"'),
        (Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"a": "x" * 2**18}), "262145 bytes"),
    ],
)
def test_invalid_spec_has_the_expected_problem(spec: Spec, message: str) -> None:
    assert [problem for problem in validate(spec) if message in problem]


@pytest.mark.parametrize(
    "spec",
    [
        with_node(DeviceNode(path="/dev/a", type="c", permissions="rwm")),
        with_node(DeviceNode(path="/dev/a", permissions="none")),
        with_edits(ContainerEdits(env=("A=", "B==", "C=\n"))),
        with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id="/"))),
        with_edits(ContainerEdits(intel_rdt=IntelRdt(clos_id="a" * 4095))),
        with_hook(Hook(hook_name="createContainer", path="/bin/true")),
        Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"Example.com/My_Key": "x", "k": ""}),
    ],
)
def test_valid_spec_has_no_problem(spec: Spec) -> None:
    assert validate(spec) == []


def versioned(version: str) -> Spec:
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),))
    return Spec(cdi_version=version, kind="ab/cd", devices=(Device(name="d", container_edits=edits),))


def test_unknown_or_too_low_version_is_a_problem() -> None:
    assert validate(versioned("0.4.0")) == ["the spec version must be at least v0.5.0"]
    assert validate(versioned("v0.4.0")) == ["the spec version must be at least v0.5.0"]
    assert validate(versioned("0.9.0")) == ['invalid version "0.9.0"']
    assert validate(versioned("")) == ['invalid version ""']
    assert validate(versioned("v1.0.0")) == []


def test_all_problems_are_reported_together() -> None:
    edits = ContainerEdits(env=("A",), device_nodes=(DeviceNode(path=""),))
    assert len(validate(Spec.of("a", [Device(name="", container_edits=edits)]))) == 4


@pytest.mark.parametrize(
    "edits",
    [
        ContainerEdits(hooks=(Hook(hook_name="prestart", path="/bin/true"),)),
        ContainerEdits(device_nodes=(DeviceNode(path="dev/a"),)),
        ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", permissions="none"),)),
        ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/../etc/shadow"),)),
        ContainerEdits(mounts=(Mount(host_path="lib", container_path="/lib"),)),
        ContainerEdits(mounts=(Mount(host_path="/lib", container_path="/\0"),)),
    ],
)
def test_edits_forbidden_by_nodeplug_are_valid_cdi(edits: ContainerEdits) -> None:
    spec = with_edits(edits)
    assert validate(spec) == []
    assert len(policy_problems(spec)) == 1
    common = Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], edits)
    assert len(policy_problems(common)) == 1
