"""A resource's keys: names, environment, mounts, access, and valid combinations."""

import pytest

from nodeplug.config import loads
from nodeplug.config.resources import name_error
from resources.resource import Mount, NodeAccess
from tests.nodeplug.config.text import errors_of, errors_with_settings, one

LONG_TIMEOUT = "a" * 63


@pytest.mark.parametrize(
    "name",
    [
        "example.com/gpu",
        "fake-domain/resource",
        "a/B_c.d-e",
        f"{'a.' * 121}aa/x",
        f"x/{LONG_TIMEOUT}",
        "example.com/0",
        "kubernetes.io.example/x",
    ],
)
def test_valid_names_are_accepted(name: str) -> None:
    assert name_error(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpu", "it has no domain"),
        ("", "it has no domain"),
        ("kubernetes.io/gpu", "Kubernetes' own"),
        ("my.kubernetes.io/gpu", "Kubernetes' own"),
        ("requests.example.com/gpu", "quotas"),
        ("example.com/gpu/0", "more than one slash"),
        ("Example.com/gpu", "the domain must have lower-case"),
        ("/gpu", "the domain must have"),
        ("-a/gpu", "the domain must have"),
        ("a..b/gpu", "the domain must have"),
        (f"{'a.' * 122}a/x", "at most 244"),
        ("example.com/", "after the slash"),
        ("example.com/-x", "after the slash"),
        ("example.com/x-", "after the slash"),
        (f"x/{LONG_TIMEOUT}a", "at most 63"),
        ("example.com/gpu\n", "after the slash"),
    ],
)
def test_names_that_the_kubelet_refuses_are_refused(name: str, why: str) -> None:
    assert why in name_error(name)


def test_every_key_of_a_resource_is_read() -> None:
    config = loads(b"""
        settings: {allowedMounts: [/usr/lib/firmware]}
        resources:
          - name: example.com/gps
            select: usb-serial
            nodes: /dev/ttyUSB*
            containerPath: "/dev/gps-{pciBusID}"
            permissions: rwm
            env: {GPS: "{devnodes}", PLACE: "{{ {pciBusID} }} {serial}"}
            mounts:
              - {hostPath: /usr/lib/firmware/a, readOnly: false}
              - {hostPath: /usr/lib/firmware, containerPath: /fw}
            annotations: {example.com/ids: "{ids}", plain: x}
            cdi: true
            access: {uid: 0, gid: 20, mode: "0660"}
            preferred: packed
            topology: false
            ids: path
            identity: port
            health: present
            reset: true
            dangerous: true
    """)
    (gps,) = config.resources
    assert (gps.nodes, gps.shares, gps.permissions) == (("/dev/ttyUSB*",), 1, "rwm")
    assert gps.container_path == "/dev/gps-{resource.kubernetes.io/pciBusID}"
    assert gps.env == {"GPS": "{devnodes}", "PLACE": "{{ {resource.kubernetes.io/pciBusID} }} {serial}"}
    assert gps.mounts == (
        Mount("/usr/lib/firmware/a", "/usr/lib/firmware/a", False),
        Mount("/usr/lib/firmware", "/fw", True),
    )
    assert gps.annotations == {"example.com/ids": "{ids}", "plain": "x"}
    assert (gps.cdi, gps.access) == (True, NodeAccess(0, 20, 0o660))
    assert (gps.ids, gps.identity) == ("path", "port")
    assert (gps.preferred, gps.topology, gps.health, gps.reset) == ("packed", False, "present", True)
    assert gps.dangerous


def test_access_sets_only_the_written_keys() -> None:
    assert one('select: kvm\naccess: {mode: "660"}').access == NodeAccess(None, None, 0o660)


@pytest.mark.parametrize(
    ("text", "policy"),
    [("", "auto"), ("cdi: auto", "auto"), ('cdi: "auto"', "auto"), ("cdi: true", True), ("cdi: false", False)],
)
def test_cdi_policy_defaults_to_auto(text: str, policy: object) -> None:
    assert one(f"select: kvm\n{text}").cdi == policy


