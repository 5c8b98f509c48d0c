"""Maps numbered scenarios of a specification's catalogue to tests, and writes the page that lists them."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


class Catalogue:
    """Numbered scenarios. Tests name theirs with `@catalogue.scenario(4, 5)`; the others are listed with a reason."""

    def __init__(
        self,
        title: str,
        source: str,
        count: int,
        module: str,
        packages: Sequence[str],
        not_applicable: Mapping[int, str],
    ) -> None:
        """Scenarios 1 to `count` of `source`, with tests in `packages`; `python -m MODULE` writes the page."""
        self.count = count
        self.page = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".md")
        self.not_applicable = dict(not_applicable)
        self._heading = [
            f"# {title}",
            "",
            f"The catalogue is {source}.",
            f"Generated from the tests by `python -m {module}`.",
            "",
        ]
        self._packages = packages
        self._shown: dict[int, set[str]] = {}

    def scenario(self, *numbers: int) -> Callable[[F], F]:
        """Mark a test as the test of these scenarios."""

        def note(test: F) -> F:
            for number in numbers:
                self._shown.setdefault(number, set()).add(f"{test.__module__}:{test.__name__}")
            return test

        return note

    def shown(self) -> dict[int, list[str]]:
        """Return the sorted tests of each scenario, as `folder/test_file.py::test` relative to the common package."""
        for name in self._packages:
            package = importlib.import_module(name)
            for module in pkgutil.walk_packages(package.__path__, f"{name}."):
                if module.name.rpartition(".")[2].startswith("test_"):
                    importlib.import_module(module.name)
        root = self._packages[0] if len(self._packages) == 1 else "tests"
        return {number: sorted(_place(test, root) for test in tests) for number, tests in sorted(self._shown.items())}

    def text(self) -> str:
        """Return the page: each scenario with its tests."""
        shown = self.shown()
        lines = [*self._heading, "| scenario | shown by |", "|---|---|"]
        for number in range(1, self.count + 1):
            tests = ", ".join(f"`{test}`" for test in shown.get(number, []))
            lines.append(f"| {number} | {tests or 'cannot apply: ' + self.not_applicable.get(number, 'MISSING')} |")
        return "\n".join(lines) + "\n"


def _place(test: str, root: str) -> str:
    module, _, name = test.partition(":")
    return f"{module.removeprefix(root + '.').replace('.', '/')}.py::{name}"
