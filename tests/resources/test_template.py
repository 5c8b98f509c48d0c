"""Values for containers that contain attributes of devices."""

import pytest

from hostdevices import Device, Devnode
from resources.template import (
    MAX_BYTES,
    FieldMissing,
    Template,
    ValueTooLong,
    is_reserved,
    is_variable,
    missing,
    read,
    render,
)

STICK = Device(
    id="usb-1",
    kind="usb",
    name="1-2",
    attributes={"serial": "A\nB", "removable": True, "resource.kubernetes.io/numaNode": 0},
    devnodes=(Devnode("/dev/a", "c", 1, 1), Devnode("/dev/b", "c", 1, 2, container_path="/dev/inside")),
)


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("{ids} at {devnodes}", "usb-1.0,usb-1.1 at /dev/a,/dev/inside"),
        ("{serial}/{removable}/{numaNode}", "AB/true/0"),
        ("{{ids}}", "{ids}"),
        ("plain", "plain"),
    ],
)
def test_fields_are_replaced_by_facts(written: str, filled: str) -> None:
    template = read(written)
    assert (template.unknown, template.is_unbalanced) == ((), False)
    assert render(template.text, ["usb-1.0", "usb-1.1"], [STICK]) == filled


def test_missing_attribute_raises_error_with_its_name() -> None:
    """Without it, values could not be matched to devices."""
    other = Device("usb-2", "usb", "1-3")
    with pytest.raises(FieldMissing, match=r"^variable A: device usb-2 has no numaNode$"):
        render(read("{numaNode}").text, ["a", "b"], [STICK, other], of="variable A")
    assert missing(read("{{serial}} {ids} {numaNode} {serial}").text, other) == "numaNode"
    assert missing("{serial}", STICK) == ""


def test_unknown_fields_and_unbalanced_braces_are_reported() -> None:
    assert read("{colour} {numaNode}") == Template(
        "{colour} {resource.kubernetes.io/numaNode}", unknown=("colour",), is_unbalanced=False
    )
    assert read("{ids").is_unbalanced
    assert read("}").is_unbalanced


def test_variable_names_are_validated() -> None:
    assert [is_variable(name) for name in ("A_1", "_", "1A", "A-B", "", "A=B")] == [True, True, *[False] * 4]
    assert all(map(is_reserved, ("PATH", "LD_PRELOAD", "KUBERNETES_PORT", "NODEPLUG_X")))
    assert not any(map(is_reserved, ("PATHS", "MY_PATH", "NODEPLUG")))
    assert not any(map(is_reserved, ("NVIDIA_VISIBLE_DEVICES", "PYTHONPATH", "BASH_ENV")))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("PYTHONPATH", True), ("https_proxy", True), ("TZDIR", True), ("LD_X", True), ("GPU_MODEL", False), ("TZ", False)],
)
def test_claim_cannot_set_reserved_variables(name: str, expected: bool) -> None:
    assert is_reserved(name, for_claim=True) == expected


def test_rendered_value_has_a_size_limit() -> None:
    """In bytes, because a character can have several; no longer value is built temporarily."""
    stick = Device("usb-1", "usb", "1-2", attributes={"serial": "\u00fc" * 1000})
    assert len(render("{serial}" * 16, ["a"], [stick]).encode()) == 32_000
    words = r"^variable A: more than 32768 bytes with the attributes of 1 device\(s\); use fewer"
    with pytest.raises(ValueTooLong, match=words):
        render("{serial}" * 1_000_000, ["a"], [stick], of="variable A")
    assert len(render("x" * MAX_BYTES, [], [])) == MAX_BYTES
    with pytest.raises(ValueTooLong):
        render("x" * MAX_BYTES + "{{", [], [])
