"""Which test shows which scenario of the device manager specification's catalogue (section 11).

python -m tests.kubelet.scenarios        writes scenarios.md
"""

from tests.catalogue import Catalogue

_ONE_CLIENT = (
    "1.36 has one client per resource name and no check for a second connection of the same socket"
    " (observations 7-10, which are tested in devicemanager/test_registration.py)"
)
_ROLLOUT = "in 1.36 the exit of the older plugin cuts off the newer one (observation 9, which is tested)"

_NOT_APPLICABLE: dict[int, str] = {
    **dict.fromkeys((25, 26, 27, 28, 29, 30, 31, 32, 84, 85, 88, 89), _ONE_CLIENT),
    **dict.fromkeys((128, 130), _ROLLOUT),
    90: "a proposal that no release has; a registration server that cannot serve stops the start of this one",
    106: "needs a container runtime that injects CDI devices; the names that reach it are tested in 42",
    117: "1.36 does not read the form before 1.20 at all (correction 11); 116 shows that",
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
    from tests.kubelet import scenarios  # the module that the tests know; this one is called __main__

    scenarios.CATALOGUE.page.write_text(scenarios.CATALOGUE.text())
