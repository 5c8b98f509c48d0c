"""A ValidatingAdmissionPolicy: its compiled expressions, and their results for one request.

Source: KEP-3488, kubernetes.io "Validating Admission Policy"; the texts are kube-apiserver's. Audit annotations are not
evaluated.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.kinds import Plain
from resourceapi.cel import CelCompileError, CelEvalError, Environment, Expression, compile_expression
from resourceapi.cel.environment import CURRENT, build_environment
from resourceapi.cel.library import patches
from resourceapi.cel.library.authorizer import AUTHORIZER, RESOURCE_CHECK
from resourceapi.cel.macros import BINDINGS
from resourceapi.cel.messages import MESSAGES
from resourceapi.cel.types import BOOL, DYN, STRING, Kind, Type, equivalent, list_of, map_of

MAX_MESSAGE = 5 * 1024
"""The most bytes of a message from a policy's message expression."""
MAX_BUDGET = 10_000_000
"""The most that all expressions of a policy together can cost for one request."""

_REQUEST = Type(Kind.STRUCT, "kubernetes.AdmissionRequest")
_USER = Type(Kind.STRUCT, "kubernetes.UserInfo")
_GVK = Type(Kind.STRUCT, "kubernetes.GroupVersionKind")
_GVR = Type(Kind.STRUCT, "kubernetes.GroupVersionResource")
_VARIABLES = Type(Kind.STRUCT, "kubernetes.variables")
_FIELDS: Mapping[str, Mapping[str, Type]] = {
    _GVK.name: {"group": STRING, "version": STRING, "kind": STRING},
    _GVR.name: {"group": STRING, "version": STRING, "resource": STRING},
    _USER.name: {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    _REQUEST.name: {
        "kind": _GVK,
        "resource": _GVR,
        "subResource": STRING,
        "requestKind": _GVK,
        "requestResource": _GVR,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
}


class Denial(NamedTuple):
    """Why a request is refused; `reason` is a reason of a Status."""

    message: str
    reason: str = "Invalid"


class _Validation(NamedTuple):
    source: str
    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


class _Variables(dict[str, Any]):
    """Variables of a policy by name. Each is computed when it is first read; its error is raised at each read."""

    def __init__(self, expressions: Mapping[str, Expression], evaluate: Callable[[Expression], Any]) -> None:
        super().__init__(dict.fromkeys(expressions))
        self._expressions, self._evaluate = expressions, evaluate
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            expression = self._expressions[name]
            try:
                self._known[name] = self._evaluate(expression)
            except CelEvalError as error:
                self._known[name] = error
        value = self._known[name]
        if isinstance(value, CelEvalError):
            raise value
        return value


class Policy:
    """A compiled policy. Raises CelError for expressions that do not compile."""

    def __init__(self, spec: Plain) -> None:
        self.fails_closed = spec.get("failurePolicy") != "Ignore"
        variables: dict[str, Type] = {}
        self._variables: dict[str, Expression] = {}
        plain = environment_of(variables, has_params=bool(spec.get("paramKind")), has_variables=True)
        for each in spec.get("variables") or ():
            expression = compile_expression(str(each.get("expression") or ""), plain)
            self._variables[str(each.get("name"))] = expression
            variables[str(each.get("name"))] = expression.type
            plain = environment_of(variables, has_params=bool(spec.get("paramKind")), has_variables=True)
        plain = environment_of(variables, has_params=bool(spec.get("paramKind")))
        without = environment_of({}, has_params=bool(spec.get("paramKind")))
        self._conditions = [
            (str(each.get("expression")), compiled_as(str(each.get("expression") or ""), without, BOOL))
            for each in spec.get("matchConditions") or ()
        ]
        message_environment = environment_of(variables, has_params=bool(spec.get("paramKind")), has_authorizer=False)
        self._validations = [_validation(each, plain, message_environment) for each in spec.get("validations") or ()]

    def denials(self, inputs: Plain) -> list[Denial]:
        """Return why a request is refused. `inputs` are the expressions' variables, such as `object` and `request`."""
        budget = MAX_BUDGET

        def evaluator(variables: dict[str, Any]) -> Callable[[Expression], Any]:
            def evaluate(expression: Expression) -> Any:
                nonlocal budget
                value, cost = expression.evaluate(variables)
                budget -= cost
                if budget < 0:
                    text = "validation failed due to running out of cost budget, no further validation rules"
                    raise CelEvalError(text)
                return value

            variables["variables"] = _Variables(self._variables, evaluate)
            return evaluate

        evaluate = evaluator({**inputs})
        # message expressions have no authorizer, nor do the variables that they read
        evaluate_message = evaluator(
            {name: value for name, value in inputs.items() if not name.startswith("authorizer")}
        )
        matches, failure = self._matches(evaluate)
        if not matches:
            return [Denial(failure)] if failure and self.fails_closed else []
        return list(self._evaluate(evaluate, evaluate_message))

    def _matches(self, evaluate: Callable[[Expression], Any]) -> tuple[bool, str]:
        """Whether all match conditions are true. A false one decides, even if others fail."""
        failures = []
        for source, expression in self._conditions:
            try:
                if evaluate(expression) is not True:
                    return False, ""
            except CelEvalError as error:
                failures.append(_error_text(source, error))
        return not failures, failures[0] if len(failures) < 2 and failures else "; ".join(failures)

    def _evaluate(
        self, evaluate: Callable[[Expression], Any], evaluate_message: Callable[[Expression], Any]
    ) -> Iterator[Denial]:
        for validation in self._validations:
            try:
                if evaluate(validation.expression) is True:
                    continue
            except CelEvalError as error:
                if self.fails_closed:
                    yield Denial(_error_text(validation.source, error))
                continue
            yield Denial(_message(validation, evaluate_message), validation.reason)


def environment_of(
    variables: Mapping[str, Type],
    *,
    has_params: bool,
    has_authorizer: bool = True,
    has_variables: bool = False,
    has_patches: bool = False,
) -> Environment:
    """Return the environment of a policy's expressions. `has_variables` declares `variables` even if it is empty.

    `has_patches`: expressions can write parts of objects and operations of JSON patches.
    """
    known = {"object": DYN, "oldObject": DYN, "request": _REQUEST, "namespaceObject": DYN}
    if variables or has_variables:
        known["variables"] = _VARIABLES
    if has_authorizer:
        known |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    if has_params:
        known["params"] = DYN
    fields: Mapping[str, Mapping[str, Type]] = {**_FIELDS, _VARIABLES.name: dict(variables)}
    return build_environment(
        CURRENT,
        [patches.functions()] if has_patches else (),
        more_macros=BINDINGS,
        variables=known,
        fields=patches.PatchFields(fields) if has_patches else fields,
        find_message=patches.find_message if has_patches else MESSAGES.get,
    )


def _validation(value: Plain, environment: Environment, message_environment: Environment) -> _Validation:
    source, message_expression = str(value.get("expression") or ""), value.get("messageExpression")
    return _Validation(
        source,
        compiled_as(source, environment, BOOL),
        str(value.get("message") or ""),
        compiled_as(str(message_expression), message_environment, STRING) if message_expression else None,
        str(value.get("reason") or "Invalid"),
    )


def compiled_as(source: str, environment: Environment, *wanted: Type) -> Expression:
    """Return a compiled expression of one of the types; of any type if there are none. Raises CelError."""
    expression = compile_expression(source, environment)
    if wanted and not any(equivalent(expression.type, each) for each in wanted):  # not even `dyn` is allowed
        names = " ".join(each.declared for each in wanted)
        words = names if len(wanted) == 1 else f"one of [{names}]"
        raise CelCompileError(f"must evaluate to {words} but got {expression.output_type}", "invalid")
    return expression


def _message(validation: _Validation, evaluate: Callable[[Expression], Any]) -> str:
    """The message of a failed validation: the expression's if it is one line of allowed length, else the fixed one."""
    message = ""
    if validation.message_expression is not None:
        try:
            value = evaluate(validation.message_expression)
            message = value.strip() if isinstance(value, str) else ""
        except CelEvalError:
            message = ""
        if "\n" in message or len(message.encode()) > MAX_MESSAGE:
            message = ""
    return message or validation.message.strip() or f"failed expression: {validation.source.strip()}"


def _error_text(source: str, error: CelEvalError) -> str:
    return f"expression '{source}' resulted in error: {error}"
