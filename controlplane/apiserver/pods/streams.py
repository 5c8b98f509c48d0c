"""Requests that a server forwards: logs and streams to a pod's kubelet, proxied ones to pods, services and nodes.

This server reaches none of these.

Errors that need no kubelet are the reference's. Every other request is refused with the reason.
Source: the API's operations "get pod log" and "connect exec, attach, portforward, proxy"; the reference's texts.
"""

import re
from collections.abc import Callable

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request, internal, method_not_allowed, unavailable

LOG = "log"
PROXY = "proxy"
PROXIED_KINDS = frozenset({"nodes", "pods", "services"})
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_PROXIED = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
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


def refuse_proxy(kind: str, name: str, port: str, method: str, find: Callable[[], Plain]) -> None:
    """Refuse a request to be forwarded to a node, a pod or a service of this kind. Raises ApiError.

    `find` returns the object. A real server reads a service only if the request has the number of a port.
    """
    if method not in _PROXIED:
        raise method_not_allowed()
    if kind == "services":
        if _NUMBER.fullmatch(port):
            ports = [each.get("port") for each in (find().get("spec") or {}).get("ports") or ()]
            if int(port) not in ports:
                raise unavailable(f'no service port {int(port)} found for service "{name}"')
        raise unavailable(f'no endpoints available for service "{name}"')
    if kind == "pods" and not (find().get("status") or {}).get("podIP"):
        raise bad_request("address not allowed")
    find()
    raise internal(f"{kind} {name}: proxy is that address's to answer, and this stand-in for an API server asks none")


def proxied_address(kind: str, text: str) -> tuple[str, str]:
    """Return the object's name and the port in the path of a proxy. Raises ApiError.

    The text is `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
    """
    steps = text.split(":")
    if len(steps) > 3 or (len(steps) == 3 and steps[0] not in ("", "http", "https")):
        raise bad_request(f'invalid {kind.removesuffix("s")} request "{text}"')
    name, port = (*steps, "")[:2] if len(steps) < 3 else steps[1:]
    return name, port


def _check_container(pod: str, spec: Plain, container: str) -> None:
    names = [each["name"] for each in spec.get("containers") or ()]
    initial = [each["name"] for each in spec.get("initContainers") or ()]
    ephemeral = [each["name"] for each in spec.get("ephemeralContainers") or ()]
    if container and container not in (*names, *initial, *ephemeral):
        raise bad_request(f"container {container} is not valid for pod {pod}")
    if not container and len(names) > 1:
        choice = f"[{' '.join(names)}]" + (f" or one of the init containers: [{' '.join(initial)}]" if initial else "")
        raise bad_request(f"a container name must be specified for pod {pod}, choose one of: {choice}")
