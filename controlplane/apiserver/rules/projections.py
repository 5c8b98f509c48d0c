"""Files that a volume makes from other objects: keys of ConfigMaps and Secrets, pod fields, tokens, certificates.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateProjectionSources, validateKeyToPath,
validateDownwardAPIVolumeFile).
"""

from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.variables import check_container_amount, check_pod_field
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.rules.paths import check_local
from controlplane.apiserver.rules.signer_names import check_signer, is_own_signer
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.names import dns_subdomain

_MAX_RIGHTS = 0o777
_FIELDS = ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"]
_MIN_TOKEN, _MAX_TOKEN = 600, 2**32  # seconds
_MIN_CERTIFICATE, _MAX_CERTIFICATE, _MAX_OWN_CERTIFICATE = 3600, 91 * 24 * 3600, 24 * 3600  # seconds
_KEYS = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"]
_TWICE = "conflicting duplicate paths"
_SHOWN_BUNDLE = ("Name", "SignerName", "LabelSelector", "Optional", "Path", "User")


def check_mode(errors: ErrorList, path: str, mode: Any) -> None:
    """Check the mode of a file."""
    if mode is not None and not 0 <= mode <= _MAX_RIGHTS:
        errors.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def check_items(errors: ErrorList, source: Plain, path: str) -> None:
    """Check which keys of a ConfigMap or a Secret become which files."""
    for index, each in enumerate(source.get("items") or ()):
        here = f"{path}.items[{index}]"
        for member in ("key", "path"):
            if not each.get(member):
                errors.required(f"{here}.{member}")
        check_local(errors, f"{here}.path", each.get("path") or "")
        check_mode(errors, f"{here}.mode", each.get("mode"))


def check_variables_as_files(errors: ErrorList, file: Plain, path: str) -> None:
    """Check a downward API file: a field of the pod, or a resource of one of its containers."""
    field, amount, where = file.get("fieldRef"), file.get("resourceFieldRef"), file.get("path") or ""
    if not where:
        errors.required(f"{path}.path")
    check_local(errors, f"{path}.path", where)
    if field is not None:
        check_pod_field(errors, field, f"{path}.fieldRef", _FIELDS)
        if amount is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.invalid(path, "resource", why)
    elif amount is not None:
        check_container_amount(errors, amount, f"{path}.resourceFieldRef", is_named=True)
    else:
        errors.required(path, "one of fieldRef and resourceFieldRef is required")
    check_mode(errors, f"{path}.mode", file.get("mode"))


def check_projected(errors: ErrorList, projected: Plain, path: str) -> None:
    """Check a projected volume, which has files of several sources."""
    check_mode(errors, f"{path}.defaultMode", projected.get("defaultMode"))
    seen: set[str] = set()

    def once(where: str, shown: str) -> None:
        if where in seen:
            errors.invalid(path, shown, _TWICE)
        seen.add(where)

    for index, source in enumerate(projected.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        found = [name for name, item in source.items() if item is not None]
        for member in ("secret", "configMap"):
            if (named := source.get(member)) is not None:
                if not named.get("name"):
                    errors.required(f"{here}.{member}.name")
                check_items(errors, named, f"{here}.{member}")
                for item in filter(None, (each.get("path") for each in named.get("items") or ())):
                    once(item, named.get("name") or "")
        for file in (source.get("downwardAPI") or {}).get("items") or ():
            check_variables_as_files(errors, file, f"{here}.downwardAPI")
            if file.get("path"):
                once(file["path"], file["path"])
        if (token := source.get("serviceAccountToken")) is not None:
            _token(errors, token, f"{here}.serviceAccountToken", path)
        if (bundle := source.get("clusterTrustBundle")) is not None:
            _bundle(errors, bundle, f"{here}.clusterTrustBundle")
            once(bundle.get("path") or "", bundle.get("path") or "")
        if (certificate := source.get("podCertificate")) is not None:
            _certificate(errors, certificate, f"{here}.podCertificate")
            files = [certificate.get(f"{name}Path") for name in ("credentialBundle", "key", "certificateChain")]
            for where in filter(None, files):
                once(where, where)
        if len(found) > 1:
            errors.forbidden(here, "may not specify more than 1 volume type per source")


def _token(errors: ErrorList, token: Plain, path: str, volume: str) -> None:
    seconds = token.get("expirationSeconds")
    if seconds is None:
        errors.required(f"{path}.expirationSeconds")
    elif seconds < _MIN_TOKEN:
        errors.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_TOKEN:
        errors.invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.get("path"):
        errors.required(f"{volume}.path")  # upstream's path is that of the volume
    else:
        check_local(errors, f"{volume}.path", token["path"])


def _bundle(errors: ErrorList, bundle: Plain, path: str) -> None:
    name, signer, selector = bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector")
    if name is not None and signer is not None:
        members = {key.lower(): item for key, item in bundle.items()}
        shown = {key: members.get(key.lower()) for key in _SHOWN_BUNDLE}
        errors.invalid(path, InOrder(shown), "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            errors.required(f"{path}.name", "must be a valid object name")
        own = name.rpartition(":")[2]
        problems = (f"not a valid clustertrustbundlename: {text}" for text in dns_subdomain(own))
        add_invalid(errors, f"{path}.name", name, problems)
        if selector is not None:
            errors.invalid(f"{path}.labelSelector", selector, "labelSelector must be unset if name is specified")
    elif signer is not None:
        if not signer:
            errors.required(f"{path}.signerName", "must be a valid signer name")
        check_signer(errors, f"{path}.signerName", signer)
        check_selector(errors, f"{path}.labelSelector", selector)
    else:
        errors.required(path, "either name or signerName must be specified")
    if not bundle.get("path"):
        errors.required(f"{path}.path")
    check_local(errors, f"{path}.path", bundle.get("path") or "")


def _certificate(errors: ErrorList, certificate: Plain, path: str) -> None:
    signer, seconds = certificate.get("signerName") or "", certificate.get("maxExpirationSeconds")
    check_signer(errors, f"{path}.signerName", signer)
    if certificate.get("keyType") not in _KEYS:
        errors.not_supported(f"{path}.keyType", certificate.get("keyType") or "", _KEYS)
    if seconds is not None:
        most, here = _MAX_OWN_CERTIFICATE if is_own_signer(signer) else _MAX_CERTIFICATE, f"{path}.maxExpirationSeconds"
        if seconds < _MIN_CERTIFICATE:
            errors.invalid(here, seconds, f"if provided, maxExpirationSeconds must be >= {_MIN_CERTIFICATE}")
        if seconds > most:
            errors.invalid(here, seconds, f"if provided, maxExpirationSeconds must be <= {most}")
    members = [f"{name}Path" for name in ("credentialBundle", "key", "certificateChain")]
    for member in members:
        if certificate.get(member):
            check_local(errors, f"{path}.{member}", certificate[member])
    if not any(certificate.get(member) for member in members):
        errors.required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
