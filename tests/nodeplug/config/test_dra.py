"""The DRA keys of a resource: an accepted value is valid for every API server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.publishing.device_class import device_class
from nodeplug.config import ConfigError, loads
from resourceapi.objects.validate import validate_create
from resources.resource import Capacity, DraOptions, DriverBinding, InterfaceMoves, Partition
from tests.dra_plugin.offering import DRIVER, device, offering, published
from tests.nodeplug.config.text import errors_of, errors_with_settings, one


def test_api_defaults_to_device_plugin() -> None:
    found = one("select: kvm")
    assert (found.api, found.dra) == ("device-plugin", DraOptions())
    assert one("select: kvm\napi: both").api == "both"


def test_every_key_of_a_whole_device_is_read() -> None:
    found = one("""
        select: gpu
        api: dra
        shares: 4
        dra:
          taint: NoExecute
          attributes: {k8s.cni.cncf.io/deviceID: "{pciBusID}", tier: 2, note: "{{x}}"}
          capacity:
            memory: {value: 80Gi, default: 20Gi, min: 10Gi, max: 40Gi, step: 10Gi}
            vendor.example/cores: {value: 8, default: 2, validValues: [2, "4"]}
          bindingConditions: [example.com/attached]
          bindingFailureConditions: [example.com/failed]
          extendedResource: true
    """)
    assert (found.api, found.shares) == ("dra", 4)
    assert found.dra == DraOptions(
        taint="NoExecute",
        attributes={"k8s.cni.cncf.io/deviceID": "{resource.kubernetes.io/pciBusID}", "tier": 2, "note": "{{x}}"},
        capacity={
            "memory": Capacity("80Gi", default="20Gi", minimum="10Gi", maximum="40Gi", step="10Gi"),
            "vendor.example/cores": Capacity("8", default="2", valid_values=("2", "4")),
        },
        binding_conditions=("example.com/attached",),
        binding_failure_conditions=("example.com/failed",),
        extended_resource=True,
    )


def test_every_key_of_interface_is_read() -> None:
    def interface(text: str) -> InterfaceMoves | None:
        return one(f"select: nic\napi: dra\ndra: {{interface: {text}}}").dra.interface

    assert one("select: nic\napi: dra").dra.interface is None
    assert interface("move") == interface("{}") == InterfaceMoves()
    everything = "{name: true, mtu: true, mac: true, addresses: [198.51.100.0/24, '2001:db8::/64']}"
    assert interface(everything) == InterfaceMoves(True, True, True, ("198.51.100.0/24", "2001:db8::/64"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("dra: {interface: go}", "known are move"),
        ("dra: {interface: {names: true}}", "names"),
        ("dra: {interface: {addresses: [198.51.100.7/24]}}", "198.51.100.7/24 is not a prefix"),
        ("dra: {interface: {addresses: [0.0.0.0/0]}}", "contains every address"),
        ("shares: 2\ndra: {interface: move}", "in one pod at a time"),
    ],
)
def test_invalid_interface_keys_are_refused(more: str, words: str) -> None:
    assert words in str(errors_with_settings(f"select: nic\napi: dra\n{more}"))


def test_every_key_of_partitions_is_read() -> None:
    found = one("""
        select: gpu
        api: both
        dra:
          counters: {memory: 80Gi, slices: 7}
          partitions:
            - {name: 1g-10gb, count: 7, consumes: {memory: 10Gi, slices: 1}, capacity: {memory: 10Gi}}
            - name: 7g-80gb
              consumes: {memory: 80Gi, slices: 7}
              attributes: {profile: 7g.80gb, full: true, engines: 7}
    """)
    assert found.dra.counters == {"memory": "80Gi", "slices": "7"}
    assert found.dra.partitions == (
        Partition("1g-10gb", {"memory": "10Gi", "slices": "1"}, 7, capacity={"memory": Capacity("10Gi")}),
        Partition(
            "7g-80gb",
            {"memory": "80Gi", "slices": "7"},
            attributes={"profile": "7g.80gb", "full": True, "engines": 7},
        ),
    )


def test_node_owner_without_cdi_is_accepted_for_dra_only() -> None:
    assert one("select: kvm\napi: dra\ncdi: false\naccess: {uid: 5}").access is not None
    (found,) = errors_with_settings("select: kvm\napi: both\ncdi: false\naccess: {uid: 5}")
    assert found.startswith("only CDI can set the owner of a device node")


def test_list_limit_of_the_kubelet_does_not_apply_to_dra() -> None:
    assert one("select: kvm\napi: dra\nshares: 100000").shares == 100000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dra: {taint: none}",
            "this key is only for DRA, and the resource is not offered through DRA; add `api: dra` or `api: both` to"
            " the resource",
        ),
        ("api: DRA", 'unknown value "DRA"; did you mean dra?'),
        ("api: dra\ndra: {taint: Evict}", 'unknown value "Evict"; known are NoExecute, NoSchedule, none'),
        (
            "api: both\ndra: {extendedResource: true}",
            "the kubelet already counts x/y through the device plugin API: pods could get it twice; leave this out,"
            " or set `api: dra`",
        ),
        ("api: dra\nannotations: {a: b}", "only the device plugin API has annotations; leave them out"),
        ("api: dra\ndra: {attributes: {vendor: x}}", "the attribute vendor is each device's own; choose another name"),
        (
            "api: dra\ndra: {attributes: {resource.kubernetes.io/x: 1}}",
            "the attribute resource.kubernetes.io/x is Kubernetes' own; choose another name",
        ),
        ("api: dra\ndra: {attributes: {kind: x}}", "the attribute kind cannot be set here; choose another name"),
        ("api: dra\ndra: {attributes: {a.b/c-d: x}}", "a.b/c-d cannot be the name of an attribute or a capacity"),
        ('api: dra\ndra: {attributes: {a: "{serail}"}}', "unknown field {serail}; did you mean serial?"),
        (f"api: dra\ndra: {{attributes: {{a: {'x' * 65}}}}}", "an attribute has at most 64 bytes"),
        (f"api: dra\ndra: {{attributes: {{a: {2**63}}}}}", f"{2**63} has more than 64 bits"),
        ("api: dra\ndra: {capacity: {a-b: 1}}", "a-b cannot be the name of an attribute or a capacity"),
        ("api: dra\ndra: {capacity: {a: much}}", "much is not an amount; write it as Kubernetes does: 40Gi, 25G"),
        ("api: dra\ndra: {capacity: {a: 0}}", "0 is not more than nothing"),
        ("api: dra\ndra: {capacity: {a: 1.5}}", 'YAML takes 1.5 for a number; write it in quotes: "1.5"'),
        (
            "api: dra\ndra: {capacity: {a: {default: 1}}}",
            "the key value is missing; the whole amount, a Kubernetes quantity: `80Gi`, `25G`, `100`",
        ),
        (
            "api: dra\ndra: {capacity: {a: {value: 9, min: 1, validValues: [2]}}}",
            "min and validValues: a device without `shares` is allocated as a whole",
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {a: 9}}",
            "without `default` the first claim would get the whole amount, and the other shares nothing; set what a"
            " claim",
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {a: {value: 9, default: 1, min: 1, validValues: [1]}}}",
            "validValues and a range exclude each other",
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {a: {value: 9, default: 1, max: 3}}}",
            "a range needs `min`; add `min`",
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {a: {value: 9, default: 10, min: 10}}}",
            'no API server accepts this: Invalid value: "10": min is larger than capacity value: 9',
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {a: {value: 9, default: 1, validValues: [2, 3]}}}",
            'no API server accepts this: Invalid value: "1": default value is not valid according to the requestPolicy',
        ),
        (
            "api: dra\nshares: 2\ndra: {capacity: {shares: {value: 9, default: 1}}}",
            "the capacity `shares` is set by the key `shares`",
        ),
        (
            f"api: dra\ndra: {{capacity: {{{', '.join(f'c{i}: 1' for i in range(25))}}}}}",
            "with those that every device has, these are 33 attributes and capacities; at most 32 are possible",
        ),
        (
            "api: dra\ndra: {bindingConditions: [a]}",
            "bindingConditions and bindingFailureConditions must be set together; say when the device can be had",
        ),
        (
            "api: dra\ndra: {bindingConditions: [a], bindingFailureConditions: [b c]}",
            'no API server accepts this: Invalid value: "b c": name part must consist of alphanumeric',
        ),
        ("api: dra\ndra: {counters: {a: 1}}", "nothing takes from these counters; add `partitions`"),
    ],
)
def test_invalid_dra_keys_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: kvm\n{text}")
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("text", "more", "messages"),
    [
        ("{name: p, consumes: {b: 1}}", "", ["there is no counter b; known are a"]),
        ("{name: p, consumes: {a: 9}}", "", ["9 is more than the 8 that a device has of a"]),
        (
            "{name: p, consumes: {}}",
            "",
            ["a partition must take something: nothing would keep it apart from the others"],
        ),
        ("{name: P, consumes: {a: 1}}", "", ["P cannot be a partition; lower-case letters, digits and dashes"]),
        ("{name: p, count: 0, consumes: {a: 1}}", "", ["0 is less than 1"]),
        (
            "{name: p, consumes: {a: 1}, attributes: {partitionType: x}}",
            "",
            ["the attribute partitionType cannot be set here; choose another name"],
        ),
        ("{name: p, consumes: {a: 1}, attributes: {x/y/z: 1}}", "", ["x/y/z cannot be the name of an attribute"]),
        (
            f"{{name: p, consumes: {{a: 1}}, attributes: {{x: {'x' * 65}}}}}",
            "",
            ["an attribute has at most 64 bytes"],
        ),
        (
            "{name: p, consumes: {a: 1}, attributes: {x: 9223372036854775808}}",
            "",
            ["9223372036854775808 has more than 64 bits"],
        ),
        ("{name: p, consumes: {a: 1}}, {name: p, consumes: {a: 1}}", "", ["p is the name of two partitions"]),
        (
            "{name: p, consumes: {a: 1}}",
            "shares: 2",
            ["a device is offered in shares or in partitions, not in both; leave one out"],
        ),
        (
            "{name: p, consumes: {a: 1}}",
            "group: functions",
            ["a group is allocated as one device and has no partitions; leave one out"],
        ),
    ],
)
def test_invalid_partitions_are_refused(text: str, more: str, messages: list[str]) -> None:
    found = errors_with_settings(f"select: kvm\napi: dra\ndra: {{counters: {{a: 8}}, partitions: [{text}]}}\n{more}")
    assert len(found) == len(messages)
    assert all(x.startswith(y) for x, y in zip(found, messages, strict=True))


def test_partitions_without_counters_are_refused() -> None:
    assert errors_with_settings("select: kvm\napi: dra\ndra: {partitions: [{name: p, consumes: {a: 1}}]}") == [
        "partitions need `counters` to consume; say what a device has of each",
        "there is no counter a",
    ]


def test_capacity_of_a_device_with_partitions_is_refused() -> None:
    text = "{counters: {a: 1}, partitions: [{name: p, consumes: {a: 1}}], capacity: {b: 1}}"
    assert errors_with_settings(f"select: kvm\napi: dra\ndra: {text}") == [
        "a device with partitions is not offered as a whole; say what each partition has"
    ]


def test_errors_of_the_api_have_their_places() -> None:
    assert errors_of("""
        resources:
          - name: x/y
            select: gpu
            api: dra
            shares: 2
            dra:
              capacity:
                memory: {value: 8Gi, default: 9Gi, min: 1Gi, max: 10Gi}
              bindingConditions: [a, b]
              bindingFailureConditions: [c, a]
    """) == [
        '8:59: no API server accepts this: Invalid value: "10Gi": max is larger than capacity value: 8Gi',
        '10:37: no API server accepts this: Invalid value: "a": bindingFailureConditions must not overlap with'
        " bindingConditions",
    ]


def test_duplicate_and_invalid_class_names_are_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a_b, select: kvm, api: dra}
          - {name: x/a-b, select: tun, api: both}
          - {name: x/A-B, select: fuse}
          - {name: x/a_.b, select: fuse, api: dra}
    """) == [
        "3:12: x/a-b and x/a_b would both have the DeviceClass a-b.x; give one of them another name",
        "5:12: the DeviceClass of x/a_.b cannot be named a-.b.x; after the slash, begin and end words between dots"
        " with a letter or a digit",
    ]


