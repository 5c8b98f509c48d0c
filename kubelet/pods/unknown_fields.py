"""Finds unknown members of a manifest: a pod with `limit` instead of `limits` would run without its devices.

An API server warns about them. A kubelet that reads a static pod drops them silently. The contents of members that
this kubelet does not read, such as `volumes`, are not checked.

Source: k8s.io/api core/v1 (PodSpec, Container), 1.37; k8s.io/kubernetes pkg/kubelet/config/common.go, 1.34 to 1.37.
"""

import re

from kubelet.pods.builders import STAYS
from resourceapi.objects import to_dict
from resourceapi.objects.core import Pod
from resourceapi.objects.strict import problems

OF_SPEC = frozenset(
    (
        *("activeDeadlineSeconds", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks"),
        *("ephemeralContainers", "evictionResponders", "hostAliases", "hostIPC", "hostPID", "hostUsers", "hostname"),
        *("hostnameOverride", "imagePullSecrets", "preemptionPolicy", "priorityClassName", "readinessGates"),
        *("runtimeClassName", "schedulingGates", "schedulingGroup", "securityContext", "serviceAccount"),
        *("serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain"),
        *("terminationGracePeriodSeconds", "topologySpreadConstraints", "volumes"),
    )
)
"""Valid members of a pod's spec that this kubelet does not read."""
OF_CONTAINER = frozenset(
    (
        *("args", "command", "env", "envFrom", "imagePullPolicy", "lifecycle", "livenessProbe", "readinessProbe"),
        *("resizePolicy", "restartPolicyRules", "securityContext", "startupProbe", "stdin", "stdinOnce"),
        *("terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts", "workingDir"),
    )
)
"""Valid members of a container that this kubelet does not read."""
_UNREAD = re.compile(r'unknown field "spec\.((?:initContainers|containers)\[\d+\]\.)?(\w+)"')


def unknown_fields(pod: Pod) -> tuple[str, ...]:
    """Return texts such as `unknown field "spec.containers[0].resources.limit"`, in an API server's words."""
    return tuple(text for text in problems(pod, to_dict(pod)) if not _is_unread(text))


def _is_unread(text: str) -> bool:
    found = _UNREAD.fullmatch(text)
    return found is not None and found[2] in (OF_CONTAINER | {STAYS} if found[1] else OF_SPEC)
