"""`userspace`: a driver's files for its devices."""

from nodeplug.config import loads
from tests.nodeplug.config.text import errors_with_settings, one


def test_userspace_requires_cdi() -> None:
    assert one("select: nvidia-gpu\nuserspace: nvidia").userspace == "nvidia"
    assert one("select: nvidia-gpu\nuserspace: nvidia\ncdi: false\napi: dra").userspace == "nvidia"
    (found,) = errors_with_settings("select: nvidia-gpu\nuserspace: nvidia\ncdi: false")
    assert found == "only CDI can add a driver's files to a container; leave `cdi: false` out"
    (found,) = errors_with_settings("select: nvidia-gpu\nuserspace: amd")
    assert found.startswith('unknown value "amd"')


def test_driver_root_must_be_an_absolute_path() -> None:
    text = "settings: {driverRoot: %s}\nresources: []"
    assert loads((text % "/run/nvidia/driver").encode()).settings.driver_root == "/run/nvidia/driver"
    assert loads((text % "/").encode()).settings.driver_root == "/"
    (found,) = errors_with_settings("select: kvm", "driverRoot: /run/../etc")
    assert "is not an absolute path" in found