def test_name_must_fit_into_an_attribute() -> None:
    (found,) = errors_of(f"resources: [{{name: {'d' * 32}.{'d' * 32}/x, select: kvm, api: dra}}]\n")
    assert "is too long for DRA: an attribute has at most 64 bytes" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("driverName: Nodeplug.dev", "Nodeplug.dev cannot be the name of a driver and the vendor of CDI devices"),
        ("driverName: 1.example", "1.example cannot be the name of a driver and the vendor of CDI devices"),
        (f"driverName: {'a' * 64}", "2 to 63, a letter first"),
        ("driverName: x", "2 to 63, a letter first"),
        ('driverName: ""', " cannot be the name of a driver"),
        ("nodeName: Worker", "Worker cannot be the name of a node; lower-case letters"),
        ("kubeconfig: config", '"config" must be an absolute path'),
    ],
)
def test_invalid_dra_settings_are_refused(text: str, message: str) -> None:
    (found,) = errors_of(f"settings: {{{text}}}\nresources: []\n")
    assert message in found


def test_longest_driver_name_fits_only_the_default_kubelet_root() -> None:
    text = f"settings: {{driverName: {'a' * 63}, kubeletRoot: %s}}\nresources: []\n"
    assert loads((text % "/var/lib/kubelet").encode()).settings.driver_name == "a" * 63
    (found,) = errors_of(text % "/var/lib/kubelet-1")
    assert found.endswith("may have 108 bytes; the limit is 107; shorten it by 1")


