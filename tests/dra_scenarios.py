"""Which test shows which scenario of the DRA node specification's catalogue (section 9).

python -m tests.dra_scenarios        writes dra_scenarios.md
"""

from tests.catalogue import Catalogue

_NOT_APPLICABLE: dict[int, str] = {}

CATALOGUE = Catalogue(
    "Scenarios of Dynamic Resource Allocation",
    "section 9 of the DRA node specification",
    295,
    "tests.dra_scenarios",
    ["tests.dra_plugin", "tests.kubelet", "tests.controlplane", "tests.resourceapi", "tests.hostdevices", "tests.e2e"],
    _NOT_APPLICABLE,
)
scenario = CATALOGUE.scenario

if __name__ == "__main__":
    from tests import dra_scenarios  # the module that the tests know; this one is called __main__

    dra_scenarios.CATALOGUE.page.write_text(dra_scenarios.CATALOGUE.text())
