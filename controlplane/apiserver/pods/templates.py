"""The rules of pod templates.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePodTemplateSpec).
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.annotations import check_annotations
from controlplane.apiserver.pods.spec_rules import check_pod_spec
from controlplane.apiserver.rules.label_rules import check_annotation_keys, check_labels
from resourceapi.objects import ErrorList


def check_pod_template(errors: ErrorList, template: Plain, path: str) -> None:
    """Check a template with its defaults."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    check_labels(errors, f"{path}.labels", metadata.get("labels"))
    check_annotation_keys(errors, f"{path}.annotations", metadata.get("annotations"))
    check_annotations(errors, template, f"{path}.annotations")
    check_pod_spec(errors, spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        errors.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
