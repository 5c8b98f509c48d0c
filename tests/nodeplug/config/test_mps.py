"""`mps`: GPUs shared by NVIDIA's Multi-Process Service."""

import pytest

from nodeplug.config import loads
from resources.resource import Resource
from tests.nodeplug.config.text import errors_with_settings

MPS = "mps: {pipeDirectory: /run/mps/pipe, shmDirectory: /run/mps/shm}"


def resource_with_mps(text: str) -> Resource:
    file = f"settings: {{allowedMounts: [/run/mps]}}\nresources: [{{name: x/y, select: nvidia-gpu, {MPS}, {text}}}]"
    (resource,) = loads(file.encode()).resources
    return resource


@pytest.mark.parametrize(
    ("text", "percentage"),
    [
        ("shares: 4", "25"),
        ("shares: 3", "33"),
        ("shares: 200", "1"),
        ("shares: 1", None),
        ("shares: 4, sharesOf: [{select: {id: gpu-1}, count: 2}]", None),
        ('shares: 4, env: {CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: "50"}', "50"),
    ],
)
def test_each_share_gets_its_thread_percentage(text: str, percentage: str | None) -> None:
    resource = resource_with_mps(text)
    assert resource.env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps/pipe"
    assert resource.env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == percentage
    assert resource.mps == "/run/mps/pipe"
    assert [(x.host_path, x.container_path, x.read_only) for x in resource.mounts] == [
        ("/run/mps/pipe", "/run/mps/pipe", False),
        ("/run/mps/shm", "/dev/shm", False),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"select: kvm\n{MPS}",
            "no device that is selected here (kind: misc) can have it: MPS is NVIDIA's; leave it out,",
        ),
        ("select: gpu\nmps: {pipeDirectory: /run/mps/pipe}", "the key shmDirectory is missing; its folder of shared"),
        ("select: gpu\nmps: /run/mps", 'this must be a mapping, not "/run/mps"'),
        (
            "select: gpu\nmps: {pipeDirectory: /srv/pipe, shmDirectory: /run/mps/shm}",
            "/srv/pipe is not below any of settings.allowedMounts; the administrator of the node must allow mounts",
        ),
        ("select: gpu\nmps: {pipeDirectory: pipe, shmDirectory: /run/mps/shm}", "pipe is not an absolute path"),
        (
            "select: gpu\nmps: {pipeDirectory: /dev/shm/pipe, shmDirectory: /run/mps/shm}",
            "nothing can be mounted at /dev/shm/pipe; give the service another folder",
        ),
        (
            f"select: gpu\n{MPS}\nmounts: [{{hostPath: /run/mps/x, containerPath: /dev/shm}}]",
            "`mounts` has something at /dev/shm, too; leave that out",
        ),
    ],
)
def test_invalid_mps_keys_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(text, settings="allowedMounts: [/run/mps]")
    assert found.startswith(message)
