"""Device selectors for the allocator: compiled on first use, then evaluated device by device."""

from functools import cache

from resourceapi.cel import (
    CelCompileError,
    CelEvalError,
    DeviceView,
    SelectorCache,
    device_environment,
    enhance_runtime_error,
)
from resourceapi.objects.v1 import Device, DeviceSelector

_MAX_COMPILED = 256


class SelectorError(Exception):
    """A selector that cannot be compiled, or evaluated on a device. The text is that of the CEL error."""

    def __init__(self, text: str, *, is_compile_error: bool) -> None:
        super().__init__(text)
        self.is_compile_error = is_compile_error


class Selector:
    """One expression. Selectors with equal keys have equal results."""

    __slots__ = ("_selectors", "key")

    def __init__(self, expression: str, selectors: "Selectors") -> None:
        self.key = expression
        self._selectors = selectors

    def matches(self, driver: str, device: Device) -> bool:
        """Return whether the selector matches a device. Raises SelectorError."""
        try:
            compiled = self._selectors.cache.get(self.key)
        except CelCompileError as error:
            raise SelectorError(str(error), is_compile_error=True) from None
        try:
            return compiled.matches(self._selectors.view(driver, device))
        except CelEvalError as error:
            raise SelectorError(str(enhance_runtime_error(error)), is_compile_error=False) from None


@cache
def _compiled() -> SelectorCache:
    """The compiled selectors of the process: compiling takes longer than an allocation, and depends on the text only.

    They are stored expressions: every known function is allowed, whatever features are enabled.
    """
    return SelectorCache(device_environment(), capacity=_MAX_COMPILED)


class Selectors:
    """The selectors of an allocator."""

    def __init__(self) -> None:
        self.cache = _compiled()
        self._viewed: tuple[Device, DeviceView] | None = None

    def get(self, selector: DeviceSelector) -> Selector:
        """Return the selector of a class or request, which has an expression."""
        return Selector("" if selector.cel is None else selector.cel.expression, self)

    def view(self, driver: str, device: Device) -> DeviceView:
        """Return the device as a CEL value. The last one is cached, as a request's selectors use it in succession."""
        if self._viewed is None or self._viewed[0] is not device:
            self._viewed = (device, DeviceView.of(driver, device))
        return self._viewed[1]
