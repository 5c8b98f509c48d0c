"""Which test shows which scenario of the device manager specification's catalogue (section 11).

    python -m tests.kubelet.scenarios        writes scenarios.md

A test names its scenarios with `@scenario(4, 5)`. Those that cannot apply are listed here with the reason.
"""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

COUNT = 132
PAGE = Path(__file__).with_name("scenarios.md")

_ONE_CLIENT = (
    "1.36 has one client per resource name and no check for a second connection of the same socket"
    " (observations 7-10, which are tested in devicemanager/test_registration.py)"
)
_ROLLOUT = "in 1.36 the exit of the older plugin cuts off the newer one (observation 9, which is tested)"

NOT_APPLICABLE: dict[int, str] = {
    **dict.fromkeys((25, 26, 27, 28, 29, 30, 31, 32, 84, 85, 88, 89), _ONE_CLIENT),
    **dict.fromkeys((128, 130), _ROLLOUT),
    90: "a proposal that no release has; a registration server that cannot serve stops the start of this one",
    106: "needs a container runtime that injects CDI devices; the names that reach it are tested in 42",
    117: "1.36 does not read the form before 1.20 at all (correction 11); 116 shows that",
    132: "a proposal that no release has; here the list of running containers cannot fail",
}

_shown: dict[int, list[str]] = {}


def scenario(*numbers: int) -> Callable[[F], F]:
    """Say that a test shows these scenarios."""

    def note(test: F) -> F:
        module = test.__module__.removeprefix("tests.kubelet.").replace(".", "/")
        for number in numbers:
            _shown.setdefault(number, []).append(f"{module}.py::{test.__name__}")
        return test

    return note


def page() -> str:
    """The page that says where each scenario is shown."""
    import tests.kubelet  # the package whose modules are imported below

    for module in pkgutil.walk_packages(tests.kubelet.__path__, "tests.kubelet."):
        if module.name.rpartition(".")[2].startswith("test_"):
            importlib.import_module(module.name)
    lines = [
        "# Scenarios of the device manager",
        "",
        "The catalogue is section 11 of the device manager specification.",
        "Generated from the tests by `python -m tests.kubelet.scenarios`.",
        "",
        "| scenario | shown by |",
        "|---|---|",
    ]
    for number in range(1, COUNT + 1):
        shown = ", ".join(f"`{test}`" for test in sorted(set(_shown.get(number, []))))
        lines.append(f"| {number} | {shown or 'cannot apply: ' + NOT_APPLICABLE.get(number, 'MISSING')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from tests.kubelet import scenarios  # the module that the tests know; this one is called __main__

    PAGE.write_text(scenarios.page())
