"""`cdiDevices`: CDI devices of other programs' specs."""

import pytest

from tests.nodeplug.config.text import errors_of, errors_with_settings, one


def test_names_can_contain_device_attributes() -> None:
    found = one('select: nvidia-gpu\ncdiDevices: ["nvidia.com/gpu={uuid}", "example.com/slot={pciBusID}"]')
    assert found.cdi_devices == ("nvidia.com/gpu={uuid}", "example.com/slot={resource.kubernetes.io/pciBusID}")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ('["nvidia.com/gpu"]', "is not a qualified CDI device name: must be vendor/class=device"),
        ('["{vendor}/gpu=all"]', 'invalid vendor "{vendor}"'),
        ('["nvidia.com/gpu=a b"]', 'invalid device name "a b"'),
        ('["nvidia.com/gpu={uid}"]', "unknown field {uid}; did you mean uuid?"),
        ('["nvidia.com/gpu={ids}"]', "{ids} is not an attribute of one device"),
        ('["nvidia.com/gpu=all", "nvidia.com/gpu=all"]', "nvidia.com/gpu=all appears twice"),
        ('["x/gpu={uuid}"]', 'invalid vendor "x"'),
        ('["nodeplug.dev/claim={uuid}"]', "devices of nodeplug.dev/claim are described by nodeplug itself"),
    ],
)
def test_invalid_names_are_refused(names: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: nvidia-gpu\ncdiDevices: {names}")
    assert message in found


def test_names_of_the_resources_kind_are_refused() -> None:
    text = "resources: [{name: example.com/gpu, select: nvidia-gpu, cdiDevices: ['example.com/gpu={uuid}']}]"
    (found,) = errors_of(text)
    assert "devices of example.com/gpu are described by nodeplug itself" in found
