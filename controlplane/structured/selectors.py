"""Device selectors as the allocator uses them: compiled when first needed, then asked device by device."""

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
    """A selector that cannot be compiled, or not be evaluated on a device; the text is that of the expression."""

    def __init__(self, text: str, *, is_compile_error: bool) -> None:
        super().__init__(text)
        self.is_compile_error = is_compile_error


class Selector:
    """One expression; equal keys have equal outcomes."""

    __slots__ = ("_selectors", "key")

    def __init__(self, expression: str, selectors: "Selectors") -> None:
        self.key = expression
        self._selectors = selectors

    def matches(self, driver: str, device: Device) -> bool:
        """Whether it matches a device; raises SelectorError."""
        try:
            compiled = self._selectors.cache.get(self.key)
        except CelCompileError as error:
            raise SelectorError(str(error), is_compile_error=True) from None
        try:
            return compiled.matches(self._selectors.view(driver, device))
        except CelEvalError as error:
            raise SelectorError(str(enhance_runtime_error(error)), is_compile_error=False) from None


class Selectors:
    """Compiles selectors as stored expressions: everything that is known may be used, whatever feature is on."""

    def __init__(self) -> None:
        self.cache = SelectorCache(device_environment(), capacity=_MAX_COMPILED)
        self._viewed: tuple[Device, DeviceView] | None = None

    def get(self, selector: DeviceSelector) -> Selector:
        """The selector of a class or request, which has an expression."""
        return Selector("" if selector.cel is None else selector.cel.expression, self)

    def view(self, driver: str, device: Device) -> DeviceView:
        """The device as expressions see it; the selectors of one request ask for the same one after the other."""
        if self._viewed is None or self._viewed[0] is not device:
            self._viewed = (device, DeviceView.of(driver, device))
        return self._viewed[1]
