"""Compiles a checked tree to closures.

Values that do not depend on the input are computed here: constant lists and maps, conversions of constants, regular
expressions, membership in constant lists. Upstream does the same and charges nothing for them at run time. So this is
part of the cost rules and of the errors: if such a conversion fails, the program cannot be built.
"""

from __future__ import annotations

from typing import Any

from resourceapi.cel import access, calls, cost, folds, messages
from resourceapi.cel.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, Struct
from resourceapi.cel.checker import Names
from resourceapi.cel.declarations import Implementation
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import Cancelled, Frame, Run, charged
from resourceapi.cel.library.regex import REGEX_FUNCTIONS, prepare
from resourceapi.cel.macros import ACCU
from resourceapi.cel.messages import MESSAGES
from resourceapi.cel.proof import unproven
from resourceapi.cel.types import DEVICE, Kind, unwrap_optional
from resourceapi.cel.values import Optional, TypeValue, Uint, display, to_key

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
# Functions that parse a text. A constant is parsed once, but charged for each call.
_READERS = frozenset(
    {"quantity", "isQuantity", "semver", "isSemver", "ip", "isIP", "cidr", "isCIDR", "url", "isURL", "format.named"}
)
_PRIMITIVES = (bool, float, int, str, Uint)


class ProgramError(Exception):
    """The expression is well typed but cannot be turned into a program; the message is upstream's."""


