"""Maps scenarios to tests: the catalogue of device selectors (section 8.3 of the allocator specification).

Scenarios 1 to 71 have the specification's numbers. The following numbers are 72 combinations of features,
73 interruptions, 74 and 75 hints in run-time errors, 76 and 77 the cache and its concurrent use, 78 the switch for
emulation.

python -m tests.cel_scenarios        writes cel_scenarios.md
"""

from tests.catalogue import Catalogue

_NOT_APPLICABLE: dict[int, str] = {
    78: "a switch for the whole process, left over upstream; here each environment names its features",
}

CATALOGUE = Catalogue(
    "Scenarios of device selectors",
    "section 8.3 of the allocator specification (1 to 71) and the tests that follow there (72 to 78)",
    78,
    "tests.cel_scenarios",
    ["tests.resourceapi.cel"],
    _NOT_APPLICABLE,
)
scenario = CATALOGUE.scenario

if __name__ == "__main__":
    from tests import cel_scenarios  # the module that the tests import; this one is named __main__

    cel_scenarios.CATALOGUE.page.write_text(cel_scenarios.CATALOGUE.text())
