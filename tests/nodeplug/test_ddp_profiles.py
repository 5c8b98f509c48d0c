"""The DDP package of Intel's network cards, as an attribute of their functions."""

from pathlib import Path

from hostdevices import scan
from nodeplug.ddp_profiles import ATTRIBUTE, DdpProfiles, with_profiles
from tests.hostdevices.tree import Tree


def test_virtual_functions_have_the_profile_of_their_card(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    physical = tree.pci("0000:3b:00.0", vendor="8086", pci_class="020000", driver="ice", sriov_totalvfs=8)
    tree.virtual_function(physical, "0000:3b:02.0", 0, vendor="8086", pci_class="020000", driver="vfio-pci")
    tree.pci("0000:3b:00.1", vendor="8086", pci_class="020000", driver="ice")
    tree.pci("0000:5e:00.0", vendor="15b3", pci_class="020000", driver="mlx5_core")
    known = {("0000:3b:00.0", "ice"): "ICE COMMS Package", ("0000:3b:00.1", "vfio-pci"): "of before it was bound"}
    found = with_profiles(scan(tree.host), known).devices
    assert {name: x.attributes[ATTRIBUTE] for name, x in found.items() if ATTRIBUTE in x.attributes} == {
        "pci-0000-3b-00-0": "ICE COMMS Package",
        "pci-0000-3b-02-0": "ICE COMMS Package",
    }


def test_card_unknown_to_the_kernel_has_no_profile(tmp_path: Path) -> None:
    """With a real socket: this machine has no such card, and possibly no devlink."""
    tree = Tree(tmp_path / "root")
    profiles = DdpProfiles()
    assert profiles.enrich(scan(tree.host)).problems == ()  # the kernel is not queried
    tree.pci("ffff:ff:1f.7", vendor="8086", pci_class="020000", driver="ice")
    inventory = profiles.enrich(scan(tree.host))
    assert [ATTRIBUTE in x.attributes for x in inventory.devices.values()] == [False]
    assert all(x.where.startswith("devlink") for x in inventory.problems)
