"""Admission: the stored ValidatingAdmissionPolicies and their bindings, applied to writes.

Source: kubernetes.io "Validating Admission Policy"; the texts are kube-apiserver's.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from controlplane.apiserver.access.authorization import Attributes, Authorizer
from controlplane.apiserver.access.identity import User, account
from controlplane.apiserver.kinds import Kind, Plain, Registry
from controlplane.apiserver.labels import is_selected
from controlplane.apiserver.policies import Denial, Policy
from controlplane.apiserver.status import ApiError, forbidden
from controlplane.apiserver.store import Store
from resourceapi.cel import CelError
from resourceapi.cel.library import authorizer as cel
from resourceapi.cel.library.authorizer import Question
from resourceapi.objects.strict import as_plain_dicts

GROUP = "admissionregistration.k8s.io"
POLICIES = f"validatingadmissionpolicies.{GROUP}"
BINDINGS = f"validatingadmissionpolicybindings.{GROUP}"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class Write(NamedTuple):
    """A write, as policies see it. Objects are in the stored version; None if there is none."""

    operation: str  # CREATE, UPDATE or DELETE
    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str
    user: User
    object: Plain | None
    old: Plain | None
    is_dry_run: bool
    is_sent: bool = False
    """Whether the object is an Eviction or a Binding, as it was sent, with its own kind."""
    sent_to: str = ""
    """The resource to which it was sent, if that is not the kind's."""

    @property
    def resource(self) -> str:
        """The resource of the request."""
        return self.sent_to or self.kind.plural


