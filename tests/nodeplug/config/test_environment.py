"""Settings from the environment: values of a pod's manifest need not be in the file."""

import pytest

from nodeplug.config import ConfigError, from_environment, loads, overridden
from nodeplug.config.environment import VARIABLES
from nodeplug.config.settings import Settings

FILE = b"resources: [{name: x/y, select: kvm}]\n"


def test_variables_set_settings_of_every_type() -> None:
    values = {
        "kubeletRoot": "/k",
        "stateDirectory": "/s",
        "cdiDirectory": "/c",
        "driverName": "d.example.com",
        "metricsAddress": "[::1]:9400",
        "lockWaitSeconds": "60",
        "statusSocket": "/tmp/s",
        "clusterEvents": "true",
        "tracing": "true",
        "featuresDirectory": "/f",
    }
    environment_settings = from_environment({VARIABLES[name]: value for name, value in values.items()})
    settings = Settings(
        kubelet_root="/k",
        state_directory="/s",
        cdi_directory="/c",
        driver_name="d.example.com",
        metrics_address="[::1]:9400",
        lock_wait_seconds=60,
        status_socket="/tmp/s",
        cluster_events=True,
        tracing=True,
        features_directory="/f",
    )
    assert loads(FILE, environment_settings=environment_settings).settings == settings
    assert not list(overridden(settings, {VARIABLES[name]: value for name, value in values.items()}))


def test_file_overrides_variables_and_this_is_reported() -> None:
    environment = {"NODEPLUG_METRICS_ADDRESS": ":9400", "NODEPLUG_KUBELET_ROOT": "/k"}
    environment_settings = from_environment(environment)
    settings = loads(FILE + b"settings: {kubeletRoot: /own}\n", environment_settings=environment_settings).settings
    assert (settings.kubelet_root, settings.metrics_address) == ("/own", ":9400")
    assert list(overridden(settings, environment)) == [
        "settings.kubeletRoot is /own in the file, which overrides NODEPLUG_KUBELET_ROOT=/k"
    ]


def test_empty_settings_and_variables_are_ignored() -> None:
    environment_settings = from_environment({"NODEPLUG_METRICS_ADDRESS": ":9400", "NODEPLUG_KUBELET_ROOT": ""})
    settings = loads(FILE + b'settings: {metricsAddress: ""}\n', environment_settings=environment_settings).settings
    assert (settings.kubelet_root, settings.metrics_address) == ("/var/lib/kubelet", ":9400")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("NODEPLUG_METRICS_ADDRESS", "9400", 'NODEPLUG_METRICS_ADDRESS: "9400" must be HOST:PORT'),
        ("NODEPLUG_METRICS_ADDRESS", ":70000", "NODEPLUG_METRICS_ADDRESS: 70000 is not a port"),
        ("NODEPLUG_KUBELET_ROOT", "/a/../b", "NODEPLUG_KUBELET_ROOT: /a/../b is not an absolute path"),
        ("NODEPLUG_DRIVER_ROOT_ON_HOST", "/a/../b", "NODEPLUG_DRIVER_ROOT_ON_HOST: /a/../b is not an absolute path"),
        ("NODEPLUG_LOCK_WAIT_SECONDS", "a minute", "NODEPLUG_LOCK_WAIT_SECONDS: this must be a whole number"),
        ("NODEPLUG_DRIVER_NAME", "Nodeplug", "NODEPLUG_DRIVER_NAME: Nodeplug cannot be the name of a driver"),
    ],
)
def test_invalid_variables_are_refused(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"environment:1:1: {message}"):
        from_environment({variable: text})