AMOUNTS = st.integers(1, 8) | st.sampled_from(["1", "2k", "500m", "10e3", 2**63, 0, "x"])
SMALL = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b"]) | st.sampled_from(["memory", "x.y/c", "a-b", "kind", "shares"])
POLICIES = st.fixed_dictionaries(
    {"value": AMOUNTS, "default": SMALL},
    optional={"min": SMALL, "max": AMOUNTS, "step": SMALL},
) | st.fixed_dictionaries({"value": AMOUNTS, "default": SMALL, "validValues": st.lists(SMALL, max_size=3)})
PARTITIONS = st.fixed_dictionaries(
    {"name": st.sampled_from("pqr"), "consumes": st.dictionaries(st.sampled_from("ab"), SMALL, max_size=2)},
    optional={
        "count": st.integers(1, 3),
        "attributes": st.dictionaries(NAMES, st.booleans() | st.integers() | st.text(max_size=5), max_size=2),
        "capacity": st.dictionaries(NAMES, AMOUNTS, max_size=2),
    },
)
CONDITIONS = st.sampled_from(
    [{}, {"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}]
) | st.fixed_dictionaries(
    {
        "bindingConditions": st.lists(st.sampled_from(["a", "b", "-"]), max_size=2),
        "bindingFailureConditions": st.lists(st.sampled_from(["c", "b"]), max_size=2),
    }
)
TAINTS = st.sampled_from(["none", "NoSchedule", "NoExecute"])
PARTS = st.fixed_dictionaries(
    {
        "counters": st.fixed_dictionaries({"a": AMOUNTS, "b": st.just("8")}),
        "partitions": st.lists(PARTITIONS, max_size=2),
    }
)


def entries(dra: st.SearchStrategy[dict[str, Any]], shares: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["x/y", "example.com/Gpu_1"]),
            "select": st.just("gpu"),
            "api": st.sampled_from(["dra", "both"]),
            "shares": st.just(shares),
            "dra": st.builds(lambda *parts: {k: v for part in parts for k, v in part.items()}, dra, CONDITIONS),
        }
    )


