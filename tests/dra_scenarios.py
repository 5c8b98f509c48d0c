"""Maps scenarios to tests: the DRA node specification's catalogue (section 9).

python -m tests.dra_scenarios        writes dra_scenarios.md
"""

from tests.catalogue import Catalogue

_ALPHA = "alpha in 1.37 and off"
_ALLOCATABLE = "node allocatable resources are alpha and off; nothing of ours maps to cpu or memory"
_NETWORK = "attaches network interfaces, which this driver leaves to network drivers; it tells their names only"
_EXAMPLE = "the example driver's own"

_NOT_APPLICABLE: dict[int, str] = {
    12: "sockets have one owner (grpcunix), so there is no callback that could bring another listener",
    14: "both versions of DRAPlugin are always served",
    15: "the lock of two instances is the state directory's; tests/checkpoint and tests/nodeplug show it",
    17: "reports are repeated by the board itself, so no driver code can fall silent behind it",
    18: "health is always served: 1.36 opens it on every plugin",
    19: "all devices have one lease",
    20: "the versions of the metadata that are written are fixed",
    **dict.fromkeys(range(31, 36), "metadata is written once: nothing in it is learnt after a claim is prepared"),
    55: f"groups of pods ({_ALPHA})",
    59: "comparing lists of statuses is an inner matter of upstream's scheduler; ours writes what differs",
    103: "the client lists and then watches; it claims no WatchList",
    162: "who hands pods to the stand-in does so after its start",
    193: "the stand-in has no feature gate for health; the real node's is on",
    200: "shown for the kubelet by 109",
    204: f"ResourcePoolStatusRequest ({_ALPHA})",
    233: f"compatibility groups ({_ALPHA})",
    234: f"claims of groups of pods ({_ALPHA})",
    235: f"optional node operations ({_ALPHA})",
    244: "authorization of nodes is the API server's; the stand-in has one token",
    245: "authorization of the control plane is the API server's; 247 shows the driver's own verbs",
    251: "needs clusters of two versions; servers of every age are shown by 230",
    **dict.fromkeys(range(252, 267), _ALLOCATABLE),
    267: "upstream's test driver, tested by itself",
    271: "prepared claims are leases in the ledger; tests/checkpoint shows their file",
    **dict.fromkeys((272, 273), f"configuration kinds, {_EXAMPLE}; ours is shown by 201 and 218"),
    275: "no webhook: configuration is checked when a claim is prepared",
    276: "no controller: binding conditions are set by whoever asked for them",
    277: f"metrics, {_EXAMPLE}; tests/nodeplug shows ours",
    278: "cloud providers",
    **dict.fromkeys((279, 280, 281, 283, 284, 285, 287, 288, 289, 290, 295), _NETWORK),
    282: "dranet's metrics and events",
    286: f"preparing interfaces: {_NETWORK}",
    291: "dranet's store; ours is the ledger",
    292: "devices are chosen by selectors, not by CEL",
}

CATALOGUE = Catalogue(
    "Scenarios of Dynamic Resource Allocation",
    "section 9 of the DRA node specification",
    295,
    "tests.dra_scenarios",
    [
        "tests.controlplane",
        "tests.dra_plugin",
        "tests.e2e",
        "tests.hostdevices",
        "tests.kubelet",
        "tests.nodeplug",
        "tests.resourceapi",
    ],
    _NOT_APPLICABLE,
)
scenario = CATALOGUE.scenario

if __name__ == "__main__":
    from tests import dra_scenarios  # the module that the tests import; this one is named __main__

    dra_scenarios.CATALOGUE.page.write_text(dra_scenarios.CATALOGUE.text())
