"""The rules of volume sources by kind: folders of the node, disks, shares, and files of objects.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateVolumeSource and the functions it calls).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.choices import check_choice, check_optional_choice
from controlplane.apiserver.rules.claim_rules import check_claim_template
from controlplane.apiserver.rules.paths import check_no_parent_steps, check_relative_path
from controlplane.apiserver.rules.projections import check_items, check_mode, check_projected, check_variables_as_files
from resourceapi.objects import ErrorList, Quantity, QuantityError
from resourceapi.objects.field_rules import add_invalid, dns_label, driver_name
from resourceapi.objects.names import dns_subdomain

_PULL = ["Always", "IfNotPresent", "Never"]
_PATHS = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]
_CACHING = ["None", "ReadOnly", "ReadWrite"]
_DISKS = ["Dedicated", "Managed", "Shared"]
_MANAGED = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_MAX_NUMBER = 255  # of partitions and logical units
_MAX_TENANT_LENGTH = 64
_PAIRS = "must be a host:port pair or multiple pairs separated by commas"
_IS_PAIR = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
_INITIATORS = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}"),
}
_RESERVED = (".kubernetes.io", ".k8s.io")
Rule = Callable[[ErrorList, Plain, str], None]


def _needs(*members: str, then: Rule | None = None) -> Rule:
    """A rule for a source with required members."""

    def check(errors: ErrorList, source: Plain, path: str) -> None:
        for member in members:
            if not source.get(member):
                errors.required(f"{path}.{member}")
        if then is not None:
            then(errors, source, path)

    return check


def _empty_dir(errors: ErrorList, source: Plain, path: str) -> None:
    if _is_negative(source.get("sizeLimit")):
        errors.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _is_negative(amount: Any) -> bool:
    try:
        return amount is not None and Quantity.parse(str(amount)) < Quantity.parse("0")
    except QuantityError:  # reported when the types are checked
        return False


def _host_path(errors: ErrorList, source: Plain, path: str) -> None:
    where, kind = source.get("path") or "", source.get("type") or ""
    if not where:
        errors.required(f"{path}.path")
        return
    check_no_parent_steps(errors, f"{path}.path", where)
    if kind not in _PATHS:
        errors.not_supported(f"{path}.type", kind, _PATHS)


def _git_repo(errors: ErrorList, source: Plain, path: str) -> None:
    check_relative_path(errors, f"{path}.directory", source.get("directory") or "")


def _partition(errors: ErrorList, source: Plain, path: str) -> None:
    number = source.get("partition") or 0
    if not 0 <= number <= _MAX_NUMBER:
        errors.invalid(f"{path}.partition", number, f"must be between 1 and {_MAX_NUMBER}, inclusive")


def _named_files(errors: ErrorList, source: Plain, path: str) -> None:
    """Check a ConfigMap or a Secret as files."""
    check_mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    check_items(errors, source, path)


def _nfs(errors: ErrorList, source: Plain, path: str) -> None:
    where = source.get("path") or ""
    if not where.startswith("/"):
        errors.invalid(f"{path}.path", where, "must be an absolute path")


def _iscsi(errors: ErrorList, source: Plain, path: str) -> None:
    name, initiator, unit = source.get("iqn") or "", source.get("initiatorName"), source.get("lun") or 0
    if not source.get("targetPortal"):
        errors.required(f"{path}.targetPortal")
    if not name:
        errors.required(f"{path}.iqn")
    else:
        _initiator(errors, name, f"{path}.iqn")
    if not 0 <= unit <= _MAX_NUMBER:
        errors.invalid(f"{path}.lun", unit, f"must be between 0 and {_MAX_NUMBER}, inclusive")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.required(f"{path}.secretRef")
    if initiator is not None:
        _initiator(errors, initiator, f"{path}.initiatorname")


def _initiator(errors: ErrorList, name: str, path: str) -> None:
    form = _INITIATORS.get(name[:3])
    if form is None:
        errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not form.fullmatch(name):
        errors.invalid(path, name, "must be valid format")


def _flocker(errors: ErrorList, source: Plain, path: str) -> None:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID")
    if not name and not uuid:
        errors.required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        errors.invalid(f"{path}.datasetName", name, "must not contain '/'")


def _secret_of(errors: ErrorList, source: Plain, path: str, *, member: str = "secretRef") -> None:
    secret = source.get(member)
    if secret is not None and not secret.get("name"):
        errors.required(f"{path}.{member}.name")


def _quobyte(errors: ErrorList, source: Plain, path: str) -> None:
    registry = source.get("registry") or ""
    if not registry:
        errors.required(f"{path}.registry", _PAIRS)
    elif len(source.get("tenant") or "") > _MAX_TENANT_LENGTH:
        errors.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not _IS_PAIR.fullmatch(pair):
                errors.invalid(f"{path}.registry", registry, _PAIRS)
    if not source.get("volume"):
        errors.required(f"{path}.volume")


def _downward(errors: ErrorList, source: Plain, path: str) -> None:
    check_mode(errors, f"{path}.defaultMode", source.get("defaultMode"))
    for each in source.get("items") or ():
        check_variables_as_files(errors, each, path)  # upstream's path is that of the list


def _fc(errors: ErrorList, source: Plain, path: str) -> None:
    names, ids, unit = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not names and not ids:
        errors.required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if names and ids:
        errors.invalid(f"{path}.targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously")
    if not names:
        return
    if unit is None:
        errors.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif not 0 <= unit <= _MAX_NUMBER:
        errors.invalid(f"{path}.lun", unit, f"must be between 0 and {_MAX_NUMBER}, inclusive")


def _flex(errors: ErrorList, source: Plain, path: str) -> None:
    for name in source.get("options") or {}:
        if f".{name.partition('/')[0].lower()}".endswith(_RESERVED):
            errors.invalid(f"{path}.options[{name}]", name, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(errors: ErrorList, source: Plain, path: str) -> None:
    where, kind = source.get("diskURI") or "", source.get("kind")
    check_optional_choice(errors, f"{path}.cachingMode", source.get("cachingMode"), _CACHING)
    check_optional_choice(errors, f"{path}.kind", kind, _DISKS)
    if kind == "Managed" and not where.startswith("/subscriptions/"):
        errors.not_supported(f"{path}.diskURI", where, [_MANAGED], is_named=False)
    if kind not in (None, "Managed") and not where.startswith("https://"):
        errors.not_supported(f"{path}.diskURI", where, [_BLOB], is_named=False)


def _storage_os(errors: ErrorList, source: Plain, path: str) -> None:
    for member in ("volumeName", "volumeNamespace"):
        if source.get(member):
            dns_label(errors, f"{path}.{member}", source[member])
        elif member == "volumeName":
            errors.required(f"{path}.{member}")
    _secret_of(errors, source, path)


def _csi(errors: ErrorList, source: Plain, path: str) -> None:
    driver_name(errors, f"{path}.driver", source.get("driver") or "")
    _secret_of(errors, source, path, member="nodePublishSecretRef")
    name = (source.get("nodePublishSecretRef") or {}).get("name") or ""
    if name:
        add_invalid(errors, f"{path}.name", name, dns_subdomain(name))


def _ephemeral(errors: ErrorList, source: Plain, path: str) -> None:
    template, here = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if template is None:
        errors.required(here)
    else:
        check_claim_template(errors, template, here)


def _image(errors: ErrorList, source: Plain, path: str) -> None:
    check_choice(errors, f"{path}.pullPolicy", source.get("pullPolicy"), _PULL)


RULES: Mapping[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _needs("repository", then=_git_repo),
    "gcePersistentDisk": _needs("pdName", then=_partition),
    "awsElasticBlockStore": _needs("volumeID", then=_partition),
    "secret": _needs("secretName", then=_named_files),
    "nfs": _needs("server", "path", then=_nfs),
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _needs("volumeID", then=_secret_of),
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward,
    "fc": _fc,
    "flexVolume": _needs("driver", then=_flex),
    "configMap": _needs("name", then=_named_files),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI", then=_azure_disk),
    "storageos": _storage_os,
    "projected": check_projected,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _needs("reference", then=_image),
}
"""Member of a volume -> rules of its source, in the order in which they are checked."""
