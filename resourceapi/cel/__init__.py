"""CEL as Kubernetes uses it for devices: expressions are type-checked, limited in cost, and run as closures.

`compile_selector` with a `device_environment` compiles device selectors, which are evaluated on a `DeviceView`.
`compile_expression` with a `base_environment` is the same language without the variable `device`.
"""

from resourceapi.cel.cache import SelectorCache
from resourceapi.cel.device import DeviceView, device_environment
from resourceapi.cel.environment import COMPATIBILITY, CURRENT, Environment, base_environment
from resourceapi.cel.errors import (
    CelCompileError,
    CelError,
    CelEvalError,
    CelInterrupted,
    CostLimitExceeded,
    enhance_runtime_error,
)
from resourceapi.cel.estimate import UNLIMITED
from resourceapi.cel.selector import (
    MAX_COST,
    MAX_LENGTH,
    Expression,
    Selector,
    compile_expression,
    compile_selector,
)
from resourceapi.cel.semver import Semver, SemverError

__all__ = [
    "COMPATIBILITY",
    "CURRENT",
    "MAX_COST",
    "MAX_LENGTH",
    "UNLIMITED",
    "CelCompileError",
    "CelError",
    "CelEvalError",
    "CelInterrupted",
    "CostLimitExceeded",
    "DeviceView",
    "Environment",
    "Expression",
    "Selector",
    "SelectorCache",
    "Semver",
    "SemverError",
    "base_environment",
    "compile_expression",
    "compile_selector",
    "device_environment",
    "enhance_runtime_error",
]
