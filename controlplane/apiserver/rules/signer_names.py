"""The rules of signer names: a domain and a path, `example.com/name`.

Source: k8s.io/kubernetes pkg/apis/core/validation/names.go.
"""

from resourceapi.objects import ErrorList
from resourceapi.objects.names import dns_label, dns_subdomain

_FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_OWN = "kubernetes.io"


def check_signer(errors: ErrorList, path: str, name: str) -> None:
    """Check the name of a signer, which is required."""
    if not name:
        errors.required(path)
        return
    domain, *more = name.split("/")
    if len(more) != 1:
        errors.invalid(path, name, _FORM)
        return
    labels = domain.split(".")
    for segment, parts, rule in ((domain, labels, dns_label), (more[0], more[0].split("."), dns_subdomain)):
        wrong = next(((part, found) for part in parts if (found := rule(part))), None)
        for text in wrong[1] if wrong else ():
            errors.invalid(path, segment, f'validating label "{wrong[0] if wrong else ""}": {text}')
        if segment is domain and len(labels) < 2:
            errors.invalid(path, domain, "should be a domain with at least two segments separated by dots")


def is_own_signer(name: str) -> bool:
    """Return whether a signer belongs to Kubernetes itself."""
    domain = name.partition("/")[0]
    return domain == _OWN or domain.endswith(f".{_OWN}")
