"""DDP: the package with which an Intel network card parses packets, as its driver reports it through devlink.

A virtual function has the package of its physical one, which is asked. The last known package stays while the driver
does not answer, and ends when the card is gone or has another driver.
"""

from msgspec import structs

from hostdevices import Device, Inventory, Problem
from hostdevices.device import PCI_BUS_ID
from hostdevices.readers.pci import pci_id
from hostdevices.readers.sysfs import text_value
from netlink.connection import Connection
from netlink.devlink import GENERIC, family, running_versions

ATTRIBUTE = "ddpProfile"
_PACKAGE = "fw.app.name"
_INTEL, _NETWORK = "8086", "02"


class DdpProfiles:
    """What cards have reported. `enrich` is called in threads, one at a time."""

    def __init__(self) -> None:
        """Prepare; no card is asked yet."""
        self._known: dict[tuple[str, str], str] = {}  # by address and driver

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory; its network functions have the packages that they run."""
        cards = {card for x in inventory.devices.values() if (card := _card(x, inventory)) is not None}
        problems = self._ask(cards)
        return with_profiles(Inventory(inventory.devices, (*inventory.problems, *problems)), self._known)

    def _ask(self, cards: set[tuple[str, str]]) -> list[Problem]:
        self._known = {card: profile for card, profile in self._known.items() if card in cards}
        if not cards:
            return []
        problems: list[Problem] = []
        try:
            with Connection(GENERIC) as connection:
                if (devlink := family(connection, "devlink")) is None:
                    return [
                        Problem(
                            "devlink", "this kernel does not support it, so the DDP profiles of cards are not known"
                        )
                    ]
                for card in sorted(cards):
                    try:
                        versions = running_versions(connection, devlink, card[0])
                    except OSError as error:
                        problems.append(Problem(f"devlink pci/{card[0]}", str(error)))
                        continue
                    if profile := text_value((versions or {}).get(_PACKAGE)):
                        self._known[card] = profile
                    else:
                        self._known.pop(card, None)
        except OSError as error:
            problems.append(Problem("devlink", str(error)))
        return problems


def with_profiles(inventory: Inventory, known: dict[tuple[str, str], str]) -> Inventory:
    """Return the inventory; its network functions have the known packages of their cards, by address and driver."""
    found: dict[str, Device] = {}
    for device in inventory.devices.values():
        if (card := _card(device, inventory)) is not None and (profile := known.get(card)):
            found[device.id] = structs.replace(device, attributes={**device.attributes, ATTRIBUTE: profile})
    return structs.replace(inventory, devices={**inventory.devices, **found}) if found else inventory


def _card(device: Device, inventory: Inventory) -> tuple[str, str] | None:
    """Return the physical function that reports for an Intel network function, and its driver; None for others."""
    attributes = device.attributes
    if device.kind != "pci" or attributes.get("vendor") != _INTEL:
        return None
    if not str(attributes.get("class", "")).startswith(_NETWORK):
        return None
    address = str(attributes.get("pf") or attributes.get(PCI_BUS_ID, ""))
    physical = inventory.devices.get(pci_id(address))
    driver = physical.attributes.get("driver") if physical is not None else None
    return (address, str(driver)) if driver else None
