"""The rules of a webhook's client configuration. Source: k8s.io/apiserver pkg/util/webhook/validation.go."""

import re

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList, quoted_text
from resourceapi.objects.names import dns_1035_label, dns_subdomain

REVIEWS = ("v1", "v1beta1")
# Source: RFC 3986, appendix B. Python's parser and Go's accept different URLs.
_URL = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?[^?#]*(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_client(errors: ErrorList, path: str, client: Plain) -> None:
    """Check a URL, or a service of the cluster."""
    if (client.get("url") is None) == (client.get("service") is None):
        errors.required(path, "exactly one of url or service is required")
    elif client.get("url") is not None:
        _check_url(errors, f"{path}.url", client["url"])
    else:
        _check_service(errors, f"{path}.service", client["service"])


def _check_url(errors: ErrorList, path: str, text: str) -> None:
    form = "; desired format: https://host[/path]"
    parts = _URL.fullmatch(text)
    assert parts is not None, "it takes any text"
    scheme, authority, query, fragment = parts.groups(default="")
    user, _, host = authority.rpartition("@")
    why = ""
    if _CONTROL.search(text):
        why = "net/url: invalid control character in URL"
    elif host.startswith("[") and "]" not in host:
        why = "missing ']' in host"
    if why:
        errors.required(path, f"url must be a valid URL: parse {quoted_text(text)}: {why}{form}")
        return
    if scheme.lower() != "https":
        errors.invalid(path, scheme.lower(), f"'https' is the only allowed URL scheme{form}")
    if not host:
        errors.invalid(path, host, f"host must be specified{form}")
    if "@" in authority:
        errors.invalid(path, user, "user information is not permitted in the URL")
    if fragment:
        errors.invalid(path, fragment, "fragments are not permitted in the URL")
    if query:
        errors.invalid(path, query, "query parameters are not permitted in the URL")


def _check_service(errors: ErrorList, path: str, service: Plain) -> None:
    # The reference's paths are interchanged.
    if not service.get("namespace"):
        errors.required(f"{path}.name")
    if not service.get("name"):
        errors.required(f"{path}.namespace")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        errors.invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    where = service.get("path") or "/"
    if where == "/":
        return
    if where == "//":
        errors.invalid(f"{path}.path", where, "segment[0] may not be empty")
        return
    if not where.startswith("/"):
        errors.invalid(f"{path}.path", where, "must start with a '/'")
    for index, step in enumerate(where[1:].removesuffix("/").split("/")):
        for text in dns_subdomain(step) if step else ():
            errors.invalid(f"{path}.path", where, f"segment[{index}]: {text}")
        if not step:
            errors.invalid(f"{path}.path", where, f"segment[{index}] may not be empty")


def check_reviews(errors: ErrorList, path: str, reviews: list[str], missing: str = "", unit: str = "bytes") -> None:
    """Check the versions of reviews, one of which must be supported; `unit` is the unit of their length in errors."""
    if not reviews:
        errors.required(path, missing)
        return
    seen: set[str] = set()
    for index, each in enumerate(reviews):
        if each in seen:
            errors.invalid(f"{path}[{index}]", each, "duplicate version")
            continue
        seen.add(each)
        for text in dns_1035_label(each, unit):
            errors.invalid(f"{path}[{index}]", each, text)
    if not set(reviews) & set(REVIEWS):
        errors.invalid(path, reviews, f"must include at least one of {', '.join(REVIEWS)}")
