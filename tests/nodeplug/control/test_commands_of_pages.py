"""Every command on a page is run: here, by the named test, or not at all with a reason.

A new command needs an entry only if it cannot run here.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoint.build import lease, opened
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.control.conftest import KVM, DaemonUnderTest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

REPLAYED = {
    "kubectl-walkthrough.md": "controlplane/apiserver/test_walkthrough.py::test_commands_print_documented_output",
    "k8srm.md": "controlplane/k8srm/test_walkthrough.py::test_commands_print_documented_output",
}
"""Pages whose console blocks are replayed by their own test, including the output."""

RUN_BY = {
    r"sudo (apt-get|systemctl enable|journalctl)": "e2e/test_edge_box.py::test_edge_box_page_works_as_written",
    r"~/nodeplug/bin/|python3 -m venv ~": "project/test_install_page.py::test_pip_installation_works_as_written",
    r"kubectl config |kubectl create token": (
        "project/test_install_page.py::test_kubeconfig_made_by_the_page_is_usable"
    ),
    r"kubectl apply -k deploy/overlays": ("project/test_manifests.py::test_overlay_and_chart_create_the_same_objects"),
    r"kubectl apply -k systemd": (
        "project/test_manifests.py::test_systemd_cluster_manifests_are_the_rights_of_the_daemonset"
    ),
    r"kubectl apply -f deploy/daemonset": "e2e/test_daemonset.py::test_server_accepts_the_shipped_manifests",
    r"sudo ctr|helm |kubectl (rollout|describe|exec) ": "e2e/test_cluster_page.py::test_cluster_page_works_as_written",
    r"kubectl delete ": "e2e/test_daemonset.py::test_pods_open_devices_of_the_daemonset",
    r"python3 dist/nodeplug-\S+ (discover|check systemd)": (
        "project/test_pyz.py::test_archive_runs_alone_and_is_reproducible"
    ),
    r"python -m \S+\.(page|reference) ": "nodeplug/config/test_reference.py::",
    r"nodeplug kubelet verify .*(dra|driver)": "kubelet/test_driver_conformance.py::",
    r"nodeplug kubelet verify|python plugin.py": "kubelet/test_conformance.py::",
    r"nodeplug kubelet (run|admit|hold|release|remove|restart|status)": (
        "kubelet/test_cli.py::test_admit_status_remove_and_restart_with_plugin"
    ),
    r"\. \.venv": "project/test_laptop_page.py::test_page_commands_start_the_daemon_and_the_ui",
    r"nodeplug kubelet checkpoint": "kubelet/test_cli.py::test_checkpoint_shows_devices_and_corruption",
    r"python driver.py|kubectl --kubeconfig /tmp/k": (
        "nodeplug/test_testing_page.py::test_driver_of_the_page_prepares_a_claim"
    ),
    r"nodeplug allocate --kubeconfig": (
        "nodeplug/commands/test_allocate_server.py::test_claims_are_allocated_from_the_objects_of_the_server"
    ),
    r"nodeplug allocate": "nodeplug/commands/test_allocate.py::test_what_if_accepts_files_and_copies",
    r"nodeplug apiserver": "nodeplug/commands/test_apiserver.py::test_server_loads_manifests_and_stops_on_sigterm",
    r"nodeplug k8srm apiserver": "controlplane/k8srm/test_walkthrough.py::test_commands_print_documented_output",
    r"nodeplug k8srm definitions": "controlplane/k8srm/test_definitions.py::test_command_prints_definitions_as_yaml",
    r"nodeplug k8srm gen": "controlplane/k8srm/test_gen_cli.py::test_gen_prints_list_with_sorted_keys",
    r"nodeplug k8srm schedule": "controlplane/k8srm/test_schedule.py::test_command_prints_report_and_binds_pod",
    r"(make demo|nodeplug demo)": "nodeplug/commands/test_demo.py::test_demo_prints_the_steps_of_both_apis_in_order",
    r"nodeplug run ": "nodeplug/test_run.py::",
    r"nodeplug events --follow": "nodeplug/control/test_events.py::",
    r"nodeplug dry-run ": "nodeplug/control/test_dry_run.py::",
    r"nodeplug (withhold|readmit) ": "nodeplug/control/test_withhold.py::",
    r"nodeplug ui": "nodeplug/page/test_daemon.py::",
    r"eval .*nodeplug completion": "nodeplug/commands/test_cli.py::test_bash_completes_commands_and_values",
}
"""The beginning of a command, and the test or test file that runs it."""

NOT_RUN = {
    r"make (test|check|long|pyz)|NODEPLUG_REQUESTS=|python -m pytest": "it runs the tests, or needs the network",
    r"sudo (systemctl (daemon-reload|restart)|install|python3|/opt)|/opt/|echo 'settings": (
        "it needs a machine of its own with systemd"
    ),
    r"ssh ": "it needs another machine",
    r"pip install|export KUBECONFIG": "an installation; the test replays the page in this one",
    r"ls -l /sys|cat /sys/class|cat pod.yaml|nodeplug discover --kind gnss": "it looks at what the page is about",
}
"""Commands that no test runs, with the reason."""

DAEMON_COMMANDS = ("events", "explain", "leases", "reload", "status", "topology")
"""Commands that query the daemon of a state directory."""
CAN_EXIT_WITH_1 = ("convert", "doctor", "leases release", "status")
"""Commands that can exit with 1 because of problems: there is no container runtime, and the daemon just started."""


def lines(page: Path) -> Iterator[str]:
    for kind, block in re.findall(r"(?ms)^```(sh|console)\n(.*?)^```", page.read_text()):
        if kind == "console" and page.name in REPLAYED:
            continue
        text = block.replace("\\\n", " ")
        typed = (
            [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            if kind == "console"
            else text.splitlines()
        )
        yield from filter(None, (re.sub(r"(^|\s)# .*", "", line).strip() for line in typed))


def entry(line: str, table: dict[str, str]) -> str | None:
    return next((value for pattern, value in table.items() if re.match(pattern, line)), None)


RUN_HERE = {
    line: page.name for page in PAGES for line in lines(page) if not entry(line, RUN_BY) and not entry(line, NOT_RUN)
}


def test_every_named_test_exists() -> None:
    for named in (*RUN_BY.values(), *REPLAYED.values()):
        file, _, test = named.partition("::")
        assert f"def {test}" in (ROOT / "tests" / file).read_text(), named


def test_every_entry_matches_a_command() -> None:
    shown = {line for page in PAGES for line in lines(page)}
    unused = [pattern for pattern in (*RUN_BY, *NOT_RUN) if not any(re.match(pattern, line) for line in shown)]
    assert unused == []


async def test_commands_of_pages_succeed(
    daemon: DaemonUnderTest, made_up: MadeUpHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with the files that pages name, with a daemon, and with a lease of a pod."""
    monkeypatch.chdir(tmp_path)
    ledger = await opened(daemon.state)
    await ledger.grant([lease("misc-kvm", "example.com/kvm", holder="pod/default/train-0/c", pods="u1")])
    await ledger.close()
    await daemon.start(KVM, {"name": "example.com/gpu", "select": "fuse"})
    for name in ("node.yaml", "NEW.yaml"):
        (tmp_path / name).write_text(daemon.path.read_text())
    theirs = (ROOT / "docs/migration.md").read_text().split("```json\n")[1].split("```")[0]
    (tmp_path / "config.json").write_text(theirs)
    (tmp_path / "conf.yaml").write_text(json.dumps([{"devicematch": "^fuse$", "nummaxdevices": 20}]))
    for name in ("there.gz", "node.gz"):
        assert (await daemon.run_as_is("capture", "--root", str(made_up.root), name)).exit_code == 0
    through_dra = {"resources": [{"name": "example.com/kvm", "select": "kvm", "api": "both"}]}
    (tmp_path / "through-dra.yaml").write_text(json.dumps(through_dra))
    failed = []
    # first the captures, which other commands use; last `release`, because other commands show its lease
    for line in sorted(RUN_HERE, key=lambda each: ("release" in each) - ("capture" in each)):
        for part in line.split(" && "):
            words, codes, output = parsed(part)
            if words[0] == "capture":
                Path(words[-1]).unlink(missing_ok=True)
            words = [str(daemon.state) if word == "running" else word for word in words]
            result = await (daemon.run if words[0] in DAEMON_COMMANDS else daemon.run_as_is)(*words)
            if result.exit_code not in codes:
                failed.append(f"{RUN_HERE[line]}: {part}: {result.exit_code}: {result.output[-300:]}")
            if output:
                Path(output).write_text(result.stdout)
    assert failed == []


def parsed(line: str) -> tuple[list[str], tuple[int, ...], str]:
    """Return a line's words after `nodeplug`, its allowed exit codes, and the file that it writes to."""
    line = re.sub(r"^(sudo )?(nodeplug|python3 dist/nodeplug-\S+\.pyz|/opt/nodeplug/bin/nodeplug) ", "", line)
    line, _, pipe = line.partition(" | ")
    line, _, output = line.partition(">")
    words = shlex.split(line.replace("/etc/nodeplug/", ""))
    if words[0] == "classes":
        words[-1] = "through-dra.yaml"
    codes = (0, 1) if " ".join(words).startswith(CAN_EXIT_WITH_1) else (0,)
    assert not pipe or re.match(r"(kubectl apply|jq|sudo tee) ", pipe), pipe
    return words, codes, "" if "/" in output else output.strip()
