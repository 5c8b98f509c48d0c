"""Requests that a server forwards to a pod's kubelet: logs and streams. This server cannot reach a kubelet.

Errors that need no kubelet are the reference's. Every other request is refused with the reason.
Source: the API's operations "get pod log" and "connect exec, attach, portforward"; the reference's texts.
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request, internal, method_not_allowed

LOG = "log"
STREAMS = frozenset({LOG, "exec", "attach", "portforward"})


def refuse_stream(pod: Plain, part: str, method: str, container: str) -> None:
    """Return if the answer is empty: the log of a pod without a node. Raises ApiError otherwise.

    `container` is the container in the request, if it names one.
    """
    if method not in (("GET",) if part == LOG else ("GET", "POST")):
        raise method_not_allowed()
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    if part != "portforward":
        _check_container(name, spec, container)
    if spec.get("nodeName"):
        raise internal(f"pod {name}: {part} is its kubelet's to answer, and this stand-in for an API server asks none")
    if part != LOG:
        raise bad_request(f"pod {name} does not have a host assigned")


def _check_container(pod: str, spec: Plain, container: str) -> None:
    names = [each["name"] for each in spec.get("containers") or ()]
    initial = [each["name"] for each in spec.get("initContainers") or ()]
    ephemeral = [each["name"] for each in spec.get("ephemeralContainers") or ()]
    if container and container not in (*names, *initial, *ephemeral):
        raise bad_request(f"container {container} is not valid for pod {pod}")
    if not container and len(names) > 1:
        choice = f"[{' '.join(names)}]" + (f" or one of the init containers: [{' '.join(initial)}]" if initial else "")
        raise bad_request(f"a container name must be specified for pod {pod}, choose one of: {choice}")
