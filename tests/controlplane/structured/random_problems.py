"""Random allocation problems, in the form of the recorded cases.

They are small, so that a search without pruning ends, and dense: most combine several features, and many violate a
rule. Equal seeds produce equal problems.
"""

import random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com")
FEATURES = (
    "AdminAccess",
    "ConsumableCapacity",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "ListTypeAttributes",
    "PartitionableDevices",
    "PrioritizedList",
)
SHARE_ID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def random_problem(seed: int) -> Json:
    """One problem."""
    return ProblemGenerator(random.Random(seed)).problem(f"seed-{seed}")


class ProblemGenerator:
    """Creates one problem; its features are chosen at the start."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tight = rng.random() < 0.35  # requests exceed or nearly exceed the devices
        self.wild = not self.tight and rng.random() < 0.3  # violates rules
        self.with_counters = rng.random() < 0.4
        self.with_capacity = rng.random() < 0.4
        self.with_taints = rng.random() < 0.4
        self.with_lists = rng.random() < 0.4
        self.plain_devices = rng.random() < 0.3  # many equal devices

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def problem(self, name: str) -> Json:
        off = 0.4 if self.chance(0.1) else 0.01
        features = {feature: not self.chance(off) for feature in FEATURES}
        slices = self.slices()
        devices = [
            {"driver": s["spec"]["driver"], "pool": s["spec"]["pool"]["name"], "device": d["name"]}
            for s in slices
            for d in s["spec"].get("devices", ())
        ]
        return {
            "name": name,
            "features": features,
            "claims": [self.claim(f"claim-{i}") for i in range(self.rng.choice((1, 1, 1, 2, 2, 3)))],
            "classes": self.classes(),
            "slices": slices,
            "node": {"metadata": {"name": "node-1", "labels": {"zone": "a", "rank": "3"}}},
            "allocatedState": self.state(devices),
        }

    # Devices

    def slices(self) -> list[Json]:
        slices: list[Json] = []
        for driver in DRIVERS[: self.rng.choice((1, 1, 2))]:
            for number in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
                slices += self.pool(driver, f"pool-{number}", len(slices))
        self.rng.shuffle(slices)
        return slices

    def pool(self, driver: str, pool: str, first: int) -> list[Json]:
        generation = self.rng.choice((1, 1, 1, 2))
        place = self.place()
        names = [f"dev-{i}" for i in range(self.rng.choice((2, 2, 3, 3, 4, 5, 6)))]
        if self.wild and self.chance(0.1):
            names.append(names[0])
        sets = self.counter_sets() if self.with_counters else []
        parts = [names] if self.chance(0.7) else [names[::2], names[1::2]]
        specs: list[Json] = [
            {"devices": [self.device(driver, name, sets) for name in part], **self.split_place(place)} for part in parts
        ]
        if sets:
            specs.append({"sharedCounters": sets, **place})
        for spec in specs:
            if spec.get("perDeviceNodeSelection"):
                for device in spec.get("devices", ()):
                    device.update(self.device_place())
        if self.wild and self.chance(0.1):
            self.rng.choice(specs)["skipNodeOperations"] = ["*"]
        count = len(specs)
        if self.chance(0.05):
            count += 1
        elif self.wild and self.chance(0.1):
            specs.append({"devices": [self.device(driver, "far", sets)], "nodeName": "node-2"})
            count += self.rng.choice((0, 1, 1))
        made = []
        for index, spec in enumerate(specs):
            older = self.wild and self.chance(0.07)
            pool_spec = {"name": pool, "generation": generation - older, "resourceSliceCount": count}
            made.append(
                {
                    "metadata": {"name": f"slice-{self.rng.choice((first + index, first + 20 - index))}-{index}"},
                    "spec": {"driver": driver, "pool": pool_spec, **spec},
                }
            )
        return made

    def place(self) -> Json:
        kind = self.rng.random()
        if kind < 0.7:
            return {"nodeName": "node-1"}
        if kind < 0.8:
            return {"allNodes": True}
        if kind < 0.9:
            return {"nodeSelector": self.node_selector()}
        if kind < 0.95:
            return {"perDeviceNodeSelection": True}
        return {"nodeName": "node-2"}

    def split_place(self, place: Json) -> Json:
        return {"nodeName": "node-2"} if self.wild and self.chance(0.1) else place

    def device_place(self) -> Json:
        return self.rng.choice(
            (
                {"nodeName": "node-1"},
                {"nodeName": "node-2"},
                {"allNodes": True},
                {"nodeSelector": self.node_selector()},
            )
        )

    def node_selector(self) -> Json:
        zones = self.rng.choice((["a"], ["b"], ["a", "b"]))
        terms: list[Json] = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": zones}]}]
        if self.chance(0.2):
            terms[0]["matchExpressions"].append(
                {"key": "rank", "operator": self.rng.choice(("Gt", "Lt", "Exists")), "values": ["2"]}
            )
            if terms[0]["matchExpressions"][1]["operator"] == "Exists":
                del terms[0]["matchExpressions"][1]["values"]
        if self.chance(0.2):
            terms[0]["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
        if self.wild and self.chance(0.15):
            terms.append(
                {"matchExpressions": [{"key": "zone", "operator": self.rng.choice(("Exists", "Weird")), "values": []}]}
            )
        return {"nodeSelectorTerms": terms}

    def counter_sets(self) -> list[Json]:
        sets = []
        for number in range(self.rng.choice((1, 1, 2))):
            counters = {"memory": {"value": str(self.rng.randint(1, 9))}}
            if self.chance(0.4):
                counters["cores"] = {"value": str(self.rng.randint(1, 5))}
            sets.append({"name": f"set-{number if not (self.wild and self.chance(0.05)) else 0}", "counters": counters})
        return sets

    def device(self, driver: str, name: str, sets: list[Json]) -> Json:
        device: Json = {"name": name}
        if not self.plain_devices or self.chance(0.3):
            device["attributes"] = self.attributes(driver)
        if sets and self.chance(0.8):
            device["consumesCounters"] = [
                {
                    "counterSet": "missing" if self.wild and self.chance(0.02) else chosen["name"],
                    "counters": {
                        counter: {"value": self.rng.choice(("0", "1", "1", "2", "2", "3", "500m"))}
                        for counter in chosen["counters"]
                        if self.chance(0.8)
                    },
                }
                for chosen in sets
                if self.chance(0.7)
            ]
            if device["consumesCounters"] and self.wild and self.chance(0.03):
                device["consumesCounters"][0]["compatibilityGroups"] = ["group"]
        if self.with_capacity and self.chance(0.7):
            device["capacity"] = {capacity: self.capacity() for capacity in ("memory", "cores") if self.chance(0.7)}
        if self.with_capacity and self.chance(0.5):
            device["allowMultipleAllocations"] = True
        if self.with_taints and self.chance(0.4):
            device["taints"] = [
                {
                    "key": self.rng.choice(("old", "broken")),
                    "value": self.rng.choice(("", "x")),
                    "effect": self.rng.choice(("NoSchedule", "NoSchedule", "NoExecute", "None")),
                }
            ]
        if self.chance(0.05):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
        if self.chance(0.04):
            device["bindsToNode"] = True
        return device

    def attributes(self, driver: str) -> Json:
        attributes: Json = {}
        if self.chance(0.8):
            attributes["model"] = {"string": self.rng.choice("ab")}
        if self.chance(0.8):
            attributes[self.rng.choice(("numa", "numa", f"{driver}/numa"))] = self.numa()
        if self.chance(0.5):
            attributes["resource.kubernetes.io/pcieRoot"] = {"string": self.rng.choice(("r0", "r1"))}
        if self.chance(0.3):
            attributes["version"] = {"version": self.rng.choice(("1.0.0", "2.0.0"))}
        if self.wild and self.chance(0.05):
            attributes["odd"] = {}
        return attributes

    def numa(self) -> Json:
        if self.with_lists and self.chance(0.5):
            return {"ints": self.rng.sample((0, 1, 2), self.rng.choice((1, 2)))}
        if self.chance(0.1):
            return {"bool": True}
        return {"int": self.rng.choice((0, 1))}

    def capacity(self) -> Json:
        capacity: Json = {"value": self.rng.choice(("2", "4", "4", "8", "10", "1500m"))}
        kind = self.rng.random()
        if kind < 0.2:
            capacity["requestPolicy"] = {
                "default": self.rng.choice(("1", "2", "3", "1000m")),
                "validValues": self.rng.choice((["1", "2"], ["2", "4"], ["1", "3"])),
            }
        elif kind < 0.45:
            valid = {"min": self.rng.choice(("0", "1", "2", "500m"))}
            if self.chance(0.5):
                valid["max"] = self.rng.choice(("3", "4", "8"))
            if self.chance(0.6):
                valid["step"] = self.rng.choice(("1", "2", "500m"))
            capacity["requestPolicy"] = {"default": self.rng.choice(("1", "2", "3")), "validRange": valid}
        if self.wild and self.chance(0.03):
            capacity["value"] = "-1"
        return capacity

    # Requests

    def classes(self) -> list[Json]:
        classes: list[Json] = [{"metadata": {"name": "any"}, "spec": {}}]
        for driver in DRIVERS:
            selectors = [cel(f'device.driver == "{driver}"')]
            classes.append({"metadata": {"name": driver[:3]}, "spec": {"selectors": selectors}})
        if self.chance(0.4):
            classes[1]["spec"]["config"] = [{"opaque": {"driver": DRIVERS[0], "parameters": {"from": "class"}}}]
        if self.chance(0.2):
            classes[0]["spec"]["config"] = [
                {"opaque": {"driver": DRIVERS[0], "parameters": {"from": "any", "n": n}}} for n in range(2)
            ]
        return classes

    def claim(self, name: str) -> Json:
        count = self.rng.choice((2, 3, 4) if self.tight else (1, 1, 2, 2, 3))
        requests = [self.request(f"r{number}") for number in range(count)]
        devices: Json = {"requests": requests}
        if self.chance(0.4):
            devices["constraints"] = [self.constraint(requests) for _ in range(self.rng.choice((1, 1, 2)))]
        if self.chance(0.3):
            devices["config"] = [self.config(requests) for _ in range(self.rng.choice((1, 2)))]
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def request(self, name: str) -> Json:
        if self.chance(0.3):
            alternatives = [{"name": f"s{number}", **self.wanted()} for number in range(self.rng.choice((1, 2, 2, 3)))]
            return {"name": name, "firstAvailable": alternatives}
        wanted = self.wanted()
        if self.chance(0.08):
            wanted["adminAccess"] = self.chance(0.9)
        return {"name": name, "exactly": wanted}

    def wanted(self) -> Json:
        wanted: Json = {"deviceClassName": self.rng.choice(("any", "any", "gpu", "gpu", "gpu", "nic"))}
        if self.wild and self.chance(0.02):
            wanted["derivedAttributes"] = [{"name": "derived/n", "expression": "1"}]
        if self.wild and self.chance(0.05):
            wanted["deviceClassName"] = self.rng.choice(("", "nope"))
        if self.chance(0.12):
            wanted["allocationMode"] = "All"
        else:
            wanted["allocationMode"] = "Sometimes" if self.wild and self.chance(0.02) else "ExactCount"
            counts = (1, 1, 1, 1, 1, 2, 2, 3) if self.chance(0.98) else (20, 40)
            wanted["count"] = self.rng.choice(counts)
        if self.chance(0.4):
            wanted["selectors"] = [cel(self.expression()) for _ in range(self.rng.choice((1, 1, 2)))]
            if self.wild and self.chance(0.03):
                wanted["selectors"].append({})
        if self.with_taints and self.chance(0.5):
            wanted["tolerations"] = [self.toleration()]
        if self.with_capacity and self.chance(0.5):
            wanted["capacity"] = {
                "requests": {
                    capacity: self.rng.choice(("1", "1", "2", "3", "500m", "5", "-1" if self.wild else "1"))
                    for capacity in ("memory", "cores")
                    if self.chance(0.6)
                }
            }
        return wanted

    def expression(self) -> str:
        driver = self.rng.choice(DRIVERS)
        safe = [
            f'"model" in device.attributes["{driver}"] && device.attributes["{driver}"].model == "a"',
            f'"model" in device.attributes["{driver}"]',
            "device.allowMultipleAllocations == true",
            f'device.driver == "{driver}"',
            "true",
        ]
        risky = [
            f'device.attributes["{driver}"].model == "{self.rng.choice("ab")}"',
            f'device.driver == "{driver}" || device.attributes["{driver}"].model == "b"',
            "noSuchVar",
            "false",
        ]
        return self.rng.choice(risky if self.chance(0.05 if self.tight else 0.15) else safe)

    def toleration(self) -> Json:
        toleration: Json = {"operator": self.rng.choice(("Exists", "Equal"))}
        if self.chance(0.7):
            toleration["key"] = self.rng.choice(("old", "broken"))
        if self.chance(0.3):
            toleration["value"] = "x"
        if self.chance(0.5):
            toleration["effect"] = self.rng.choice(("NoSchedule", "NoExecute"))
        return toleration

    def constraint(self, requests: list[Json]) -> Json:
        attribute = self.rng.choice(
            (f"{DRIVERS[0]}/numa", f"{DRIVERS[0]}/numa", f"{DRIVERS[0]}/model", "resource.kubernetes.io/pcieRoot")
        )
        constraint: Json = {self.rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if self.wild and self.chance(0.03):
            constraint = {}
        if self.chance(0.4):
            constraint["requests"] = self.refs(requests)
        return constraint

    def config(self, requests: list[Json]) -> Json:
        config: Json = {"opaque": {"driver": DRIVERS[0], "parameters": {"from": "claim", "n": self.rng.randint(0, 9)}}}
        if self.chance(0.7):
            config["requests"] = self.refs(requests)
        return config

    def refs(self, requests: list[Json]) -> list[str]:
        names = []
        for request in requests:
            names.append(request["name"])
            names += [f"{request['name']}/{alternative['name']}" for alternative in request.get("firstAvailable", ())]
        return self.rng.sample(names, self.rng.randint(1, len(names)))

    # Allocated devices

    def state(self, devices: list[Json]) -> Json:
        state: Json = {"allocatedDevices": [], "allocatedSharedDeviceIDs": [], "aggregatedCapacity": []}
        if self.chance(0.6):
            return state
        for device in {tuple(device.items()): device for device in devices}.values():
            kind = self.rng.random()
            if kind < 0.15:
                state["allocatedDevices"].append(device)
            elif kind < 0.3 and self.with_capacity:
                state["allocatedSharedDeviceIDs"].append({**device, "shareID": SHARE_ID})
                if self.chance(0.8):
                    capacity = {self.rng.choice(("memory", "cores")): self.rng.choice(("1", "2", "500m"))}
                    state["aggregatedCapacity"].append({**device, "capacity": capacity})
        return state


def cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}
