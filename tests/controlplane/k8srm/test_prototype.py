"""The prototype's own test cases with its own device shapes, and its output."""

import pytest

from controlplane.k8srm.gen import generate
from controlplane.k8srm.report import reasons, report
from controlplane.k8srm.types import write
from tests.controlplane.k8srm.build import Plain, claim, device, device_class, devices_of, pool, solve

FOOZER = {"deviceClass": "foozer"}
BARZER = {"deviceClass": "barzer"}
ANY = {"deviceType": "gpu"}
CLASSES = [device_class("foozer", "example.com-foozer"), device_class("barzer", "example.com-barzer")]


def shapes(*names: str) -> list[Plain]:
    return [write(pool) for name in names for pool in generate(name)]


MIXED = shapes("shape-zero", "shape-three")


@pytest.mark.parametrize(
    ("claims", "pools", "expected"),
    [
        pytest.param([claim("myclaim", FOOZER)], MIXED, [["shape-zero-00-foozer-00/dev-00"]], id="single by driver"),
        pytest.param(
            [claim("myclaim", {**ANY, "constraints": "device.model == 'foozer-1000'"})],
            MIXED,
            [["shape-zero-00-foozer-00/dev-00"]],
            id="single with constraint met",
        ),
        pytest.param(
            [claim("myclaim", {**ANY, "constraints": "device.model == 'foozer-8000'"})],
            MIXED,
            None,
            id="single with constraint not met",
        ),
        pytest.param(
            [claim("myclaim", {**FOOZER, "requests": {"count": 2}})],
            shapes("shape-zero"),
            [["shape-zero-00-foozer-00/dev-00", "shape-zero-00-foozer-00/dev-01"]],
            id="multiple single pool",
        ),
        pytest.param(
            [claim("myclaim", {**FOOZER, "requests": {"count": 4}})],
            shapes("shape-one"),
            [
                [
                    "shape-one-00-foozer-00/dev-00",
                    "shape-one-00-foozer-00/dev-01",
                    "shape-one-00-foozer-01/dev-00",
                    "shape-one-00-foozer-01/dev-01",
                ]
            ],
            id="split across pools",
        ),
        pytest.param(
            [
                claim("foozer-claim", {**FOOZER, "requests": {"count": 2}}),
                claim("barzer-claim", {**BARZER, "requests": {"count": 2}}),
            ],
            MIXED,
            None,
            id="two claims not satisfiable by a single node",
        ),
        pytest.param(
            [
                claim("foozer-claim", {**FOOZER, "requests": {"count": 2}}),
                claim("barzer-claim", {**BARZER, "requests": {"count": 2}}),
            ],
            shapes("shape-foozer-barzer"),
            [
                ["shape-foozer-barzer-00-foozer-00/dev-00", "shape-foozer-barzer-00-foozer-00/dev-01"],
                ["shape-foozer-barzer-00-barzer-00/dev-00", "shape-foozer-barzer-00-barzer-00/dev-01"],
            ],
            id="two claims satisfiable by a single node",
        ),
        pytest.param(
            [claim("myclaim", {**FOOZER, "requests": {"count": 4}, "matchAttributes": ["numa"]})],
            shapes("shape-one"),
            None,
            id="claim cannot be met due to NUMA MatchAttribute",
        ),
    ],
)
def test_prototype_case_gets_expected_devices(
    claims: list[Plain], pools: list[Plain], expected: list[list[str]] | None
) -> None:
    outcome = solve(*CLASSES, *pools, *claims)
    assert (outcome.node is not None) == (expected is not None)
    if expected is not None:
        assert devices_of(outcome) == expected