@pytest.mark.parametrize("policy", ["auto", "true"])
def test_access_is_accepted_with_cdi_names(policy: str) -> None:
    found = one(f"select: kvm\ncdi: {policy}\naccess: {{gid: 20}}")
    assert found.access == NodeAccess(None, 20, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shares: 100000",
            "1 device(s) with 100000 share(s) make a list of up to 9100000 bytes; the kubelet takes 4194304",
        ),
        ("permissions: rr", "rr has a permission twice"),
        ("reset: true\nshares: 2", "a reset would affect the other containers that share the device"),
        ("nodes: [/dev/a, dri/*]", "dri/* is not below /dev; device nodes are"),
        ("nodes: []", "an empty list matches no node; leave it out for all of a device's nodes"),
        ("nodes: /dev/../etc", "/dev/../etc has empty, `.` or `..` components"),
        ("env: {1A: x}", "1A cannot be the name of a variable; letters, digits, underscores"),
        ("env: {LD_PRELOAD: x}", "LD_PRELOAD cannot be set here; choose another name"),
        ("env: {PATH: x}", "PATH cannot be set here; choose another name"),
        ("env: {KUBERNETES_SERVICE_HOST: x}", "KUBERNETES_SERVICE_HOST cannot be set here; choose another name"),
        ("env: {NODEPLUG_X_Y: x}", "NODEPLUG_X_Y cannot be set here; choose another name"),
        ('env: {A: "{device}{serail}"}', "unknown field {serail}; did you mean serial?"),
        ('env: {A: "{ids"}', "unmatched brace; write {{ or }} for a brace"),
        ('env: {A: "}"}', "unmatched brace; write {{ or }} for a brace"),
        ("api: dra\nids: uuid", "only the device plugin API has such ids; leave it out; use `dra.attributes`"),
        (
            "identity: port\ngroup: parent",
            "a group is identified by what its members have in common; leave one out",
        ),
        ("containerPath: zigbee", "zigbee is not an absolute path without empty, `.` or `..` components"),
        ("containerPath: /sys/x", "no device can be at /sys/x; use a path below /dev that no container has already"),
        ('containerPath: "/dev/{ids}"', "{ids} is not an attribute of one device; name an attribute"),
        ('containerPath: "/dev/{serail}"', "unknown field {serail}; did you mean serial?"),
        (
            "containerPath: /dev/a\ngroup: {paths: [{path: /dev/a}]}",
            "`group.paths` sets the path of each node; leave it out",
        ),
        ("annotations: {-x: z}", "-x cannot be the name of an annotation"),
        ("annotations: {A_/x: z}", "A_/x cannot be the name of an annotation"),
        ('annotations: {a: "{x}"}', "unknown field {x}"),
        ("mounts: [{hostPath: usr}]", "usr is not an absolute path without empty, `.` or `..` components"),
        (
            "mounts: [{hostPath: /fw/../etc}]",
            "/fw/../etc is not an absolute path without empty, `.` or `..` components",
        ),
        ("mounts: [{hostPath: /fwx}]", "/fwx is not below any of settings.allowedMounts"),
        ("mounts: [{hostPath: /fw, containerPath: /proc/x}]", "nothing can be mounted at /proc/x"),
        ("mounts: [{hostPath: /fw, containerPath: /dev/shm/x}]", "nothing can be mounted at /dev/shm/x"),
        (
            "mounts: [{hostPath: /fw, containerPath: a}]",
            "a is not an absolute path without empty, `.` or `..` components",
        ),
        ("mounts: [{hostPath: /fw}, {hostPath: /fw/a, containerPath: /fw}]", "two mounts at /fw"),
        ("cdi: false\naccess: {uid: 5}", "only CDI can set the owner of a device node; leave `cdi: false` out"),
    ],
)
def test_invalid_keys_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: kvm\n{text}", settings="allowedMounts: [/fw]")
    assert found.startswith(message)


def test_missing_select_is_refused() -> None:
    assert errors_with_settings("shares: 2") == ["the key select is missing; it selects the devices"]


def test_cdi_keys_require_a_name_that_is_a_cdi_kind() -> None:
    assert errors_of("""
        resources:
          - {name: example.com/a.b, select: kvm}
          - {name: example.com/c.d, select: kvm, cdi: true}
          - {name: 1.example/x, select: kvm, cdi: true}
          - {name: example.com/e.f, select: kvm, access: {gid: 20}}
    """) == [
        f"{place}: {name} cannot be a CDI kind: it begins with a letter and has no dot after the slash"
        for place, name in (("3:12", "example.com/c.d"), ("4:12", "1.example/x"), ("5:12", "example.com/e.f"))
    ]


def test_duplicate_names_are_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a, select: kvm}
          - {name: x/a, select: tun}
    """) == [
        "3:12: x/a is the name of two resources; to select more, use `any` in one of them; for other nodes, set"
        " `onNodes` in the first"
    ]


def test_same_variable_in_two_resources_is_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a, select: kvm, env: {SAME: "1", OTHER: a, ID: "{ids}"}}
          - name: x/b
            select: tun
            env:
              SAME: "1"
              OTHER: b
              ID: "{ids}"
    """) == [
        "7:7: OTHER is also set by x/a; a container with both would see one of them; choose another name",
        "8:7: ID is also set by x/a; a container with both would see one of them; choose another name",
    ]


def test_same_container_path_in_two_resources_is_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a, select: kvm, containerPath: /dev/mine}
          - {name: x/b, select: tun, containerPath: /dev/mine}
    """) == [
        "3:45: x/a has its devices at /dev/mine, too; a container with both would see one of them; choose another path",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kubeletRoot: kubelet", '"kubelet" must be an absolute path'),
        ("kubeletRoot: /var//kubelet", "/var//kubelet is not an absolute path without empty, `.` or `..` components"),
        (f"kubeletRoot: /{'k' * 41}", "may have 108 bytes; the limit is 107"),
        ("stateDirectory: /a/../b", "/a/../b is not an absolute path"),
        ("cdiDirectory: /cdi/", "/cdi/ is not an absolute path"),
        ("metricsAddress: 127.0.0.1", '"127.0.0.1" must be HOST:PORT'),
        ('metricsAddress: "[::1]:70000"', "70000 is not a port; the highest is 65535"),
        ("rescanSeconds: 0", "0 is less than 1"),
        ("allowedMounts: [/]", "is not an absolute path"),
        ("allowedMounts: [/etc]", "/etc has files that no container must get; name a folder for devices only"),
        ("allowedMounts: [/proc/driver]", "/proc/driver has files that no container must get"),
        ("allowedMounts: [/var/lib/kubelet/pods]", "/var/lib/kubelet/pods has files that no container must get"),
        ("{kubeletRoot: /k, allowedMounts: [/k/pods]}", "/k/pods has files that no container must get"),
    ],
)
def test_invalid_settings_are_refused(text: str, message: str) -> None:
    (found,) = errors_of(f"settings: {text if text[0] == '{' else f'{{{text}}}'}\nresources: []\n")
    assert message in found


def test_invalid_allowed_mounts_cause_no_errors_of_mounts() -> None:
    assert errors_of("""
        settings: {allowedMounts: /fw}
        resources:
          - {name: x/y, select: kvm, mounts: [{hostPath: /fw}]}
    """) == [
        '1:27: this must be a list, not "/fw"; the host folders and files that resources may mount, with everything '
        "below them"
    ]
