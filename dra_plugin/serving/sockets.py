"""Names of the sockets: for a single instance, or for one beside another during a rolling update.

Instances of a rolling update have their pod's uid in the names. A path has at most 107 bytes, so there are shorter
alternatives, of which the first that fits is used. Source: DRA specification, sections 1.6 and 2.3.
"""

import base64
import os
import re
from pathlib import Path

from grpcunix import MAX_PATH, remove_dead_sockets

_UID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_HASHED_UID = "(?=[a-z0-9-]*[A-Z_])[A-Za-z0-9_-]{11}"  # with a character that no driver's name contains


def registration_socket(registry: Path, driver: str, pod_uid: str = "") -> Path:
    """Return where an instance registers: the first of three names that fits, or the last one."""
    if not pod_uid:
        return registry / f"{driver}-reg.sock"
    both = f"{driver}\0{pod_uid}"
    return _first_that_fits(
        registry,
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_hash(pod_uid, 8)}-reg.sock",
        f"dra-{_hash(both, 16)}-reg.sock",
    )


def plugin_socket(data: Path, driver: str, pod_uid: str = "") -> Path:
    """Return where an instance serves DRAPlugin; GetInfo reports it to the kubelet.

    The last name leaves room for a driver's name of 63 bytes below /var/lib/kubelet/plugins.
    """
    if not pod_uid:
        return data / "dra.sock"
    both = f"{driver}\0{pod_uid}"
    return _first_that_fits(data, f"dra-{pod_uid}.sock", f"dra-{_hash(both, 16)}.sock", f"dra-{_hash(both, 6)}.sock")


def remove_dead_instances(registry: Path, data: Path, driver: str) -> None:
    """Remove the sockets of instances that were killed. Sockets that might belong to another driver stay.

    Raises OSError if they cannot be removed.
    """
    registered = re.compile(f"{re.escape(driver)}-(({_UID}|{_HASHED_UID})-)?reg\\.sock")
    remove_dead_sockets(registry, lambda name: registered.fullmatch(name) is not None)
    remove_dead_sockets(data, lambda name: name.startswith("dra") and name.endswith(".sock"))


def _first_that_fits(folder: Path, *names: str) -> Path:
    fitting = (name for name in names if "/" not in name and len(os.fsencode(folder / name)) <= MAX_PATH)
    return folder / next(fitting, names[-1])


def _hash(text: str, size: int) -> str:
    """Return the first `size` bytes of the SHA-256 of `text` as URL-safe base64 without padding."""
    import hashlib  # on first use: it loads OpenSSL

    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:size]).rstrip(b"=").decode()
