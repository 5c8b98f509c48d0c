"""Random problems with features that `random_problems.py` lacks: lists of every type and constraints over them,
quantities in every notation, CEL's optionals, macros, capacities and conversions, every operator of node selectors,
tolerations with fewer or more fields, allocated devices that do not exist.

An API server could store all of them: no device has an attribute under both its qualified and its short name, no list
is present but empty, no count is negative. Otherwise, upstream's answer can depend on the order of a Go map.
"""

import random

from tests.controlplane.structured.random_problems import DRIVERS, SHARE_ID, Json, ProblemGenerator

QUANTITIES = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "8",
    "10",
    "1.0",
    "0.5",
    "2.5",
    "500m",
    "1500m",
    "1u",
    "100n",
    "1k",
    "1Ki",
    "2E",
    "1e3",
    "3e0",
]
OTHER_SHARE = "bbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa"

_SINGLE: tuple[Json, ...] = (
    *({"bool": each} for each in (True, False)),
    *({"int": each} for each in (-1, 0, 1, 1)),
    *({"string": each} for each in ("1", "true")),
    *({"version": each} for each in ("1.0.0", "1.0.0+x")),
)
_LISTS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("ints", (0, 1, 2, 3)),
    ("ints", (0, 1, 2, 3)),
    ("strings", ("a", "b", "c")),
    ("bools", (True, False)),
    ("versions", ("1.0.0", "2.0.0", "1.0.0-a", "1.0.0+b")),
)
_CONSTRAINED = tuple(f"{DRIVERS[0]}/{name}" for name in ("list", "version", "numa", "missing"))
_EXPRESSIONS = (
    'device.capacity["{d}"].memory.compareTo(quantity("3")) >= 0',
    '"memory" in device.capacity["{d}"] && device.capacity["{d}"].memory.isGreaterThan(quantity("2"))',
    'device.capacity["{d}"].?memory.orValue(quantity("0")).isLessThan(quantity("5"))',
    'device.attributes["{d}"].?model.orValue("a") == "a"',
    'has(device.attributes["{d}"].model)',
    'cel.bind(x, device.attributes["{d}"], "model" in x && x.model in ["a"])',
    '"version" in device.attributes["{d}"] && device.attributes["{d}"].version.isGreaterThan(semver("1.0.0"))',
    'device.attributes["{d}"].numa == 1',
    'device.attributes["{d}"].numa == "1"',
    'device.attributes["{d}"].list.includes(1)',
    '"numa" in device.attributes["{d}"] && device.attributes["{d}"].numa.includes(1)',
    'device.attributes["{d}"].exists(k, k == "model")',
    'device.attributes["{d}"].all(k, k != "odd")',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "r0"',
    'device.attributes.exists(k, k.startsWith("gpu"))',
    "size(device.attributes) > 0",
    'device.driver.startsWith("gpu")',
    'device.attributes["{d}"].model + "x" == "ax"',
    '{{"a": 1, "b": 2}}[device.attributes["{d}"].model] == 1',
    '{{1: "a"}}[device.attributes["{d}"].numa] == "a"',
    'device.attributes["{d}"].numa in {{1: "a"}}',
    "device.allowMultipleAllocations",
    "1",
    "",
    "[1, 2].map(x, x * 2).size() == 2",
    'type(device.attributes["{d}"].numa) == int',
    "dyn(device.driver) == 1",
    'device.attributes["{d}"].model.matches("^[a]$")',
    'int(device.attributes["{d}"].numa) == 1',
)
_VALUES = {
    "In": (["a"], ["3"], ["b"], ["a", "b"]),
    "NotIn": (["a"], ["b"], ["3"]),
    "Gt": (["2"], ["3"], ["-5"], ["9223372036854775807"]),
    "Lt": (["2"], ["3"], ["4"]),
}
_LABELS: tuple[Json, ...] = (
    {},
    {"zone": "b"},
    {"rank": "x"},
    {"zone": "a", "big": "9223372036854775808", "neg": "-7"},
    {"zone": "a", "rank": "3", "neg": "-7", "big": "+5"},
)


def edge_case_problem(seed: int) -> Json:
    """One problem."""
    return EdgeCaseGenerator(random.Random(seed)).problem(f"odd-{seed}")


