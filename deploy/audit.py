"""Known vulnerabilities of the shipped software: python -m deploy.audit PIP_AUDIT, which `make audit` runs.

Checks every library in the locks with pip-audit, every pinned Debian package for a newer version in Debian's sources,
and the licences of the libraries that are installed here. Checks that could not be made are reported.

Exit codes: 0 no problem is known, 1 a problem is known, 2 a check could not be made.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy import licences
from deploy.image import debian, wheels

ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT = 300.0  # seconds


class Finding(NamedTuple):
    """A line of the report. `is_known`: a known problem; otherwise a check that could not be made."""

    is_known: bool
    message: str


def main() -> None:
    """Print the findings and exit with a code of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pip_audit", help="the path of pip-audit")
    found = [*vulnerabilities(parser.parse_args().pip_audit), *newer_packages(), *licence_problems()]
    for finding in found:
        sys.stdout.write(f"{'KNOWN' if finding.is_known else 'not checked'}: {finding.message}\n")
    if not found:
        sys.stdout.write("no problem is known in any shipped library or package\n")
    sys.exit(1 if any(finding.is_known for finding in found) else 2 if found else 0)


def pinned() -> list[str]:
    """Return the pinned libraries of the locks, as `name==version`."""
    lines = [line for lock in (wheels.LOCK, wheels.TRACING_LOCK) for line in lock.read_text().splitlines()]
    return sorted(line.split()[0] for line in lines if not line.startswith("#"))


def vulnerabilities(pip_audit: str) -> Iterator[Finding]:
    """Yield the findings of PyPI's advisories for the pinned libraries."""
    locks = [option for lock in (wheels.LOCK, wheels.TRACING_LOCK) for option in ("-r", str(lock))]
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [pip_audit, *options, *locks], capture_output=True, text=True, check=False, timeout=_TIMEOUT
        )
        report = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(False, f"advisories of {len(pinned())} libraries: {error}")
        return
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        yield Finding(False, f"advisories of {len(pinned())} libraries: pip-audit failed: {reason[:500]}")
        return
    yield from _report_findings(report)


def _report_findings(report: list[dict[str, Any]]) -> Iterator[Finding]:
    answered = {each["name"].lower() for each in report if "skip_reason" not in each}
    for each in report:
        for known in each.get("vulns", ()):
            fixed = ", ".join(known["fix_versions"]) or "no version yet"
            yield Finding(True, f"{each['name']} {each['version']}: {known['id']}, fixed in {fixed}")
    if unanswered := [pin for pin in pinned() if pin.partition("==")[0].lower() not in answered]:
        reasons = [each["skip_reason"] for each in report if "skip_reason" in each]
        why = f": {reasons[0]}" if reasons else ""
        yield Finding(False, f"advisories of {len(unanswered)} of {len(pinned())} libraries ({unanswered[0]} ...){why}")


def newer_packages() -> Iterator[Finding]:
    """Yield Debian packages of the image that Debian has replaced, mostly for security reasons."""
    for architecture in wheels.PLATFORMS:
        try:
            newest = debian.Apt(ROOT / "build/image", architecture).newest(debian.PACKAGES)
        except (OSError, subprocess.CalledProcessError) as error:
            yield Finding(False, f"Debian's packages for {architecture}: {error}")
            continue
        for deb in debian.read_lock(architecture):
            version = newest.get(deb.name, ("",))[0]
            if version != deb.version:
                message = (
                    f"{deb.name} {deb.version} ({architecture}): Debian has {version or 'none'}; `make lock` pins it"
                )
                yield Finding(True, message)


def licence_problems() -> Iterator[Finding]:
    """Yield the problems of the licences of the pinned libraries that are installed in this environment."""
    wanted = {_normal(pin.partition("==")[0]) for pin in pinned()}
    sites = (Path(path) for path in sys.path if path.endswith("site-packages"))
    found = [each for site in sites for each in licences.libraries(site) if _normal(each.name) in wanted]
    yield from (Finding(True, message) for message in licences.problems(found))
    if missing := sorted(wanted - {_normal(each.name) for each in found}):
        yield Finding(False, f"licences of {', '.join(missing)}: not installed here")


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    main()
