"""Random problems that mostly have an answer: what valid drivers publish, asked for by valid claims.

Cards that are whole or partitioned, with counters on their own node or in a pool over several nodes; network devices
that are shared by capacity, partly in use; devices with lists of NUMA nodes, with taints, with binding conditions.
Claims ask for several of these at once, with alternatives, constraints over lists, and tolerations. The same seed gives
the same problem.
"""

import random

from tests.controlplane.structured.random_problems import FEATURES, SHARE_ID, Json, cel

_ROOT = "resource.kubernetes.io/pcieRoot"
_GPU, _NIC, _DISK = _DRIVERS = ("gpu.example.com", "nic.example.com", "disk.example.com")
_SIZES = (1, 2, 3, 4, 8)


def solvable_problem(seed: int) -> Json:
    """One problem."""
    return SolvableGenerator(random.Random(seed)).problem(f"solvable-{seed}")


class SolvableGenerator:
    """Makes one problem."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.with_lists = self.chance(0.5)
        self.with_taints = self.chance(0.35)
        self.with_conditions = self.chance(0.25)
        self.shares_cards = self.chance(0.4)
        self.state: Json = {"allocatedDevices": [], "allocatedSharedDeviceIDs": [], "aggregatedCapacity": []}

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def problem(self, name: str) -> Json:
        slices: list[Json] = []
        for driver in self.rng.sample(_DRIVERS, self.rng.choice((1, 2, 3))):
            make = {_GPU: self.cards, _NIC: self.network, _DISK: self.disks}[driver]
            for number in range(self.rng.choice((1, 1, 2, 3))):
                slices += make(f"{driver[:3]}-{number}")
        self.rng.shuffle(slices)
        drivers = sorted({each["spec"]["driver"] for each in slices})
        claims = [self.claim(f"claim-{n}", drivers) for n in range(self.rng.choice((1, 1, 2, 2, 3)))]
        return {
            "name": name,
            "features": dict.fromkeys(FEATURES, True),
            "claims": claims,
            "classes": self.classes(),
            "slices": slices,
            "node": {"metadata": {"name": "node-1", "labels": {"zone": "a"}}},
            "allocatedState": self.state,
        }

    # Devices

    def slices(self, driver: str, pool: str, specs: list[Json]) -> list[Json]:
        generation = self.rng.choice((1, 1, 7))
        made = []
        for number, spec in enumerate(specs):
            made.append(
                {
                    "metadata": {"name": f"{pool}-{self.rng.choice('abc')}{number}"},
                    "spec": {
                        "driver": driver,
                        "pool": {"name": pool, "generation": generation, "resourceSliceCount": len(specs)},
                        **spec,
                    },
                }
            )
        if self.chance(0.1):
            left = dict(self.rng.choice(made)["spec"])
            left["pool"] = {**left["pool"], "generation": generation - 1}
            made.append({"metadata": {"name": f"{pool}-left"}, "spec": left})
        return made

    def cards(self, pool: str) -> list[Json]:
        """Cards with partitions: a counter set a card, in a slice of its own."""
        sets: list[Json] = []
        devices: list[Json] = []
        for card in range(self.rng.choice((1, 1, 2, 3))):
            memory, slots = self.rng.choice((4, 8, 16)), self.rng.choice((2, 4, 7))
            sets.append({"name": f"card-{card}", "counters": {"memory": {"value": f"{memory}Gi"}}})
            own = self.chance(0.5)
            if own:
                sets[-1]["counters"].update({f"slot-{n}": {"value": "1"} for n in range(slots)})
            common = self.attributes(card)
            for part, size in enumerate((memory, *self.rng.choices((1, 2, 4), k=self.rng.choice((0, 2, 3, 4))))):
                counters: Json = {"memory": {"value": f"{size}Gi"}}
                if own:
                    taken = range(slots) if part == 0 else self.rng.sample(range(slots), self.rng.choice((1, 1, 2)))
                    counters |= {f"slot-{n}": {"value": "1"} for n in taken}
                name = f"card-{card}" if part == 0 else f"card-{card}-part-{part}"
                device: Json = {
                    "name": name,
                    "attributes": {**common, "profile": {"string": "whole" if part == 0 else f"{size}g"}},
                    "capacity": {"memory": {"value": f"{size}Gi"}},
                    "consumesCounters": [{"counterSet": f"card-{card}", "counters": counters}],
                }
                if self.shares_cards and self.chance(0.4):
                    device["allowMultipleAllocations"] = True
                    if self.chance(0.5):
                        device["capacity"]["memory"]["requestPolicy"] = self.policy(size)
                devices.append(self.decorated(_GPU, pool, device))
        self.rng.shuffle(devices)
        place: Json = {"nodeName": "node-1"}
        specs = [{"devices": part, **place} for part in self.split(devices)]
        if self.chance(0.3):
            for spec in specs:
                spec.pop("nodeName")
                spec["perDeviceNodeSelection"] = True
                for device in spec["devices"]:
                    device.update(self.device_place())
            place = {"allNodes": True} if self.chance(0.5) else self.zone("a", "b")
        return self.slices(_GPU, pool, [*specs, {"sharedCounters": sets, **place}])

    def network(self, pool: str) -> list[Json]:
        """Devices that are shared by capacity."""
        devices = []
        for number in range(self.rng.choice((1, 2, 3, 4))):
            bandwidth = self.rng.choice((4, 8, 10, 40))
            capacity: Json = {"bandwidth": {"value": str(bandwidth)}}
            if self.chance(0.7):
                capacity["bandwidth"]["requestPolicy"] = self.policy(bandwidth, unit="")
            if self.chance(0.4):
                capacity["queues"] = {"value": str(self.rng.choice((2, 8)))}
            device: Json = {"name": f"nic-{number}", "attributes": self.attributes(number), "capacity": capacity}
            if self.chance(0.85):
                device["allowMultipleAllocations"] = True
            devices.append(self.decorated(_NIC, pool, device))
        place = self.rng.choice(({"nodeName": "node-1"}, {"nodeName": "node-1"}, {"allNodes": True}, self.zone("a")))
        return self.slices(_NIC, pool, [{"devices": part, **place} for part in self.split(devices)])

    def disks(self, pool: str) -> list[Json]:
        """Devices that are alike, many of them, on this node and perhaps others."""
        devices = [
            self.decorated(_DISK, pool, {"name": f"disk-{number}", "attributes": self.attributes(number // 2)})
            for number in range(self.rng.choice((2, 4, 6, 12, 35)))
        ]
        specs = [{"devices": part, "nodeName": "node-1"} for part in self.split(devices)]
        if self.chance(0.3):
            specs.append({"devices": [{"name": "far"}], "nodeName": "node-2"})
        return self.slices(_DISK, pool, specs)

    def split(self, devices: list[Json]) -> list[list[Json]]:
        at = self.rng.randrange(len(devices))
        return [devices] if at == 0 or self.chance(0.6) else [devices[:at], devices[at:]]

    def attributes(self, number: int) -> Json:
        attributes: Json = {
            _ROOT: {"string": f"pci0000:{self.rng.choice((number, 0, 1))}"},
            "model": {"string": self.rng.choice(("small", "large"))},
            "index": {"int": number},
            "driver-version": {"version": self.rng.choice(("1.0.0", "1.2.0", "2.0.0"))},
            "healthy": {"bool": self.chance(0.9)},
        }
        numa = self.rng.choice((0, 1))
        listed = self.with_lists and self.chance(0.6)
        attributes["numa.example.com/node"] = {"ints": self.rng.sample((0, 1, 2), 2)} if listed else {"int": numa}
        if self.with_lists:
            attributes["tags"] = {"strings": self.rng.sample(("a", "b", "c"), self.rng.choice((1, 2)))}
        return attributes

    def decorated(self, driver: str, pool: str, device: Json) -> Json:
        """The device with taints, with conditions, and in use, perhaps."""
        if self.with_taints and self.chance(0.3):
            keys, effects = ("old", "broken", "reserved"), ("NoSchedule", "NoExecute", "None")
            device["taints"] = [
                {"key": f"{driver}/{key}", "value": "yes", "effect": self.rng.choice(effects)}
                for key in self.rng.sample(keys, self.rng.choice((1, 1, 2)))
            ]
        if self.with_conditions and self.chance(0.4):
            device["bindingConditions"] = self.rng.sample(("ready", "attached"), self.rng.choice((1, 2)))
            device["bindingFailureConditions"] = ["failed"]
            if self.chance(0.5):
                device["bindsToNode"] = True
        held = {"driver": driver, "pool": pool, "device": device["name"]}
        if device.get("allowMultipleAllocations"):
            for number in range(self.rng.choice((0, 0, 1, 2))):
                share = SHARE_ID.replace("aaaa-", f"aaa{number}-")
                self.state["allocatedSharedDeviceIDs"].append({**held, "shareID": share})
                capacity = {name: self.rng.choice(("1", "2")) for name in device["capacity"]}
                if driver == _GPU:
                    capacity = {"memory": self.rng.choice(("512Mi", "1Gi"))}
                if number == 0:
                    self.state["aggregatedCapacity"].append({**held, "capacity": capacity})
        elif self.chance(0.1):
            self.state["allocatedDevices"].append(held)
        return device

    def policy(self, size: int, unit: str = "Gi") -> Json:
        kind = self.rng.random()
        if kind < 0.3:
            values = sorted(self.rng.sample(_SIZES, self.rng.choice((1, 2, 3))))
            return {"default": f"{values[0]}{unit}", "validValues": [f"{value}{unit}" for value in values]}
        if kind < 0.8:
            low = self.rng.choice((0, 1, 2))
            valid = {"min": f"{low}{unit}"}
            if self.chance(0.5):
                valid["max"] = f"{size}{unit}"
            if self.chance(0.6):
                valid["step"] = f"{self.rng.choice((1, 2))}{unit}"
            return {"default": f"{low or self.rng.choice((0, 1))}{unit}", "validRange": valid}
        return {"default": f"{self.rng.choice((0, 1, 2))}{unit}"}

    def zone(self, *zones: str) -> Json:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}]
        if self.chance(0.3):
            terms.append({"matchExpressions": [{"key": "rack", "operator": "Exists"}]})
        return {"nodeSelector": {"nodeSelectorTerms": terms}}

    def device_place(self) -> Json:
        names = ({"nodeName": "node-1"}, {"nodeName": "node-1"}, {"nodeName": "node-2"})
        return self.rng.choice((*names, {"allNodes": True}, self.zone("a")))

    # Claims

    def classes(self) -> list[Json]:
        classes: list[Json] = [
            {"metadata": {"name": driver[:3]}, "spec": {"selectors": [cel(f"device.driver == '{driver}'")]}}
            for driver in _DRIVERS
        ]
        for each, driver in zip(classes, _DRIVERS, strict=True):
            if self.chance(0.3):
                each["spec"]["config"] = [{"opaque": {"driver": driver, "parameters": {"of": "class"}}}]
        any_healthy = [cel(f"'{d}' != device.driver || device.attributes['{d}'].healthy") for d in _DRIVERS]
        classes.append({"metadata": {"name": "any"}, "spec": {"selectors": any_healthy}})
        return classes

    def claim(self, name: str, drivers: list[str]) -> Json:
        requests = [self.request(f"r{n}", drivers) for n in range(self.rng.choice((1, 1, 2, 2, 3)))]
        devices: Json = {"requests": requests}
        names = [each["name"] for each in requests]
        names += [f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable", ())]
        if self.chance(0.45):
            devices["constraints"] = [self.constraint(names) for _ in range(self.rng.choice((1, 1, 2)))]
        if self.chance(0.3):
            devices["config"] = [
                {
                    "opaque": {"driver": self.rng.choice(drivers), "parameters": {"n": n}},
                    "requests": self.rng.sample(names, self.rng.randint(1, len(names))),
                }
                for n in range(self.rng.choice((1, 2)))
            ]
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def constraint(self, names: list[str]) -> Json:
        kind = self.rng.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        attribute = self.rng.choice((_ROOT, "numa.example.com/node", f"{_GPU}/index", f"{_NIC}/index", f"{_DISK}/tags"))
        constraint: Json = {kind: attribute}
        if self.chance(0.5) or attribute.startswith(_DRIVERS):
            constraint["requests"] = self.rng.sample(names, self.rng.randint(1, len(names)))
        return constraint

    def request(self, name: str, drivers: list[str]) -> Json:
        if self.chance(0.3):
            count = self.rng.choice((1, 2, 3, 8))
            alternatives = [{"name": f"s{n}", **self.wanted(self.rng.choice(drivers))} for n in range(count)]
            return {"name": name, "firstAvailable": alternatives}
        wanted = self.wanted(self.rng.choice(drivers))
        if self.chance(0.07):
            wanted["adminAccess"] = True
            if self.chance(0.5):
                wanted["allocationMode"] = "All"
                wanted.pop("count", None)
        return {"name": name, "exactly": wanted}

    def wanted(self, driver: str) -> Json:
        wanted: Json = {"deviceClassName": driver[:3] if self.chance(0.9) else "any", "allocationMode": "ExactCount"}
        wanted["count"] = self.rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
        if driver == _DISK and self.chance(0.1):
            wanted["count"] = self.rng.choice((8, 16, 32))
        if self.chance(0.08):
            wanted["allocationMode"] = "All"
            del wanted["count"]
        if self.chance(0.4) and wanted["deviceClassName"] != "any":
            tests = [
                f"device.attributes['{driver}'].model == 'large'",
                f"device.attributes['{driver}'].healthy",
                f"device.attributes['{driver}']['driver-version'].compareTo(semver('1.2.0')) >= 0",
                f"device.attributes['{driver}'].index in [0, 1]",
                "device.attributes['numa.example.com'].node.includes(1)",
            ]
            if driver == _GPU:
                tests += [
                    "device.capacity['gpu.example.com'].memory.compareTo(quantity('2Gi')) >= 0",
                    "device.attributes['gpu.example.com'].profile == 'whole'",
                    "device.attributes['gpu.example.com'].profile != 'whole'",
                ]
            wanted["selectors"] = [cel(self.rng.choice(tests))]
        if self.with_taints and self.chance(0.6):
            wanted["tolerations"] = [
                {"operator": "Exists"}
                if self.chance(0.3)
                else {"key": f"{driver}/{self.rng.choice(('old', 'broken'))}", "operator": "Equal", "value": "yes"}
                for _ in range(self.rng.choice((1, 2)))
            ]
        if driver == _NIC and self.chance(0.6):
            wanted["capacity"] = {"requests": {"bandwidth": str(self.rng.choice(_SIZES))}}
            if self.chance(0.2):
                wanted["capacity"]["requests"]["queues"] = "1"
        if driver == _GPU and self.shares_cards and self.chance(0.5):
            wanted["capacity"] = {"requests": {"memory": f"{self.rng.choice((1, 1, 2, 3))}Gi"}}
        return wanted
