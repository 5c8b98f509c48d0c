"""Warnings for conflicting ports of a pod's containers: the same number, or the same name.

Source: k8s.io/kubernetes pkg/api/pod/warnings.go (warningsForPodSpecAndMeta, checkForOverlap).
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import quoted_text

_MAX_WARNINGS = 4096
"""The most pairs that are reported for a pod; more do not fit into the warnings of an answer."""
_Place = tuple[int, str]
"""The position of a port: its index among all ports, and its path."""


def port_warnings(ports: list[tuple[str, Plain]]) -> Iterator[str]:
    """Return warnings for the ports of all containers, with their paths: first equal numbers, then equal names."""
    yield from itertools.islice(_of_numbers(ports), _MAX_WARNINGS)
    names: dict[str, str] = {}
    for where, port in ports:
        if name := port.get("name"):
            first = names.setdefault(name, where)
            if first != where:
                duplicate = f"duplicate port name {quoted_text(name)} with {first}"
                yield f"{where}: {duplicate}, services and probes that select ports by name will use {first}"


def _of_numbers(ports: list[tuple[str, Plain]]) -> Iterator[str]:
    seen: dict[Any, _Seen] = defaultdict(_Seen)
    for index, (where, port) in enumerate(ports):
        ip, number = port.get("hostIP") or "", port.get("hostPort") or 0
        if ip and not number:
            yield f"{where}: hostIP set without hostPort: {_go_syntax(port)}"
        others = seen[port.get("containerPort"), port.get("protocol")]
        for _, at, how in others.clashing(ip, number):
            yield f"{where}: {how} port definition with {at}"
        others.add(ip, number, (index, where))


class _Seen:
    """Ports of one number and protocol, by host port and host IP, so that conflicts are found without comparing all."""

    def __init__(self) -> None:
        self._by_host: dict[int, dict[str, list[_Place]]] = defaultdict(lambda: defaultdict(list))

    def add(self, ip: str, number: int, place: _Place) -> None:
        self._by_host[number][ip].append(place)

    def clashing(self, ip: str, number: int) -> Iterator[tuple[int, str, str]]:
        """Yield the conflicting places of a port in order, each with the kind of conflict.

        A port without a host port conflicts with all others. With equal host ports, a port without a host IP conflicts
        with every host IP.
        """
        lists = [
            [(index, at, _clash(ip, number, other_ip, other)) for index, at in places]
            for other in (self._by_host if not number else {0, number})
            for other_ip, places in self._by_host.get(other, {}).items()
            if not number or not other or ip == other_ip or not ip or not other_ip
        ]
        return heapq.merge(*lists)


def _clash(ip: str, number: int, other_ip: str, other: int) -> str:
    if (ip, number) == (other_ip, other):
        return "duplicate"
    return "dangerously ambiguous" if number and other else "overlapping"


def _go_syntax(port: Plain) -> str:
    """A port as Go prints a struct."""
    members = ("name", "hostPort", "containerPort", "protocol", "hostIP")
    shown = (port.get(name) or ("" if name in ("name", "hostIP", "protocol") else 0) for name in members)
    names = ("Name", "HostPort", "ContainerPort", "Protocol", "HostIP")
    return f"{{{' '.join(f'{name}:{value}' for name, value in zip(names, shown, strict=True))}}}"