class Admission:
    """Applies the policies that are stored now to writes. Compiled policies are kept until they change.

    Several threads can check writes at once.
    """

    def __init__(self, store: Store, registry: Registry, authorizer: Authorizer) -> None:
        """`authorizer` answers the authorization checks in expressions."""
        self._store, self._registry, self._authorizer = store, registry, authorizer
        self._compiled: dict[str, tuple[str, Policy | CelError]] = {}

    def may_match_policy(self, kind: Kind) -> bool:
        """Return whether a policy might apply to writes of this kind, which can take seconds."""
        return kind.group != GROUP and any(True for _ in self._store.objects(BINDINGS))

    def check(self, write: Write) -> tuple[str, ...]:
        """Return the warnings for the client. Raises ApiError if a policy denies the write."""
        policies = list(self._store.objects(POLICIES))
        if not policies or write.kind.group == GROUP:
            return ()
        names = {each["metadata"]["name"] for each in policies}
        for gone in self._compiled.keys() - names:
            self._compiled.pop(gone, None)  # another thread can have removed it already
        inputs = functools.cache(functools.partial(self._inputs, write))  # the same for all policies of a version
        warnings: list[str] = []
        refused: tuple[str, Denial] | None = None
        for policy in sorted(policies, key=lambda each: str(each["metadata"]["name"])):
            for binding, denial in self._evaluate(policy, write, inputs):
                name, by = policy["metadata"]["name"], binding["metadata"]["name"]
                actions = (binding.get("spec") or {}).get("validationActions") or ()
                if "Warn" in actions:
                    about = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{by}'"
                    warnings.append(f"{about}: {denial.message}")
                if "Deny" in actions and refused is None:
                    about = f"ValidatingAdmissionPolicy '{name}' with binding '{by}' denied request"
                    refused = (f"{about}: {denial.message}", denial)
        if refused is not None:
            raise _refusal(write, *refused)
        return tuple(warnings)

    def _evaluate(self, policy: Plain, write: Write, inputs: Callable[[str], Plain]) -> Iterator[tuple[Plain, Denial]]:
        spec = policy.get("spec") or {}
        version = self._matched_version(spec.get("matchConstraints") or {}, write)
        if version is None:
            return
        for binding in sorted(self._store.objects(BINDINGS), key=lambda each: str(each["metadata"]["name"])):
            bound = binding.get("spec") or {}
            if bound.get("policyName") != policy["metadata"]["name"]:
                continue
            resources = bound.get("matchResources")
            if resources and self._matched_version(resources, write, is_binding=True) is None:
                continue
            compiled = self._policy(policy)
            if isinstance(compiled, CelError):
                if spec.get("failurePolicy") != "Ignore":
                    yield binding, Denial(str(compiled))
                continue
            for params in self._params(spec.get("paramKind"), bound.get("paramRef"), write.namespace):
                if isinstance(params, Denial):
                    if compiled.fails_closed:
                        yield binding, params
                    continue
                variables = inputs(version) if params is None else inputs(version) | {"params": params}
                for denial in compiled.denials(variables):
                    yield binding, denial

    def _policy(self, policy: Plain) -> Policy | CelError:
        name, version = policy["metadata"]["name"], policy["metadata"]["resourceVersion"]
        known = self._compiled.get(name)
        if known is None or known[0] != version:
            made: Policy | CelError
            try:
                made = Policy(policy.get("spec") or {})
            except CelError as error:  # a policy from an older data file
                made = error
            known = self._compiled[name] = (version, made)
        return known[1]

    def _matched_version(self, wanted: Plain, write: Write, *, is_binding: bool = False) -> str | None:
        """The version in which a policy matches the object; None if it does not match the write."""
        if not self._selects(wanted, write):
            return None
        for rule in wanted.get("excludeResourceRules") or ():
            if _version_of(rule, write, is_exact=wanted.get("matchPolicy") == "Exact") is not None:
                return None
        rules = wanted.get("resourceRules")
        if not rules and is_binding:
            return write.version
        found = [_version_of(rule, write, is_exact=wanted.get("matchPolicy") == "Exact") for rule in rules or ()]
        versions = [version for version in found if version is not None]
        return write.version if write.version in versions else next(iter(versions), None)

    def _selects(self, wanted: Plain, write: Write) -> bool:
        objects = [each for each in (write.object, write.old) if each is not None]
        selector = wanted.get("objectSelector")
        if selector and not any(is_selected(selector, each["metadata"].get("labels")) for each in objects):
            return False
        selector = wanted.get("namespaceSelector")
        if not selector:
            return True
        if write.kind.id == "namespaces":
            return any(is_selected(selector, each["metadata"].get("labels")) for each in objects)
        namespace = self._store.get("namespaces", ("", write.namespace)) if write.namespace else None
        return namespace is None or is_selected(selector, namespace["metadata"].get("labels"))

    def _params(self, kind: Any, reference: Any, namespace: str) -> Iterator[Any]:
        """The parameters of a binding, one by one; a Denial if they are missing."""
        if not kind or not reference:
            yield None
            return
        found = self._registry.by_kind(str(kind.get("apiVersion")), str(kind.get("kind")))
        if found is None:
            yield Denial(f"failed to configure binding: no matches for kind {kind.get('kind')}")
            return
        where = str(reference.get("namespace") or namespace) if found.namespaced else ""
        named, selector = reference.get("name"), reference.get("selector")
        objects = [
            obj
            for obj in self._store.objects(found.table)
            if obj["metadata"].get("namespace", "") == where
            and (
                obj["metadata"]["name"] == named
                if named
                else is_selected(selector or {}, obj["metadata"].get("labels"))
            )
        ]
        version = str(kind.get("apiVersion")).rpartition("/")[2]
        yield from (found.rules.encode(obj, version) for obj in objects)
        if not objects and reference.get("parameterNotFoundAction") == "Deny":
            text = "no params found for policy binding with `Deny` parameterNotFoundAction"
            yield Denial(f"failed to configure binding: {text}")

    def _inputs(self, write: Write, version: str) -> Plain:
        """The variables of expressions for a write, without parameters, with objects in this version."""
        kind = write.kind
        seen, old = (
            as_plain_dicts(obj if write.is_sent else kind.rules.encode(obj, version)) if obj is not None else None
            for obj in (write.object, write.old)
        )
        namespace = self._store.get("namespaces", ("", write.namespace)) if write.namespace else None
        inputs = {"object": seen, "oldObject": old, "request": _request(write, version), "namespaceObject": namespace}
        return inputs | _authorizers(write, self._authorizer)


