"""Habana's device plugin for Gaudi: cards under the name of their kind, with the variables of its container runtime.

It has no settings. A container has its cards' nodes; Habana's runtime adds the nodes of their network interfaces
because of HABANA_VISIBLE_DEVICES. Source: HabanaAI/habanalabs-k8s-device-plugin, Gaudi's documentation (Kubernetes).
"""

from collections.abc import Iterator

from msgspec import Struct, field

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values
from nodeplug.convert.wrapping import Wrapping

_VENDOR = "1da3"
_MODULES = "HABANA_VISIBLE_MODULES is also set for all cards; HL_VISIBLE_DEVICES... of older runtimes are not set."
_IDS = "ids are nodeplug's own; before, the cards' serial numbers, which only Habana's library knows."


class File(Struct, frozen=True):
    """The only setting of its DaemonSet: on which nodes it runs."""

    node_selector: dict[str, str] = field(default_factory=dict, name="nodeSelector")


WRAPPING = Wrapping(image="habana", others=frozenset({"dev_type"}))
"""The containers of its settings. Older versions had a flag for the kind of card, which the library reports today."""


def resources(_file: File, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    """Yield the resource."""
    values: Values = {
        "name": f"{domain}/gaudi",
        "select": {"preset": "accel", "attributes": {"vendor": _VENDOR}},
        "env": {"HABANA_VISIBLE_DEVICES": "{index}", "HABANA_VISIBLE_MODULES": "{module}"},
    }
    yield Offered(values, (_IDS, _MODULES))