class Constant:
    """A node whose value is known at compile time."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Path:
    """An access path to which steps can still be added: its base, the cost of the base, and its steps.

    `units` is 0 for a conditional, which costs nothing even as the base of a path.
    """

    __slots__ = ("base", "device", "steps", "units", "unwraps")

    def __init__(self, base: Run, unwraps: bool, units: int = 1, device: bool = False) -> None:
        self.base = base
        self.unwraps = unwraps
        self.units = units
        self.device = device
        self.steps: list[access.Step] = []

    def closure(self, charged: bool = True) -> Run:
        """Return the path as a closure. A branch of a conditional is not `charged` for its base."""
        units = self.units if charged else 0
        if self.device and units and not any(s.optional or s.test or s.key is not None for s in self.steps):
            found = access.device_path([step.constant for step in self.steps])
            if found is not None:
                return found
        if self.steps and self.steps[-1].test:
            # A presence test is charged only for its steps: upstream subtracts one unit for the base, even if the base
            # was not charged.
            run = access.path(self.base, 0, self.steps, self.unwraps)
            return run if self.units or not charged else access.refunded(run)
        return access.path(self.base, units, self.steps, self.unwraps)


class Program:
    """A compiled expression: its closure and how many local variables it has."""

    __slots__ = ("run", "slots")

    def __init__(self, run: Run, slots: int) -> None:
        self.run = run
        self.slots = slots


def compile_tree(root: Node, names: Names) -> Program:
    """Compile a tree that was checked with these names. Raises ProgramError."""
    compiler = _Compiler(names, unproven(root, names.functions))
    run = _closure(compiler.plan(root))
    return Program(run, compiler.slots)


def _no_optional_entry(key: Any, value: Any) -> CelEvalError:
    return CelEvalError(f"cannot initialize optional entry '{display(key)}' from non-optional value {display(value)}")


def _closure(plan: Constant | Path | Run) -> Run:
    if isinstance(plan, Constant):
        value = plan.value
        return lambda _: value
    if isinstance(plan, Path):
        return plan.closure()
    return plan


class _Compiler:
    def __init__(self, names: Names, unproven_nodes: set[int]) -> None:
        self._names = names
        self._unproven = unproven_nodes
        self._scopes: list[dict[str, Run]] = []
        self.slots = 0

    def plan(self, node: Node) -> Constant | Path | Run:
        match node:
            case Literal():
                return Constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Struct():
                return self._struct(node)
            case Comprehension():
                return self._comprehension(node)
        raise ProgramError(f"unsupported expression at {node.position}")

    def _run(self, node: Node) -> Run:
        return _closure(self.plan(node))

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    # --- access paths

    def _ident(self, node: Ident) -> Constant | Path:
        if node.constant is not None:
            return Constant(node.constant)
        if node.type.kind is Kind.TYPE:
            return self._named_type(node.name)
        unwraps = self._may_be_optional(node)
        if not node.name.startswith("."):
            for scope in reversed(self._scopes):
                if node.name in scope:
                    return Path(scope[node.name], unwraps)
        name = node.name.removeprefix(".")
        is_device = node.type == DEVICE
        return Path(access.device if is_device else access.variable(name), unwraps, device=is_device)

    def _named_type(self, name: str) -> Constant:
        """Return the type with this name: upstream treats a variable of type `type` as the name of a type."""
        if name not in self._names.types or name in MESSAGES:
            raise ProgramError(f"reference to undefined type: {name}")
        return Constant(TypeValue(name))

    def _path(self, node: Node) -> Path:
        plan = self.plan(node)
        if isinstance(plan, Path):
            if plan.steps and plan.steps[-1].test:
                return Path(plan.closure(), unwraps=False)
            return plan
        return Path(_closure(plan), self._may_be_optional(node))

    def _select(self, node: Select) -> Constant | Path:
        whole = node.operand
        if isinstance(whole, Ident) and "." in whole.name.removeprefix(".") and not node.test_only:
            return self._ident(whole)  # the checker resolved the dotted name to one type or variable
        path = self._path(node.operand)
        path.steps.append(access.Step(node.field, test=node.test_only))
        return path

    def _may_be_optional(self, node: Node) -> bool:
        return id(node) in self._unproven or unwrap_optional(node.type) is not None

    def _index(self, node: Call, optional: bool) -> Path:
        path = self._path(node.args[0])
        key = self.plan(node.args[1])
        if isinstance(key, Constant):
            try:
                access.check_key(key.value)
            except CelEvalError as error:
                raise ProgramError(str(error)) from None
            step = access.Step(key.value, optional=optional)
        elif isinstance(key, Path):
            step = access.Step(key=key.closure(charged=False), optional=optional)
        else:
            step = access.Step(key=key, optional=optional)
        path.steps.append(step)
        return path

    # --- calls

    def _call(self, node: Call) -> Constant | Path | Run:
        match node.function:
            case "_&&_" | "_||_" as operator:
                return calls.connective([self._run(term) for term in _terms(node)], decisive=operator == "_||_")
            case "_?_:_":
                return self._conditional(node)
            case "_[_]":
                return self._index(node, optional=False)
            case "_[?_]" | "_?._":
                return self._index(node, optional=True)
            case "_==_" | "_!=_":
                return self._equality(node)
            case "or" | "orValue" if node.target is not None and len(node.args) == 1:
                return calls.or_optional(
                    self._run(node.target), self._run(node.args[0]), unwrap=node.function == "orValue"
                )
        plans = [self.plan(arg) for arg in _arguments(node)]
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if overload == "in_list" and isinstance(plans[1], Constant):
            found = self._membership(plans[0], plans[1].value)
            if found is not None:
                return found
        if overload == "in_map" and isinstance(plans[0], Constant) and type(plans[0].value) is str:
            return calls.key_in_map(plans[0].value, _closure(plans[1]))
        if overload == "in_map" and isinstance(node.args[1], MapExpr) and node.args[1].entries:
            return calls.call([_closure(plan) for plan in plans], calls.is_in_table, 1, late=False)
        return self._plain_call(node, plans, overload)

    def _plain_call(self, node: Call, plans: list[Constant | Path | Run], overload: str) -> Constant | Run:
        function = self._names.functions[node.function]
        proven = all(id(arg) not in self._unproven for arg in _arguments(node))
        run, late = calls.implementation(function, node.overloads, proven)
        if node.function in _CONVERSIONS and len(plans) == 1 and isinstance(plans[0], Constant):
            try:
                return Constant(run(plans[0].value))
            except CelEvalError as error:
                raise ProgramError(str(error)) from None
        if node.function in REGEX_FUNCTIONS and len(plans) >= 2:
            pattern = plans[1]
            if isinstance(pattern, Constant) and type(pattern.value) is str:
                try:
                    run, late = prepare(node.function, pattern.value), True
                except CelEvalError as error:
                    raise ProgramError(str(error)) from None
        charge = cost.call_cost(node.function, overload)
        if node.function in _READERS and all(isinstance(plan, Constant) for plan in plans):
            run = _remembered(run, [plan.value for plan in plans if isinstance(plan, Constant)])
        if len(plans) == 2 and not late and type(charge) is int and isinstance(plans[1], Constant):
            constant = plans[1].value
            if type(constant) is int and charge == 1 and node.function in ("_<_", "_<=_", "_>_", "_>=_"):
                return calls.relation_with_int(node.function, _closure(plans[0]), constant, run)
            return calls.call_with_constant(_closure(plans[0]), constant, run, charge)
        return calls.call([_closure(plan) for plan in plans], run, charge, late)

    def _membership(self, value: Constant | Path | Run, elements: list[Any]) -> Constant | Run | None:
        if not elements:
            return Constant(False)
        if any(type(element) not in _PRIMITIVES for element in elements):
            return None
        return calls.membership(_closure(value), elements)

    def _equality(self, node: Call) -> Run:
        left, right = self.plan(node.args[0]), self.plan(node.args[1])
        unequal = node.function == "_!=_"
        if isinstance(right, Constant):
            return calls.equality_with_constant(_closure(left), right.value, unequal)
        return calls.equality(_closure(left), _closure(right), unequal)

    def _conditional(self, node: Call) -> Path:
        condition = self._run(node.args[0])
        branches: list[Run] = []
        for branch in node.args[1:]:
            plan = self.plan(branch)
            branches.append(plan.closure(charged=False) if isinstance(plan, Path) else _closure(plan))
        return Path(calls.conditional(condition, *branches), self._may_be_optional(node), units=0)

    # --- containers

    def _list(self, node: ListExpr) -> Constant | Run:
        plans = [self.plan(element) for element in node.elements]
        runs = [_closure(plan) for plan in plans]
        optionals = node.optionals

        def build(frame: Frame) -> Any:
            if not optionals:
                return [run(frame) for run in runs]
            values: list[Any] = []
            for index, run in enumerate(runs):
                value = run(frame)
                if index in optionals:
                    if type(value) is not Optional:
                        raise CelEvalError(
                            f"cannot initialize optional list element from non-optional value {display(value)}"
                        )
                    if not value.present:
                        continue
                    value = value.value
                values.append(value)
            return values

        return self._folded(build, plans, cost.LIST)

    def _map(self, node: MapExpr) -> Constant | Run:
        plans = [self.plan(part) for entry in node.entries for part in (entry.key, entry.value)]
        runs = [
            (_closure(plans[2 * index]), _closure(plans[2 * index + 1]), entry.optional)
            for index, entry in enumerate(node.entries)
        ]

        def build(frame: Frame) -> Any:
            mapping: dict[Any, Any] = {}
            for key_run, value_run, optional in runs:
                key = key_run(frame)
                value = value_run(frame)
                if optional:
                    if type(value) is not Optional:
                        raise _no_optional_entry(key, value)
                    if not value.present:
                        mapping.pop(to_key(key), None)
                        continue
                    value = value.value
                mapping[to_key(key)] = value
            return mapping

        return self._folded(build, plans, cost.MAP)

    def _struct(self, node: Struct) -> Run:
        runs = [(field.name, self._run(field.value), field.optional) for field in node.fields]
        message = self._names.find_message(node.name)
        assert message is not None, "the checker found it"

        def build(frame: Frame) -> Any:
            values: dict[str, Any] = {}
            for name, run, optional in runs:
                value = run(frame)
                if optional:
                    if type(value) is not Optional:
                        raise _no_optional_entry(name, value)
                    values.pop(name, None)
                    if not value.present:
                        continue
                    value = value.value
                values.pop(name, None)
                values[name] = value
            return messages.build(frame, node.name, message, values)

        return lambda frame: charged(frame, build, cost.STRUCT)

    def _folded(self, build: Run, plans: list[Constant | Path | Run], units: int) -> Constant | Run:
        if not all(isinstance(plan, Constant) for plan in plans):
            return lambda frame: charged(frame, build, units)
        try:
            return Constant(build(Frame({}, 0, 2**63, None)))
        except CelEvalError:
            return build  # fails at run time each time, at no cost, like a constant
        except Cancelled as ended:
            raise ProgramError(str(ended.error)) from None

    # --- comprehensions

    def _comprehension(self, node: Comprehension) -> Run:
        if node.is_bind:
            slot = self._slot()
            init = self._run(node.init)
            if node.init.type.kind is Kind.TYPE:
                self._named_type(node.accu)
            self._scopes.append({node.accu: access.lazy_local(slot, init)})
            body = self._run(node.result)
            self._scopes.pop()
            return folds.bind(slot, body)
        range_ = self._run(node.range)
        init = _fresh(node.init)
        accu, first = self._slot(), self._slot()
        second = self._slot() if node.var2 else None
        slots = (first, second, accu)
        names = {node.var: access.local(first)}
        if second is not None:
            names[node.var2] = access.local(second)
        self._scopes.append({node.accu: access.local(accu)})
        self._scopes.append(names)
        exists = _quantified(node)
        if exists is not None:
            assert isinstance(node.step, Call)
            predicate = self._run(node.step.args[1])
            self._scopes.pop()
            self._scopes.pop()
            return folds.quantifier(range_, slots, predicate, exists)
        condition = None if isinstance(node.condition, Literal) else self._run(node.condition)
        step = self._step(node.step, accu)
        self._scopes.pop()
        result = self._run(node.result)
        self._scopes.pop()
        return folds.fold(range_, slots, init, condition, step, result)

    def _step(self, node: Node, accu: int) -> Run:
        """Return the closure of a loop's step, which builds a list or map in place."""
        if isinstance(node, Call) and node.function == "_?_:_":
            condition = self._run(node.args[0])
            otherwise = self.plan(node.args[2])
            assert isinstance(otherwise, Path)
            return calls.conditional(condition, self._step(node.args[1], accu), otherwise.closure(charged=False))
        if isinstance(node, Call) and _reads_accumulator(node):
            added = node.args[1]
            if node.function == "_+_" and isinstance(added, ListExpr) and len(added.elements) == 1:
                element = self.plan(added.elements[0])
                return folds.append(accu, _closure(element), 0 if isinstance(element, Constant) else cost.LIST)
            if node.function == "cel.@mapInsert" and len(node.args) == 3:
                return folds.insert(accu, self._run(added), self._run(node.args[2]))
            if node.function == "cel.@mapInsert":
                return folds.insert_entries(accu, self._run(added))
        return self._run(node)