def test_report_matches_readme() -> None:
    outcome = solve(*CLASSES, *shapes("shape-three", "shape-zero"), claim("myclaim", FOOZER))
    assert report(outcome) == (
        "ALLOCATIONS\n"
        "-----------\n"
        "- deviceCount: 1\n"
        "  devicePoolName: shape-zero-00-foozer-00\n"
        "\n"
        "NODE RESULTS\n"
        "------------\n"
        "shape-three-00: could not satisfy these claims: myclaim\n"
        "shape-three-01: could not satisfy these claims: myclaim\n"
        "shape-zero-00: satisfied all claims with score 100\n"
        "shape-zero-01: satisfied all claims with score 100\n"
    )
    assert reasons(outcome.results)[0] == "shape-three-00: myclaim: 4 pools: claim and pool driver do not match"


def test_verbose_report_matches_readme() -> None:
    outcome = solve(*CLASSES, *shapes("shape-three", "shape-zero"), claim("myclaim", FOOZER), verbose=True)
    ignored = "".join(
        "    - deviceCount: 0\n"
        "      failureReason: claim and pool driver do not match\n"
        f"      poolName: shape-three-00-barzer-{number:02}\n"
        for number in range(4)
    )
    text = report(outcome, verbose=True)
    assert text.startswith(
        "ALLOCATIONS\n-----------\n- deviceCount: 1\n  devicePoolName: shape-zero-00-foozer-00\n\n"
        "NODE RESULTS\n------------\n"
        "- DeviceClaimResults:\n"
        "  - best: -1\n"
        "    claimName: myclaim\n"
        f"    ignoredPools:\n{ignored}"
        "    poolSetResults: null\n"
        "  NodeName: shape-three-00\n"
    )
    assert text.endswith(
        "- DeviceClaimResults:\n"
        "  - best: 0\n"
        "    claimName: myclaim\n"
        "    poolSetResults:\n"
        "    - poolResults:\n"
        "      - deviceCount: 1\n"
        "        poolName: shape-zero-01-foozer-00\n"
        "      score: 100\n"
        "  NodeName: shape-zero-01\n\n"
    )


def test_report_without_allocation_is_null() -> None:
    outcome = solve(*CLASSES, *shapes("shape-three"), claim("myclaim", FOOZER))
    assert report(outcome).startswith("ALLOCATIONS\n-----------\nnull\n\n")


def test_pool_sets_are_reported_up_to_sufficient_size() -> None:
    outcome = solve(
        *CLASSES, *shapes("shape-one"), claim("myclaim", {**FOOZER, "requests": {"count": 3}}), verbose=True
    )
    result = outcome.results[0].claims[0]
    assert [(len(each.pool_results), each.score, each.failure_reason) for each in result.pool_set_results] == [
        (1, 0, "unable to satisfy 1 of 3 device requests"),
        (1, 0, "unable to satisfy 1 of 3 device requests"),
        (2, 100, ""),
    ]
    assert [pool.device_count for pool in result.pool_set_results[2].pool_results] == [2, 1]
    assert result.best == 2


def test_pool_that_fails_match_attributes_reports_reason() -> None:
    wanted = {**FOOZER, "requests": {"count": 3}, "matchAttributes": ["numa"]}
    outcome = solve(*CLASSES, *shapes("shape-one"), claim("myclaim", wanted), verbose=True)
    both = outcome.results[0].claims[0].pool_set_results[-1]
    assert both.failure_reason == "unable to satisfy 1 of 3 device requests"
    assert [(each.device_count, each.failure_reason) for each in both.pool_results] == [
        (2, ""),
        (0, "claim MatchAttributes constraint failed"),
    ]


def test_best_pool_set_is_reported_beyond_list_limit() -> None:
    """Nearly eight hundred sets of up to four pools precede the first set of five."""
    pools = [pool(f"p{number:02}", "n", [device("a")]) for number in range(12)]
    outcome = solve(
        device_class("c", "d"), *pools, claim("x", {"deviceClass": "c", "requests": {"count": 5}}), verbose=True
    )
    result = outcome.results[0].claims[0]
    assert result.best == len(result.pool_set_results) - 1
    assert [each.pool_name for each in result.pool_set_results[-1].pool_results] == [f"p{n:02}" for n in range(5)]