def wholes(amounts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    capacity = st.dictionaries(NAMES, amounts, max_size=2)
    return st.fixed_dictionaries({"taint": TAINTS, "capacity": capacity}, optional={"extendedResource": st.booleans()})


ENTRIES = entries(wholes(AMOUNTS), 1) | entries(wholes(POLICIES), 3) | entries(PARTS, 1)


@given(ENTRIES)
def test_accepted_resources_make_valid_slices_and_classes(entry: dict[str, Any]) -> None:
    try:
        (found,) = loads(json.dumps({"resources": [entry]}).encode()).resources
    except ConfigError:
        return
    full = {f"a{i}": i for i in range(40)} | {"memory": 1 << 30}
    assert published(offering([found], {found.name: [device("gpu-1", attributes=full)]}))
    assert not validate_create(device_class(found, DRIVER))


def test_every_form_of_bind_is_read() -> None:
    pci = "select: {kind: pci, attributes: {vendor: 10de}}\napi: dra\n"
    assert one(pci + "dra: {bind: vfio-pci}").dra.bind == DriverBinding("vfio-pci")
    assert one(pci + "dra: {bind: {iommufd: true}}").dra.bind == DriverBinding("vfio-pci", iommufd=True)
    assert one("select: {preset: sriov-vf}\napi: dra\ndra: {bind: vfio-pci}").dra.bind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("select: {kind: pci}\napi: both\ndra: {bind: vfio-pci}", "does not report the end of a pod"),
        ("select: {kind: pci}\napi: dra\nshares: 2\ndra: {bind: vfio-pci}", "only one claim at a time"),
        ("select: {kind: pci}\napi: dra\ndra: {bind: vfio-pci, interface: move}", "no interface to move"),
        ("select: {kind: pci}\napi: dra\ngroup: functions\ndra: {bind: vfio-pci}", "its whole IOMMU group"),
        ("select: {kind: pci}\napi: dra\ncontainerPath: /dev/x\ndra: {bind: vfio-pci}", "its whole IOMMU group"),
        ("select: gpu\napi: dra\ndra: {bind: vfio-pci}", "may select devices of kind gpu"),
        ("select: {kind: pci}\napi: dra\ndra: {bind: uio}", "vfio-pci"),
        ("select: {kind: pci}\ndra: {bind: vfio-pci}", "the resource is not offered through DRA"),
    ],
)
def test_invalid_bind_keys_are_refused(text: str, words: str) -> None:
    assert any(words in x for x in errors_with_settings(text))
