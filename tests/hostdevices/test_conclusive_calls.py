"""A lookup that fails because no file descriptor is free is no answer, in nested lookups as well."""

import pytest

from hostdevices import Host
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.errors import HostExhausted
from tests.descriptors import no_more_descriptors


def test_nested_lookup_keeps_exhaustion_of_outer_lookup() -> None:
    host = Host()

    def lookup() -> list[str]:
        with no_more_descriptors():
            found = host.list("/proc/self/task")
        call_conclusively(lambda: host.list("/proc/self"))
        return found

    with pytest.raises(HostExhausted, match="/proc/self/task"):
        call_conclusively(lookup)
    assert call_conclusively(lambda: host.list("/proc/self/task"))
