"""Very many devices: events that are common to all are reported once, and a single change names its device."""

import logging

import pytest

from deviceplugin import Paths
from resources.resource import Resource
from resources.selector import Kinds
from tests.deviceplugin.conftest import StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, until_listed

MANY = 100


async def test_device_waiting_for_its_cdi_spec_is_not_logged_as_unhealthy(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nodeplug.deviceplugin")
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([Resource("example.com/misc", Kinds(("misc",)), cdi=True)])
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
    assert [x.getMessage() for x in caplog.records if x.getMessage().startswith("device ")] == ["device is offered"] * 2


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG], ids=["info", "debug"])
async def test_common_event_is_one_log_line_and_one_per_device_at_debug(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    for number in range(MANY - 2):  # fuse and kvm exist already
        made_up.add(f"d{number}", 100 + number)
    caplog.set_level(level, "nodeplug.deviceplugin")
    units = [f"misc-{name}" for name in ("fuse", "kvm", *(f"d{number}" for number in range(MANY - 2)))]
    many = Resource("example.com/many", Kinds(("misc",)), cdi=True)
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([many])
        await until_listed(kubelet, dict.fromkeys(units, "Healthy"))
        assert len((await allocate(kubelet, *units)).cdi_devices) == MANY
        lines = [x for x in caplog.records if x.getMessage().startswith("device is")]
        wanted = "device is offered (100 devices, named at the log level debug)"
        assert wanted in [x.getMessage() for x in lines]
        named = {getattr(x, "device", None) for x in lines if x.getMessage() == "device is offered"}
        assert named == (set(units) if level == logging.DEBUG else set())
        caplog.clear()
        made_up.unplug("d7")
        side.update()
        await until_listed(kubelet, dict.fromkeys(units, "Healthy") | {"misc-d7": "Unhealthy"})
        (gone,) = [x for x in caplog.records if x.levelno == logging.WARNING]
        assert getattr(gone, "device", None) == "misc-d7"
