"""Domain-prefixed paths, such as controller names. Source: k8s.io/apimachinery pkg/util/validation/validation.go."""

import re

from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_subdomain

_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_IS_PATH = re.compile(_PATH)


def check_prefixed(errors: ErrorList, path: str, text: str) -> None:
    """Check a domain-prefixed path."""
    domain, _, rest = text.partition("/")
    if not text:
        errors.required(path)
    elif not domain or not rest:
        errors.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        add_invalid(errors, path, domain, dns_subdomain(domain))
        if not _IS_PATH.fullmatch(rest):
            errors.invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH}')")
