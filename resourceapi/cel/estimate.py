"""The estimate of an expression's cost before it runs: the range between its best and its worst case.

It uses sizes: exact ones of constants, declared bounds of inputs, and rules for results. Source: cel-go's cost checker
and Kubernetes' CostEstimator.EstimateCallCost, which this must equal, because API validation refuses by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from resourceapi.cel.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, Struct
from resourceapi.cel.call_estimates import Operand, estimate_call
from resourceapi.cel.ranges import UNKNOWN, UNLIMITED, ZERO, Range, add, fixed, scale_range, times
from resourceapi.cel.types import Kind, Type, unwrap_optional
from resourceapi.cel.values import Uint

__all__ = ["UNLIMITED", "Bounds", "estimate"]

_ONE = fixed(1)
_LIST, _MAP, _STRUCT = fixed(10), fixed(30), fixed(40)
_SCALARS = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})


class Bounds:
    """The largest size of an input, and the bounds of its contents."""

    __slots__ = ("element", "fields", "is_attribute", "key", "size")

    def __init__(
        self,
        size: int,
        fields: Mapping[str, Bounds] | None = None,
        key: Bounds | None = None,
        element: Bounds | None = None,
        is_attribute: bool = False,
    ) -> None:
        self.size = size
        self.fields = fields or {}
        self.key = key
        self.element = element
        self.is_attribute = is_attribute

    def at(self, path: Iterable[str]) -> Range | None:
        """Return the possible sizes at a path below these bounds; None if nothing is declared."""
        here: Bounds | None = self
        for name in path:
            assert here is not None
            if name in ("@items", "@values"):
                here = here.element
            elif name == "@keys":
                here = here.key
            elif name in here.fields:
                here = here.fields[name]
            else:
                # An attribute that is selected by its name has the bounds of any element.
                here = here.element if here.element is not None and here.element.is_attribute else None
            if here is None:
                return None
        return None if here is self or here is None else Range(0, here.size)


class Entries(NamedTuple):
    """Sizes of the keys and values of a container."""

    kind: Kind
    key: Range
    value: Range


class _Path:
    """The names from a variable to a value.

    Upstream's paths are Go slices that can share an array: a name appended to one path can overwrite the last name of
    another. As a result, in a loop with key and value variables over an indexed map, the keys get the size of the
    values. This class reproduces that.
    """

    __slots__ = ("_array", "_length")

    def __init__(self, array: list[str], length: int) -> None:
        self._array = array
        self._length = length

    def __iter__(self) -> Iterator[str]:
        return islice(self._array, self._length)

    def __bool__(self) -> bool:
        return self._length > 0

    def to(self, name: str) -> _Path:
        """Return the path extended by one name."""
        array, length = self._array, self._length
        if length == len(array):
            array = array + [""] * max(length, 1)
        array[length] = name
        return _Path(array, length + 1)


_NO_PATH = _Path([], 0)


class _Local(NamedTuple):
    path: _Path
    size: Range | None
    entries: Entries | None


def estimate(root: Node, bounds: Bounds) -> Range:
    """Return the range of the cost of a checked expression."""
    return _Estimator(bounds).cost(root)


class _Estimator:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, Entries] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Range:
        """Return the cost of a node; records sizes and paths of the nodes below."""
        match node:
            case Literal():
                return ZERO
            case Ident():
                local = self._local(node.name)
                self._paths[id(node)] = local.path if local is not None else _NO_PATH.to(node.name)
                return _ONE
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
                return self._bind(node) if node.is_bind else self._fold(node)
            case _:
                return ZERO

    # --- sizes and paths

    def _local(self, name: str) -> _Local | None:
        found = self._locals.get(name)
        return found[-1] if found else None

    def _path(self, node: Node) -> _Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(id(node), _NO_PATH)

    def size(self, node: Node) -> Range | None:
        """Return the size of a node's value; None if it is unknown."""
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        exact = _exact_size(node)
        if exact is not None:
            return exact
        path = self._path(node)
        if path:
            declared = self._bounds.at(path)
            if declared is not None:
                self._sizes[id(node)] = declared
                return declared
        if _is_scalar(node.type):
            return _ONE
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.size
        return None

    def _size(self, node: Node) -> Range:
        found = self.size(node)
        return UNKNOWN if found is None else found

    def entries(self, node: Node) -> Entries | None:
        """Return the sizes of the keys and values that a node's value contains; None if they are unknown."""
        known = self._entries.get(id(node))
        if known is not None:
            return known
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.entries
        return None

    def element_size(self, path: _Path) -> Range:
        """Return the size of the elements of a list at a path."""
        declared = self._bounds.at((*path, "@items")) if path else None
        return UNKNOWN if declared is None else declared

    # --- nodes

    def _select(self, node: Select) -> Range:
        if isinstance(node.operand, Ident) and node.operand.type.kind is Kind.TYPE and not node.test_only:
            return _ONE  # the name of a type
        operand = self.cost(node.operand)
        if node.test_only:
            return operand
        self._paths[id(node)] = self._path(node.operand).to(node.field)
        if node.operand.type.kind in (Kind.MAP, Kind.STRUCT, Kind.PARAM):
            return add(operand, _ONE)
        return operand

    def _list(self, node: ListExpr) -> Range:
        total = _LIST
        item = Range(UNLIMITED, 0) if node.elements else ZERO
        for element in node.elements:
            total = add(total, self.cost(element))
            item = item.union(self._size(element))
        self._entries[id(node)] = Entries(Kind.LIST, _ONE, item)
        return total

    def _map(self, node: MapExpr) -> Range:
        total = _MAP
        key = value = Range(UNLIMITED, 0) if node.entries else ZERO
        for entry in node.entries:
            total = add(add(total, self.cost(entry.key)), self.cost(entry.value))
            key = key.union(self._size(entry.key))
            value = value.union(self._size(entry.value))
        self._entries[id(node)] = Entries(Kind.MAP, key, value)
        return total

    def _struct(self, node: Struct) -> Range:
        total = _STRUCT
        for field in node.fields:
            total = add(total, self.cost(field.value))
        return total

    def _call(self, node: Call) -> Range:
        if node.function == "dyn":
            inner = node.args[0]
            argument = self.cost(inner)
            self._copy_sizes(node, inner)
            return add(_ONE, argument)
        costs = [self.cost(arg) for arg in node.args]
        operands = [self._operand(arg) for arg in node.args]
        if not node.overloads:
            return ZERO
        total = ZERO
        target: Operand | None = None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._operand(node.target)
        worst = Range(UNLIMITED, 0)
        result: Range | None = None
        for overload in node.overloads:
            found, size = self._overload(node, overload, target, operands, costs)
            worst = worst.union(found)
            if size is not None:
                result = size if result is None else result.union(size)
            if overload in ("index_list", "index_map") and node.args:
                entries = self.entries(node.args[0])
                result = None if entries is None else entries.value
                step = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = self._path(node.args[0]).to(step)
            if result is None:
                result = self.size(node)
        if result is not None:
            self._sizes[id(node)] = result
        return add(total, worst)

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        if next(iter(path), "") in ("@result", "__result__"):
            path = _NO_PATH
        size = self.size(node)
        elements = self.element_size(path) if node.type.params else None
        return Operand(node, size, elements)

    def _overload(
        self, node: Call, overload: str, target: Operand | None, args: list[Operand], costs: list[Range]
    ) -> tuple[Range, Range | None]:
        spent = ZERO
        for each in costs:
            spent = add(spent, each)
        found = estimate_call(node.function, overload, target, args)
        if found is not None:
            return add(found.cost, spent), found.size
        if overload in ("logical_and", "logical_or"):
            return Range(costs[0].minimum, add(costs[0], costs[1]).maximum), None
        if overload == "conditional":
            truthy, falsy = (self.entries(arg.node) for arg in args[1:])
            if truthy is not None and falsy is not None:
                self._entries[id(node)] = _joined(truthy, falsy)
            chosen = costs[1].union(costs[2])
            return add(costs[0], chosen), args[1].range.union(args[2].range)
        if overload in ("add_string", "add_bytes", "add_list"):
            size = add(args[0].range, args[1].range)
            left, right = (self.entries(arg.node) for arg in args)
            if left is not None and right is not None:
                self._entries[id(node)] = _joined(left, right)
            charged = _ONE if overload == "add_list" else scale_range(size, 0.1)
            return add(charged, spent), size
        return add(_ONE, spent), None

    def _copy_sizes(self, to: Node, source: Node) -> None:
        size, entries = self.size(source), self.entries(source)
        if size is not None:
            self._sizes[id(to)] = size
        if entries is not None:
            self._entries[id(to)] = entries

    # --- comprehensions

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _push_variables(self, node: Comprehension) -> None:
        entries = self.entries(node.range)
        kind = node.range.type.kind if entries is None else entries.kind
        is_list = kind is Kind.LIST
        path = self._path(node.range)
        key_size = None if entries is None else entries.key
        value_size = None if entries is None else entries.value
        key = ("@indices" if is_list else "@keys", key_size)
        value = ("@items" if is_list else "@values", value_size)
        names = {node.var: key, node.var2: value} if node.var2 else {node.var: value if is_list else key}
        for variable, (name, size) in names.items():
            self._push(variable, _Local(path.to(name), size, None))

    def _push_accumulator(self, node: Comprehension) -> None:
        init = node.init
        self._push(node.accu, _Local(self._path(init), self.size(init), self.entries(init)))

    def _fold(self, node: Comprehension) -> Range:
        total = add(self.cost(node.range), self.cost(node.init))
        self._push_accumulator(node)
        self._push_variables(node)
        turn = add(self.cost(node.condition), self.cost(node.step))
        self._pop(node.var)
        if node.var2:
            self._pop(node.var2)
        total = add(total, self.cost(node.result))
        self._pop(node.accu)
        count = self._size(node.range)
        total = add(total, times(count, turn))
        if isinstance(node.init, Literal):
            size = self.size(node.init)
            if size is not None:
                self._sizes[id(node)] = size
        elif isinstance(node.init, ListExpr | MapExpr):
            self._sizes[id(node)] = count
            step = self.entries(node.step)
            if step is not None:
                self._entries[id(node)] = step
        return total

    def _bind(self, node: Comprehension) -> Range:
        total = add(self.cost(node.range), self.cost(node.init))
        self._push_accumulator(node)
        total = add(total, self.cost(node.result))
        self._pop(node.accu)
        self._copy_sizes(node, node.result)
        return total


def _joined(left: Entries, right: Entries) -> Entries:
    return Entries(left.kind, left.key.union(right.key), left.value.union(right.value))


def _exact_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        value = node.value
        if isinstance(value, str | bytes):
            return fixed(len(value))
        return _ONE if value is None or isinstance(value, bool | int | float | Uint) else None
    if isinstance(node, ListExpr):
        return fixed(len(node.elements))
    if isinstance(node, MapExpr):
        return fixed(len(node.entries))
    return None


def _is_scalar(type_: Type) -> bool:
    inner = unwrap_optional(type_)
    return _is_scalar(inner) if inner is not None else type_.kind in _SCALARS
