"""Settings from the environment, which belong to the start of the daemon and not to the file.

A pod's manifest mounts folders and has probes at an address; the file defines what is offered. So in a cluster a file
needs none of these settings, and one file works in different clusters. A setting in the file overrides the environment.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from nodeplug.config.document import Document
from nodeplug.config.errors import ConfigError, Finding
from nodeplug.config.resources import check_settings
from nodeplug.config.schema import File
from nodeplug.config.settings import Settings
from nodeplug.config.tree import parse

VARIABLES: Final = {
    "kubeletRoot": "NODEPLUG_KUBELET_ROOT",
    "stateDirectory": "NODEPLUG_STATE_DIRECTORY",
    "cdiDirectory": "NODEPLUG_CDI_DIRECTORY",
    "driverName": "NODEPLUG_DRIVER_NAME",
    "metricsAddress": "NODEPLUG_METRICS_ADDRESS",
    "lockWaitSeconds": "NODEPLUG_LOCK_WAIT_SECONDS",
    "statusSocket": "NODEPLUG_STATUS_SOCKET",
    "clusterEvents": "NODEPLUG_CLUSTER_EVENTS",
    "tracing": "NODEPLUG_TRACING",
    "featuresDirectory": "NODEPLUG_FEATURES_DIRECTORY",
    "driverRoot": "NODEPLUG_DRIVER_ROOT",
    "driverRootOnHost": "NODEPLUG_DRIVER_ROOT_ON_HOST",
}
"""By the settings' names in the file. None is a name that Kubernetes generates for a Service."""
_NUMBERS = ("lockWaitSeconds",)
_BOOLEANS = ("clusterEvents", "tracing")
_TRUTH = {"true": True, "false": False}


def from_environment(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the settings that the environment has, by their names in the file. An empty variable counts as unset.

    Raises `ConfigError`: the same rules apply to the values as in a file.
    """
    found: dict[str, Any] = {}
    wrong: list[Finding] = []
    for name, variable in VARIABLES.items():
        text = environment.get(variable, "")
        if not text:
            continue
        found[name] = int(text) if name in _NUMBERS and text.isdecimal() else text
        if name in _BOOLEANS:
            found[name] = _TRUTH.get(text, text)
        import json  # imported here: it is not needed if no variable is set

        content = {"resources": [], "settings": {name: found[name]}}
        document = Document(parse(json.dumps(content).encode())[0], File)
        if not document.findings:
            check_settings(document, msgspec.convert(content["settings"], Settings))
        wrong += [Finding(1, 1, f"{variable}: {x.message}", x.hint) for x in document.findings]
    if wrong:
        raise ConfigError("environment", wrong)
    return found


def overridden(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield, as text, where `settings`, of a file and the environment, differ from the environment."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}
    for name, value in from_environment(environment).items():
        in_file = getattr(settings, names[name])
        if in_file != value:
            yield f"settings.{name} is {in_file} in the file, which overrides {VARIABLES[name]}={value}"
