"""Run kubectl with the stand-in API server and with a real one, and compare its output and exit code.

    python -m tests.e2e.compare_kubectl [core] [custom] [dra]

The commands are in `kubectl/*.txt`, one per line, with variables in front as in a shell. A command with `~` in front is
known to differ (docs/apiserver.md has the reasons), one with `~1.34,1.36` only on these releases. Each file starts
with new servers, and its commands are run in order.
$K8S selects the real server and kubectl, and the release that the stand-in imitates.
"""

import argparse
import difflib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import Kubectl, Running
from tests.e2e.realnode import HOME, KUBERNETES
from tests.e2e.realserver import RealServer

COMMANDS = Path(__file__).with_name("kubectl")
_KNOWN = re.compile(r"~(\S*) ")
_TAINT_RULES = {"1.34": "v1alpha3", "1.35": "v1alpha3", "1.36": "v1beta2"}.get(KUBERNETES, "v1")
_FLAGS = (
    f"--runtime-config=resource.k8s.io/{_TAINT_RULES}=true",  # all versions but v1 are off by default
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,PodSecurity",
)
_VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000)"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} 20\d\d \d\d:\d\d:\d\d \+\d{4}"), "TIME"),
    (re.compile(r'(resourceVersion"?:? ?"?|Resource ?Version: *|resourceVersion=)\d+'), r"\1VERSION"),
    (re.compile(r"(?<=\s)(\d+m)?\d+(\.\d+)?m?s(?=\s|$)", re.MULTILINE), "AGE"),
    (re.compile(r"(LIVE|MERGED|kubectl-edit)-\d+"), r"\1-N"),
    (re.compile(r"\b(gen-|debugger-)[a-z0-9]{5}\b"), r"\1XXXXX"),
    (re.compile(r'"(gitCommit|gitTreeState|buildDate|goVersion|compiler|platform)": ".*"'), r'"\1"'),
    (re.compile(r"10\.96\.\d+\.\d+"), "10.96.X.X"),
    # client-go logs this for a watch that it ends, over HTTP/1.1 every second time
    (re.compile(r"^I\d{4} .*: Unexpected watch close - .*\n", re.MULTILINE), ""),
    (re.compile(r" {2,}"), "  "),  # columns are as wide as their content
)


class Compared(NamedTuple):
    """A command, and the difference of its output; "" if there is none."""

    command: str
    is_known: bool
    difference: str


def main() -> None:
    """Run the command; exits with 1 if an unknown difference is found, or a known one is not."""
    names = sorted(path.stem for path in COMMANDS.glob("*.txt"))
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.compare_kubectl", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *names], help=", ".join(names))
    count = same = 0
    wrong: list[Compared] = []
    for name in parser.parse_args().names or names:
        for each in compared(name):
            count, same = count + 1, same + (not each.difference)
            if bool(each.difference) != each.is_known:
                wrong.append(each)
                print(
                    f"$ {each.command}\n{each.difference or 'it is marked as known to differ, and does not differ'}",
                    flush=True,
                )
    print(f"{count} commands, {same} print the same; {len(wrong)} are marked wrongly")
    sys.exit(1 if wrong else 0)


def compared(name: str) -> Iterator[Compared]:
    """Run a file's commands in order, each on both servers, and yield the results."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "server").mkdir()
        real = stack.enter_context(RealServer(folder / "server", *_FLAGS))
        release = RELEASES[KUBERNETES]
        ours = stack.enter_context(Running(definitions=(), collect_after=None, release=release, authorization="RBAC"))
        sides = [_kubectl(folder / "ours", ours.kubeconfig), _kubectl(folder / "real", partial(_kubeconfig, real))]
        both = stack.enter_context(ThreadPoolExecutor(2))
        urls = (ours.url, real.url)
        for line in (COMMANDS / f"{name}.txt").read_text().splitlines():
            known = _KNOWN.match(line)
            command = line[known.end() :] if known else line
            answers = list(both.map(_run, sides, [command] * 2, urls))
            is_known = known is not None and (not known[1] or KUBERNETES in known[1].split(","))
            yield Compared(command, is_known, _difference(*reversed(answers)))


def _kubectl(folder: Path, write: Callable[[Path], Path]) -> Kubectl:
    shutil.copytree(COMMANDS, folder)
    return Kubectl(str(HOME / "bin/kubectl"), write(folder / "config"), folder)


def _kubeconfig(server: RealServer, path: Path) -> Path:
    authority = path.with_name("ca")
    authority.write_text(server.ca)
    cluster = {"server": server.url, "certificate-authority": str(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": "admin"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    path.write_text(json.dumps(config))
    return path


def _run(kubectl: Kubectl, command: str, url: str) -> Sequence[str]:
    words = shlex.split(command)
    variables: dict[str, str] = {"TZ": "UTC"}
    while (name := words[0].partition("=")[0]).isupper() and "=" in words[0]:
        variables[name] = words.pop(0).partition("=")[2]
    try:
        done = kubectl.run(*words, **variables)
    except subprocess.TimeoutExpired:
        return ("it does not end",)
    text = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    text = text.replace(url, "URL").replace(url.rpartition("/")[2], "HOST")
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return text.splitlines()


def _difference(real: Sequence[str], ours: Sequence[str]) -> str:
    return "\n".join(difflib.unified_diff(real, ours, "real", "ours", lineterm="", n=1))


if __name__ == "__main__":
    main()
