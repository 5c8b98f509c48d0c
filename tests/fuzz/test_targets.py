"""A few inputs of each target, as a test of the command; and faults that longer runs found."""

import pytest

from cdi import InvalidSpec
from cdi.spec import decode as decode_spec
from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.kubelet_json import KubeletFileError
from netlink.links import decode as decode_link
from tests.fuzz import udev
from tests.fuzz.__main__ import run
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_hundred_inputs_cause_no_failure(target: str) -> None:
    if target == "udev-messages" and not udev.can_listen():
        pytest.skip("messages of udevd need root, and a network namespace")
    found = run(target, range(100))
    assert not found.failures, found.failures[0]
    assert len(found.outcomes) > 1, "its inputs are all alike"


def test_spec_with_invalid_utf8_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"(?i)not a CDI spec: .*utf-8"):
        decode_spec(b'{"kind":"\xe4"}')


@pytest.mark.parametrize("codec", [kubelet_devices, kubelet_claims])
def test_deeply_nested_kubelet_file_is_refused(codec: object) -> None:
    decode = kubelet_devices.decode if codec is kubelet_devices else kubelet_claims.decode
    with pytest.raises(KubeletFileError, match=r"maximum recursion depth|Stack overflow"):
        decode(b'{"x":' + b"[" * 100_000)


def test_truncated_netlink_message_has_no_interface_name() -> None:
    assert decode_link(b"\0\0").name == ""
