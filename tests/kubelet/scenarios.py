"""The scenarios of the device manager specification's catalogue (section 11), and the tests for each.

python -m tests.kubelet.scenarios        writes scenarios.md

"""

from tests.catalogue import Catalogue

_NOT_APPLICABLE: dict[int, str] = {
    84: "a proposal that no release has: 1.37 refuses the second of them, which 25 and 32 show",
    90: "a proposal that no release has; a registration server that cannot serve stops the start of this one",
    106: "needs a container runtime that injects CDI devices; the names that reach it are tested in 42",
    117: "no release here reads the form before 1.20 at all (correction 11); 116 shows that",
    132: "a proposal that no release has; here the list of running containers cannot fail",
}

CATALOGUE = Catalogue(
    "Scenarios of the device manager",
    "section 11 of the device manager specification",
    132,
    "tests.kubelet.scenarios",
    ["tests.kubelet"],
    _NOT_APPLICABLE,
)
scenario = CATALOGUE.scenario

if __name__ == "__main__":
    from tests.kubelet import scenarios  # the instance that the tests import; this module runs as __main__

    scenarios.CATALOGUE.page.write_text(scenarios.CATALOGUE.text())
