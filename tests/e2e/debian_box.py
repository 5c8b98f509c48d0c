"""A machine that systemd has booted: the real systemd as PID 1 of namespaces, on this machine's files.

`NODEPLUG_E2E_BOX` names the root of another Debian or Ubuntu to boot instead, as created by
`debootstrap --include=python3,systemd trixie FOLDER`.

Its writes go to a tmpfs. It has its own cgroup, mount and PID namespaces, and no network unless it shares this
machine's, so that systemd creates the real sandbox of a unit. Its /sys is made up. Its /tmp is empty, because systemd
would delete this machine's files there one by one.
"""

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(os.environ.get("NODEPLUG_E2E_BOX", "/"))
SYSTEMD = Path("/lib/systemd/systemd")
_BOOT_SECONDS = 120.0  # three on an idle machine
_ENVIRONMENT = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8")
_BOOT = """
set -e
mount -t tmpfs box {scratch}
mkdir {scratch}/upper {scratch}/work {scratch}/root
mount -t overlay overlay -o lowerdir={root},upperdir={scratch}/upper,workdir={scratch}/work {scratch}/root
root={scratch}/root
mount -t proc proc $root/proc
mount --bind {sys} $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t tmpfs tmpfs $root/run
mount -t tmpfs tmpfs $root/tmp
mount --rbind /dev $root/dev
{binds}
cd $root
mkdir run/before
pivot_root . run/before
umount -l run/before
exec env -i container=nodeplug-test {systemd} --system --unit=basic.target --log-target=journal
"""


def skip_reason() -> str:
    """Return why no box can be booted here; "" if one can."""
    if os.geteuid() != 0:
        return "namespaces with systemd need root"
    if not all((ROOT / x).exists() for x in ("usr/lib/systemd/systemd", "usr/bin/apt-get", "usr/bin/python3")):
        return f"{ROOT}: no systemd, no Python, or no Debian"
    return "" if _cgroup2() else "there is no cgroup2 to give a part of"


class DebianBox:
    """The box of this module; it runs while `booted` is entered."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def run(self, command: str, folder: str = "/", answers: str = "") -> subprocess.CompletedProcess[str]:
        """Run a bash command as root; `answers` is its standard input. `stdout` contains both output and errors."""
        enter = ["nsenter", "-t", str(self._pid), "-m", "-p", "-u", "-i", "-C", "-n", "-r", "-w"]
        script = f"cd {shlex.quote(folder)} && {command}"
        return subprocess.run(
            [*enter, *_ENVIRONMENT, "bash", "-c", script],
            input=answers,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )


@contextlib.contextmanager
def booted(scratch: Path, sys: Path, binds: Mapping[str, Path], *, has_network: bool = False) -> Iterator[DebianBox]:
    """Boot a box: `sys` becomes its /sys, and `binds` maps folders of the box to folders of this machine.

    With `has_network` it shares this machine's network.
    """
    (sys / "fs/cgroup").mkdir(parents=True)
    scratch.mkdir()
    lines = [
        f"mkdir -p $root{there}; mount --rbind {shlex.quote(str(here))} $root{there}" for there, here in binds.items()
    ]
    script = _BOOT.format(root=ROOT, scratch=scratch, sys=sys, systemd=SYSTEMD, binds="\n".join(lines))
    cgroup = Path(_cgroup2()) / f"nodeplug-box-{os.getpid()}"
    cgroup.mkdir()
    network = "" if has_network else "--net"
    unshare = f"unshare --mount --pid --uts --ipc --cgroup {network} --fork --kill-child --propagation private bash -c"
    unshare = f"setpriv --pdeathsig KILL {unshare}"  # otherwise a killed test run would leave the box running
    enter = f"echo $$ >{cgroup}/cgroup.procs; exec {unshare} {shlex.quote(script)}"
    process = subprocess.Popen(["bash", "-c", enter], stderr=subprocess.PIPE, text=True)
    try:
        box = DebianBox(_child(process))
        _until_running(box)
        yield box
    finally:
        process.kill()  # kills PID 1 of the box as well, and with it all its processes
        process.communicate()
        _remove(cgroup)


def _child(process: "subprocess.Popen[str]") -> int:
    """Wait until PID 1 of the box is systemd; return its pid on this machine."""
    deadline = time.monotonic() + _BOOT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the box does not boot: {process.communicate()[1]}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and os.readlink(f"/proc/{children[0]}/exe") == str(SYSTEMD.resolve()):
            return int(children[0])
        time.sleep(0.05)
    raise AssertionError(f"the box does not boot within {_BOOT_SECONDS:.0f} s")


def _until_running(box: DebianBox) -> None:
    deadline = time.monotonic() + _BOOT_SECONDS
    while (state := box.run("systemctl is-system-running").stdout.strip()) not in ("running", "degraded"):
        assert time.monotonic() < deadline, state
        time.sleep(0.1)


def _remove(cgroup: Path) -> None:
    deadline = time.monotonic() + 10
    while "populated 1" in (cgroup / "cgroup.events").read_text():
        assert time.monotonic() < deadline, f"{cgroup}: somebody is still there"
        time.sleep(0.05)
    for folder, _, _ in os.walk(cgroup, topdown=False):
        os.rmdir(folder)


def _cgroup2() -> str:
    found = re.search(r"(?m)^\S+ (\S+) cgroup2 ", Path("/proc/self/mounts").read_text())
    return found.group(1) if found else ""