def _remembered(run: Implementation, args: list[Any]) -> Implementation:
    """Return a function that returns the result for these arguments; if they fail, the function itself."""
    try:
        result = run(*args)
    except CelEvalError:
        return run
    return lambda *_: result


def _arguments(node: Call) -> list[Node]:
    return node.args if node.target is None else [node.target, *node.args]


def _terms(node: Call) -> list[Node]:
    """Return the operands of a chain of one logical operator, which the parser built as a balanced tree."""
    found: list[Node] = []
    pending: list[Node] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Call) and each.function == node.function:
            pending.extend(reversed(each.args))
        else:
            found.append(each)
    return found


def _quantified(node: Comprehension) -> bool | None:
    """Return True for exists, False for all, None for other loops."""
    if isinstance(node.step, Call) and node.step.function in ("_&&_", "_||_") and _reads_accumulator(node.step):
        return node.step.function == "_||_"
    return None


def _reads_accumulator(node: Call) -> bool:
    return node.target is None and isinstance(node.args[0], Ident) and node.args[0].name == ACCU


def _fresh(node: Node) -> Run:
    """Return the closure of an accumulator's initial value: a new container for each run of the loop."""
    if isinstance(node, ListExpr):
        return lambda _: []
    if isinstance(node, MapExpr):
        return lambda _: {}
    assert isinstance(node, Literal)
    value = node.value
    return lambda _: value