class EdgeCaseGenerator(ProblemGenerator):
    """Creates one problem."""

    def problem(self, name: str) -> Json:
        problem = super().problem(name)
        if self.chance(0.1):
            problem["node"]["metadata"]["labels"] = self.rng.choice(_LABELS)
        return problem

    def numa(self) -> Json:
        if self.with_lists and self.chance(0.5):
            kind, values = self.rng.choice(_LISTS)
            return {kind: self.rng.sample(values, self.rng.choice((1, 2)))}
        return self.rng.choice(_SINGLE)

    def attributes(self, driver: str) -> Json:
        attributes = super().attributes(driver)
        for name, probability in (("list", 0.3), ("other.example.com/numa", 0.2), (f"{DRIVERS[1]}/numa", 0.15)):
            if self.chance(probability):
                attributes[name] = self.numa()
        return {name: value for name, value in attributes.items() if f"{driver}/{name}" not in attributes}

    def device(self, driver: str, name: str, sets: list[Json]) -> Json:
        device = super().device(driver, name, sets)
        for consumed in device.get("consumesCounters", ()):
            for counter in consumed["counters"].values():
                if self.chance(0.2):
                    counter["value"] = self.rng.choice(QUANTITIES)
        if self.with_taints and self.chance(0.15):
            device["taints"] = [
                {
                    "key": self.rng.choice(("old", "broken")),
                    "effect": self.rng.choice(("NoSchedule", "NoExecute", "None")),
                }
                for _ in range(self.rng.choice((1, 2, 3)))
            ]
        if self.chance(0.08):
            device["bindingConditions"] = self.rng.choice((["ready"], ["a", "b"]))
            device["bindingFailureConditions"] = self.rng.choice((["f"], ["g", "h"]))
        return device

    def capacity(self) -> Json:
        capacity = super().capacity()
        if self.chance(0.2):
            capacity["value"] = self.rng.choice(QUANTITIES)
        policy = capacity.get("requestPolicy")
        if policy is not None and self.chance(0.3):
            policy["default"] = self.rng.choice(QUANTITIES)
            if "validRange" in policy:
                policy["validRange"][self.rng.choice(("min", "max", "step"))] = self.rng.choice(QUANTITIES)
            else:
                policy["validValues"] = self.rng.sample(QUANTITIES, self.rng.choice((1, 2, 3)))
        return capacity

    def wanted(self) -> Json:
        wanted = super().wanted()
        if "capacity" in wanted and self.chance(0.4):
            requests = wanted["capacity"]["requests"]
            requests |= {name: self.rng.choice(QUANTITIES) for name in (*requests, "unknown") if self.chance(0.6)}
        if self.chance(0.1):
            wanted["allocationMode"] = "All"
            wanted.pop("count", None)
        if self.with_taints and self.chance(0.2):
            wanted["tolerations"] = [self.toleration() for _ in range(self.rng.choice((2, 3)))]
        return wanted

    def toleration(self) -> Json:
        toleration = super().toleration()
        if self.chance(0.15):
            del toleration["operator"]
        if self.chance(0.1):
            toleration["tolerationSeconds"] = self.rng.choice((0, 5, -1))
        if self.chance(0.1):
            toleration["effect"] = "None"
        return toleration

    def expression(self) -> str:
        if self.chance(0.5):
            return super().expression()
        return self.rng.choice(_EXPRESSIONS).format(d=self.rng.choice(DRIVERS))

    def constraint(self, requests: list[Json]) -> Json:
        constraint = super().constraint(requests)
        for kind in ("matchAttribute", "distinctAttribute"):
            if kind in constraint and self.chance(0.6):
                constraint[kind] = self.rng.choice((*_CONSTRAINED, f"{DRIVERS[1]}/numa", "other.example.com/numa"))
        return constraint

    def node_selector(self) -> Json:
        if self.chance(0.5):
            return super().node_selector()
        terms = []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            term: Json = {}
            if self.chance(0.8):
                term["matchExpressions"] = [self._expression() for _ in range(self.rng.choice((1, 1, 2)))]
            if self.chance(0.3):
                operator, names = self.rng.choice(("In", "NotIn")), self.rng.choice((["node-1"], ["node-2"]))
                term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
            terms.append(term)
        return {"nodeSelectorTerms": terms}

    def _expression(self) -> Json:
        operator = self.rng.choice((*_VALUES, "Exists", "DoesNotExist"))
        expression = {"key": self.rng.choice(("zone", "rank", "none", "big", "neg")), "operator": operator}
        return expression | ({"values": self.rng.choice(_VALUES[operator])} if operator in _VALUES else {})

    def state(self, devices: list[Json]) -> Json:
        state = super().state(devices)
        if devices and self.chance(0.2):
            held = dict(self.rng.choice(devices))
            if self.chance(0.3):
                held["device"] = "gone"
            if self.chance(0.5):
                state["allocatedDevices"].append(held)
            else:
                share = self.rng.choice((SHARE_ID, OTHER_SHARE))
                state["allocatedSharedDeviceIDs"].append({**held, "shareID": share})
        return state
