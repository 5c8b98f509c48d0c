"""Maps scenarios to tests: the structured allocator specification's catalogue (sections 8.1 and 8.5).

Scenarios 1 to 227 have the specification's numbers. The following numbers are the unit tests of consumable capacity
(228 addition and subtraction, 229 insertion and removal, 230 what a request consumes, 231 violations, 232 the effect
of a policy), then the ten scenarios of section 8.5 (233 to 242), which upstream does not test.

python -m tests.allocator_scenarios        writes allocator_scenarios.md
"""

from tests.catalogue import Catalogue

_NOT_APPLICABLE: dict[int, str] = {}

CATALOGUE = Catalogue(
    "Scenarios of the structured allocator",
    "section 8.1 of the allocator specification (1 to 227), its unit tests (228 to 232) and section 8.5 (233 to 242)",
    242,
    "tests.allocator_scenarios",
    ["tests.controlplane.structured"],
    _NOT_APPLICABLE,
)
scenario = CATALOGUE.scenario

if __name__ == "__main__":
    from tests import allocator_scenarios  # the module that the tests import; this one is named __main__

    allocator_scenarios.CATALOGUE.page.write_text(allocator_scenarios.CATALOGUE.text())
