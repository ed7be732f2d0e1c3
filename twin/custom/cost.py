"""What a rule may cost at most, in the units of the real server: its estimate for the largest value a schema allows.

A rule above the limit is refused with its definition, before any object is written. Sizes are ranges; of costs the
upper end alone is kept, as that is what is compared.

Source: cel-go ``checker/cost.go``; k8s.io/apiserver ``pkg/cel/library/cost.go``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from twin.custom.checked import CheckedExpression, Expr, Type
from twin.custom.declared import Declared

_CEILING = 2**64 - 1
_TRAVERSAL = 0.1
"""Of a text, per character."""
_REGEX = 0.25
"""Of a regular expression, per character of it."""
_LIST, _MAP, _STRUCT = 10, 30, 40
_SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
_ACCUMULATORS = frozenset(("__result__", "@result"))

Path = tuple[str, ...]


class Size(NamedTuple):
    """Characters, bytes, items or entries of a value: at least, at most."""

    least: int
    most: int

    def plus(self, other: Size) -> Size:
        return Size(_capped(self.least + other.least), _capped(self.most + other.most))

    def times(self, other: Size) -> Size:
        return Size(_capped(self.least * other.least), _capped(self.most * other.most))

    def union(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN = Size(0, _CEILING)


class _Local(NamedTuple):
    """A variable of a loop: where it comes from, and how large it is where that is known."""

    path: Path
    size: Size | None
    entries: Size | None


def _capped(value: int) -> int:
    return min(value, _CEILING)


def _part(size: int, factor: float) -> int:
    found = size * factor
    return _CEILING if found >= 2.0**64 else math.ceil(found)


def estimate(checked: CheckedExpression, root: Declared) -> int:
    """The most that an expression costs where ``self`` and ``oldSelf`` are of type ``root``."""
    return _Estimator(checked, root).cost(checked.expr)


class _Estimator:
    def __init__(self, checked: CheckedExpression, root: Declared) -> None:
        self._checked, self._root = checked, root
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Size] = {}
        self._locals: dict[str, list[_Local]] = {}
        self._costs: dict[str, Callable[[Expr], int]] = {
            "literal": lambda _expr: 0,
            "ident": self._ident,
            "select": self._select,
            "call": self._call,
            "list": self._list,
            "map": self._map,
            "struct": lambda expr: self._sum(expr.args) + _STRUCT,
            "comprehension": self._comprehension,
        }

    def cost(self, expr: Expr) -> int:
        return _capped(self._costs[expr.kind](expr))

    def _sum(self, exprs: tuple[Expr, ...]) -> int:
        return _capped(sum(self.cost(one) for one in exprs))

    # --- where a value comes from, and what it is --------------------------------------------------------------------

    def _path(self, expr: Expr) -> Path:
        if expr.kind == "ident" and self._locals.get(expr.name):
            return self._locals[expr.name][-1].path
        return self._paths.get(expr.id, ())

    def _declared(self, path: Path) -> Declared | None:
        """The declared type at a path, whose first part is a variable."""
        found: Declared | None = self._root
        for part in path[1:]:
            if found is None:
                return None
            if part in ("@items", "@values"):
                found = found.element
            elif part == "@keys":
                # the server reckons keys of a map as empty
                found = Declared("string", 2) if found.kind == "map" else None
            else:
                found = found.fields.get(part)
        return found

    def _kind(self, expr: Expr) -> str:
        found = self._checked.type_of(expr)
        if found.name == "dyn":
            path = self._path(expr)
            known = self._declared(path) if len(path) > 1 else None
            return known.kind if known is not None else "dyn"
        return "object" if found.is_object else found.name

    # --- how large it is ---------------------------------------------------------------------------------------------

    def _size(self, expr: Expr) -> Size:
        return self._known_size(expr) or UNKNOWN

    def _known_size(self, expr: Expr) -> Size | None:
        if expr.id in self._sizes:
            return self._sizes[expr.id]
        if expr.kind == "literal":
            count = len(expr.value) if isinstance(expr.value, str | bytes) else 1
            return Size(count, count)
        if expr.kind in ("list", "map"):
            count = len(expr.args) // (2 if expr.kind == "map" else 1)
            return Size(count, count)
        path = self._path(expr)
        found = self._declared(path) if path else None
        if found is not None:
            self._sizes[expr.id] = Size(0, found.most)
            return self._sizes[expr.id]
        if _is_scalar(self._checked.type_of(expr)):
            return Size(1, 1)
        if expr.kind == "ident" and self._locals.get(expr.name):
            return self._locals[expr.name][-1].size
        return None

    def _argument_size(self, expr: Expr) -> Size:
        """As functions see it: what an accumulator holds has no path."""
        if expr.id not in self._sizes and self._path(expr)[:1] and self._path(expr)[0] in _ACCUMULATORS:
            return UNKNOWN if not _is_scalar(self._checked.type_of(expr)) else Size(1, 1)
        return self._size(expr)

    def _entry_size(self, expr: Expr) -> Size | None:
        if expr.id in self._entries:
            return self._entries[expr.id]
        if expr.kind == "ident" and self._locals.get(expr.name):
            return self._locals[expr.name][-1].entries
        return None

    def _element_size(self, expr: Expr) -> Size | None:
        """Of the items of a list, where they are texts; None: it is no list of texts."""
        found = self._checked.type_of(expr)
        known = found.parameters[0].name if found.parameters else ""
        path = self._path(expr)
        declared = self._declared((*path, "@items")) if path else None
        if known == "dyn" and declared is not None:
            known = declared.kind
        if known not in ("string", "bytes"):
            return None
        return Size(0, declared.most) if declared is not None else UNKNOWN

    # --- what it costs -----------------------------------------------------------------------------------------------

    def _ident(self, expr: Expr) -> int:
        local = self._locals.get(expr.name)
        self._paths[expr.id] = local[-1].path if local else (expr.name,)
        return 1

    def _select(self, expr: Expr) -> int:
        assert expr.target is not None
        found = self.cost(expr.target)
        if expr.test_only:
            return found
        self._paths[expr.id] = (*self._path(expr.target), expr.name)
        return found + (1 if self._kind(expr.target) in ("map", "object") else 0)

    def _list(self, expr: Expr) -> int:
        found = self._sum(expr.args) + _LIST
        self._entries[expr.id] = _union([self._size(one) for one in expr.args])
        return found

    def _map(self, expr: Expr) -> int:
        found = self._sum(expr.args) + _MAP
        # entries are iterated by their keys
        self._entries[expr.id] = _union([self._size(one) for one in expr.args[::2]])
        return found

    def _comprehension(self, expr: Expr) -> int:
        loop = expr.loop
        assert loop is not None
        found = self.cost(loop.over) + self.cost(loop.start)
        bound = loop.over.kind == "list" and not loop.over.args and loop.condition.value is False
        if bound and loop.accumulator not in _ACCUMULATORS:
            self._push(loop.accumulator, self._path(loop.start), self._known_size(loop.start), loop.start)
            found += self.cost(loop.result)
            self._locals[loop.accumulator].pop()
            self._copy_sizes(loop.result, expr)
            return found
        self._push(loop.accumulator, self._path(loop.start), self._known_size(loop.start), loop.start)
        entries = self._entry_size(loop.over)
        where = "@keys" if self._kind(loop.over) == "map" or loop.over.kind == "map" else "@items"
        if self._kind(loop.over) not in ("map", "list") and loop.over.kind not in ("map", "list"):
            where = "@keys"
        self._locals.setdefault(loop.variable, []).append(_Local((*self._path(loop.over), where), entries, None))
        each = self.cost(loop.condition) + self.cost(loop.step)
        self._locals[loop.variable].pop()
        found += self.cost(loop.result)
        self._locals[loop.accumulator].pop()
        rounds = self._size(loop.over)
        if loop.start.kind == "literal":
            self._set_size(expr, self._known_size(loop.start))
        elif loop.start.kind in ("list", "map"):
            self._set_size(expr, rounds)
            inner = self._entry_size(loop.step)
            if inner is not None:
                self._entries[expr.id] = inner
        return found + _capped(rounds.most * _capped(each))

    def _push(self, name: str, path: Path, size: Size | None, expr: Expr) -> None:
        self._locals.setdefault(name, []).append(_Local(path, size, self._entry_size(expr)))

    def _copy_sizes(self, source: Expr, target: Expr) -> None:
        self._set_size(target, self._known_size(source))
        entries = self._entry_size(source)
        if entries is not None:
            self._entries[target.id] = entries

    def _set_size(self, expr: Expr, size: Size | None) -> None:
        if size is not None:
            self._sizes[expr.id] = size

    def _call(self, expr: Expr) -> int:
        if expr.name == "dyn":
            found = self.cost(expr.args[0]) + 1
            self._copy_sizes(expr.args[0], expr)
            return found
        costs = [self.cost(one) for one in expr.args]
        overloads = self._checked.overloads.get(expr.id, ())
        if not overloads:
            return 0
        found = self.cost(expr.target) if expr.target is not None else 0
        most, result = 0, None
        for overload in overloads:
            cost, size = self._function(expr, overload, costs)
            most = max(most, cost)
            if size is not None:
                result = size if result is None else result.union(size)
            if overload in ("index_list", "index_map"):
                result = self._entry_size(expr.args[0]) if overload == "index_list" else None
                part = "@items" if overload == "index_list" else "@values"
                self._paths[expr.id] = (*self._path(expr.args[0]), part)
            if result is None:
                result = self._known_size(expr)
        self._set_size(expr, result)
        return found + most

    def _function(self, expr: Expr, overload: str, costs: list[int]) -> tuple[int, Size | None]:
        """(cost of a call with its arguments, the size of what it gives)."""
        arguments = _capped(sum(costs))
        known = self._of_kubernetes(expr)
        if known is not None:
            return _capped(known[0] + arguments), known[1]
        args = expr.args
        match overload:
            case "logical_or" | "logical_and":
                return arguments, None
            case "conditional":
                size = self._argument_size(args[1]).union(self._argument_size(args[2]))
                left, right = self._entry_size(args[1]), self._entry_size(args[2])
                if left is not None and right is not None:
                    self._entries[expr.id] = left.union(right)
                return _capped(costs[0] + max(costs[1], costs[2])), size
            case "in_list":
                return _capped(self._argument_size(args[1]).most + arguments), None
            case "starts_with_string" | "ends_with_string":
                return _capped(_part(self._argument_size(args[0]).most, _TRAVERSAL) + arguments), None
            case "matches_string" if expr.target is not None:
                return _capped(self._regex(expr.target, args[0]) + arguments), None
            case "contains_string" if expr.target is not None:
                text, part = (_part(self._argument_size(one).most, _TRAVERSAL) for one in (expr.target, args[0]))
                return _capped(text * part + arguments), None
            case "string_to_bytes" | "bytes_to_string":
                size = self._argument_size(args[0])
                result = Size(size.least, _capped(size.most * 4)) if overload == "string_to_bytes" else size
                return _capped(_part(size.most, _TRAVERSAL) + arguments), result
            case "strings_quote":
                size = self._argument_size(args[0])
                result = Size(_capped(size.least + 2), _capped(size.most * 2 + 2))
                return _capped(_part(size.most, _TRAVERSAL) + arguments), result
            case "string_format" if expr.target is not None:
                return _capped(_part(self._argument_size(expr.target).most, _TRAVERSAL) + arguments), None
            case "add_string" | "add_bytes" | "add_list":
                size = self._argument_size(args[0]).plus(self._argument_size(args[1]))
                left, right = self._entry_size(args[0]), self._entry_size(args[1])
                if left is not None and right is not None:
                    self._entries[expr.id] = left.union(right)
                own = 1 if overload == "add_list" else _part(size.most, _TRAVERSAL)
                return _capped(own + arguments), size
        if overload in _COMPARISONS:
            shorter = min(self._argument_size(one).most for one in args)
            return _capped(_part(shorter, _TRAVERSAL) + arguments), None
        return _capped(1 + arguments), None

    def _regex(self, text: Expr, pattern: Expr) -> int:
        # one is added so that an empty text is not free
        searched = _part(_capped(self._argument_size(text).most + 1), _TRAVERSAL)
        return _capped(searched * _part(self._argument_size(pattern).most, _REGEX))

    def _of_kubernetes(self, expr: Expr) -> tuple[int, Size | None] | None:
        """What Kubernetes reckons itself: functions on texts, its own and the strings extension's."""
        target, args = expr.target, expr.args
        match expr.name:
            case "indexOf" | "lastIndexOf" if target is not None:
                return _part(self._argument_size(target).most, _TRAVERSAL), None
            case "lowerAscii" | "upperAscii" | "substring" | "trim" if target is not None:
                size = self._argument_size(target)
                return _part(size.most, _TRAVERSAL), size
            case "replace" if target is not None and len(args) >= 2:
                size = self._argument_size(target)
                return _part(size.most, 2 * _TRAVERSAL), _replaced(size, *map(self._argument_size, args[:2]))
            case "split" if target is not None:
                size = self._argument_size(target)
                limit = args[1].value if len(args) > 1 and isinstance(args[1].value, int) else size.most
                return _part(size.most, 2 * _TRAVERSAL), Size(0, limit % 2**64)
            case "join" if target is not None:
                return self._join(target, args)
        return None

    def _join(self, target: Expr, args: tuple[Expr, ...]) -> tuple[int, Size]:
        count = self._argument_size(target)
        element = self._element_size(target)
        size = count.times(element) if element is not None else Size(0, 0)
        if args:
            between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
            size = size.plus(self._argument_size(args[0]).times(between))
        return _part(size.most, _TRAVERSAL), size


