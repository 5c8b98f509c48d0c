"""Recorded answers of upstream's allocator to its own tests and to random problems."""

from tests.cases import Case, recorded


@recorded("allocator/allocator.json", "allocator/random.jsonl.gz")
def test_recorded_upstream_allocations_are_reproduced(case: Case) -> None:
    case.run()