def _authorizers(write: Write, authorizer: Authorizer) -> Plain:
    """The variables with which expressions check whether the client or a service account can do something."""

    def decide(question: Question) -> cel.Decision:
        user = write.user
        if question.account is not None:
            user = account(*question.account, "", {})
        wanted = Attributes(**{name: getattr(question, name) for name in Attributes._fields})
        found = authorizer.decide(user, wanted)
        return cel.Decision(found.is_allowed, found.reason)

    kind = write.kind
    here = Question(None, "", kind.group, write.resource, write.subresource, write.namespace, write.name)
    return {"authorizer": cel.Authorizer(decide), "authorizer.requestResource": cel.ResourceCheck(decide, here)}


def _request(write: Write, version: str) -> Plain:
    """The variable `request` of expressions. Empty members that upstream's type leaves out are missing."""
    kind = write.kind

    def named(word: str, value: str, which: str) -> Plain:
        return {"group": kind.group, "version": which, word: value}

    type_, type_sent = named("kind", kind.kind, version), named("kind", kind.kind, write.version)
    if write.is_sent and write.object is not None:
        group, _, which = write.object["apiVersion"].rpartition("/")
        type_ = type_sent = {"group": group, "version": which, "kind": write.object["kind"]}

    user = write.user
    info: Plain = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in user.extra.items()}
    request: Plain = {
        "kind": type_,
        "resource": named("resource", write.resource, version),
        "subResource": write.subresource,
        "requestKind": type_sent,
        "requestResource": named("resource", write.resource, write.version),
        "requestSubResource": write.subresource,
        "name": write.name,
        "namespace": write.namespace,
        "operation": write.operation,
        "userInfo": {name: item for name, item in info.items() if item},
        "options": {
            "kind": f"{write.operation.capitalize()}Options",
            "apiVersion": "meta.k8s.io/v1",
            **({"dryRun": ["All"]} if write.is_dry_run else {}),
        },
    }
    return {name: item for name, item in request.items() if item} | {"dryRun": write.is_dry_run}


def _version_of(rule: Plain, write: Write, *, is_exact: bool) -> str | None:
    """The version in which a rule matches the write. Unless the rule is exact, another served version matches too."""
    kind = write.kind
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != kind.namespaced:
        return None
    if not _contains(rule, "apiGroups", kind.group) or not _contains(rule, "operations", write.operation):
        return None
    if rule.get("resourceNames") and write.name not in rule["resourceNames"]:
        return None
    meant = (f"{write.resource}/{write.subresource}", f"{write.resource}/*", f"*/{write.subresource}", "*/*")
    if not write.subresource:
        meant = (write.resource, f"{write.resource}/*", "*", "*/*")
    if not any(each in meant for each in rule.get("resources") or ()):
        return None
    if _contains(rule, "apiVersions", write.version):
        return write.version
    served = [each.name for each in kind.versions if each.name in (rule.get("apiVersions") or ())]
    return None if is_exact or not served else served[0]


def _contains(rule: Plain, member: str, value: str) -> bool:
    found = rule.get(member) or ()
    return "*" in found or value in found


def _refusal(write: Write, message: str, denial: Denial) -> ApiError:
    """A refusal with the policy's reason and, as upstream, the text of a Forbidden error."""
    error = forbidden(write.kind.group, write.resource, write.name or "Unknown", message)
    code = _CODES.get(denial.reason, 422)
    body = error.body | {"reason": denial.reason, "code": code}
    body["details"] = body["details"] | {"causes": [{"message": message}]}
    error.code, error.body = code, body
    return error
