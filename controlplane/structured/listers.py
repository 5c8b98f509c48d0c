"""The sources of an allocator's classes, claims and slices, if they are not plain lists."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from controlplane.structured.errors import ClassNotFound
from resourceapi.objects.v1 import DeviceClass, ResourceClaim, ResourceSlice


class ClassLister(Protocol):
    """The device classes that exist."""

    def get(self, name: str) -> DeviceClass:
        """Return the class of that name. Raises ClassNotFound or another LookupError, whose text the user sees."""


class ClaimLister(Protocol):
    """The claims that exist."""

    def list_all_allocated(self) -> Iterable[ResourceClaim]:
        """The claims with an allocation."""


class SliceLister(Protocol):
    """The slices that exist."""

    def list(self) -> Sequence[ResourceSlice]:
        """Return all slices."""


class DeviceClasses:
    """Classes by name, from a list. The first class of a name is used."""

    def __init__(self, classes: Iterable[DeviceClass] = ()) -> None:
        self._by_name: dict[str, DeviceClass] = {}
        for device_class in classes:
            self._by_name.setdefault(device_class.metadata.name, device_class)

    def get(self, name: str) -> DeviceClass:
        """Return the class of that name. Raises ClassNotFound."""
        try:
            return self._by_name[name]
        except KeyError:
            raise ClassNotFound(name) from None