_COMPARISONS = frozenset(
    (
        "less_string", "greater_string", "less_equals_string", "greater_equals_string",
        "less_bytes", "greater_bytes", "less_equals_bytes", "greater_equals_bytes", "equals", "not_equals",
    )
)  # fmt: skip


def _is_scalar(found: Type) -> bool:
    if found.name == "optional_type" and found.parameters:
        return _is_scalar(found.parameters[0])
    return found.name in _SCALARS


def _union(sizes: list[Size]) -> Size:
    return Size(min((one.least for one in sizes), default=0), max((one.most for one in sizes), default=0))


def _replaced(size: Size, old: Size, new: Size) -> Size:
    """Of a text whose ``old`` parts become ``new``: the most, with as many and as short old parts as may be."""
    if old.least == 0:
        # an empty part is found around every character
        count, kept = _capped(size.most + 1), size.most
    elif new.most <= old.least:
        count, kept = 0, size.most
    else:
        count, kept = math.ceil(size.most / old.least), 0
    if old.most == 0:
        least, least_kept = _capped(size.least + 1), size.least
    elif old.most <= new.least:
        least, least_kept = 0, size.least
    else:
        least, least_kept = math.ceil(size.least / old.most), 0
    return Size(_capped(_capped(least * new.least) + least_kept), _capped(_capped(count * new.most) + kept))
