"""The Windows options of security contexts.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateWindowsSecurityContextOptions).
"""

import re

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_subdomain

_MAX_SPEC_LENGTH = 64 * 1024
_MAX_DOMAIN_LENGTH, _MAX_USER_LENGTH = 256, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IS_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_IS_DNS = re.compile(rf"{_DNS_PART}(?:\.{_DNS_PART})*")
_NOT_OF_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_IS_BLANK = re.compile(r"[. ]+")


def check_windows_options(errors: ErrorList, options: Plain | None, path: str) -> None:
    """Check the Windows options of a security context."""
    name, text, user = (
        (options or {}).get(x) for x in ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName")
    )
    if name is not None:
        add_invalid(errors, f"{path}.gmsaCredentialSpecName", name, dns_subdomain(name))
    if text == "":
        errors.invalid(f"{path}.gmsaCredentialSpec", text, "gmsaCredentialSpec cannot be an empty string")
    elif text is not None and len(text.encode()) > _MAX_SPEC_LENGTH:
        why = f"gmsaCredentialSpec size must be under {_MAX_SPEC_LENGTH // 1024} KiB"
        errors.invalid(f"{path}.gmsaCredentialSpec", text, why)
    for why in _user_name_fault(user) if user is not None else ():
        errors.invalid(f"{path}.runAsUserName", user, f"runAsUserName{why}")


def _user_name_fault(text: str) -> list[str]:
    """Why a text is not the name of a Windows user, with or without a domain; empty if it is."""
    domain, *more = text.split("\\")
    if not text:
        return [" cannot be an empty string"]
    if _CONTROL.search(text):
        return [" cannot contain control characters"]
    if len(more) > 1:
        return [" cannot contain more than one backslash"]
    user, found = more[0] if more else domain, []
    if more and len(domain) >= _MAX_DOMAIN_LENGTH:
        found.append(f"'s Domain length must be under {_MAX_DOMAIN_LENGTH} characters")
    if more and not (_IS_NETBIOS.fullmatch(domain) or _IS_DNS.fullmatch(domain)):
        found.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        found.append("'s User cannot be empty")
    elif len(user) > _MAX_USER_LENGTH:
        found.append(f"'s User length must not be longer than {_MAX_USER_LENGTH} characters")
    if _IS_BLANK.fullmatch(user):
        found.append("'s User cannot contain only periods or spaces")
    if _NOT_OF_USERS.search(user):
        found.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return found
