"""A compiled rule as a tree: what the compiler's serialized form (cel.expr.CheckedExpr) says, read without its classes.

Source: google/cel-spec ``proto/cel/expr`` (syntax.proto, checked.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Fields = dict[int, list[Any]]

_PRIMITIVES = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
_WELL_KNOWN = {1: "any", 2: "timestamp", 3: "duration"}


@dataclass(frozen=True, slots=True)
class Type:
    """A type that the compiler found: ``dyn``, ``int``, ``list`` of its first parameter, an object's name ..."""

    name: str
    parameters: tuple[Type, ...] = ()
    is_object: bool = False


DYN = Type("dyn")


@dataclass(frozen=True, slots=True)
class Expr:
    """A node. Which fields mean something depends on ``kind``."""

    id: int
    kind: str
    """literal, ident, select, call, list, map, struct or comprehension."""
    name: str = ""
    """Of an identifier, a field or a function."""
    value: Any = None
    """Of a literal: str, bytes, int, float, bool or None."""
    target: Expr | None = None
    """Of a method or a selection: what it is called on, or selected from."""
    args: tuple[Expr, ...] = ()
    """Of a call; the items of a list; keys and values of a map in turn; the values of a struct."""
    test_only: bool = False
    """Of a selection: ``has(...)``."""
    loop: Loop | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """Of a comprehension."""

    variable: str
    variable2: str
    over: Expr
    accumulator: str
    start: Expr
    condition: Expr
    step: Expr
    result: Expr


@dataclass(frozen=True, slots=True)
class CheckedExpression:
    """An expression, the types of its nodes by id, and the overloads of its calls by id."""

    expr: Expr
    types: dict[int, Type] = field(default_factory=dict)
    overloads: dict[int, tuple[str, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """What identifiers refer to."""

    def type_of(self, expr: Expr) -> Type:
        return self.types.get(expr.id, DYN)


def nodes(expr: Expr) -> Iterator[Expr]:
    """A node and all below it."""
    yield expr
    if expr.target is not None:
        yield from nodes(expr.target)
    for one in expr.args:
        yield from nodes(one)
    if expr.loop is not None:
        loop = expr.loop
        for one in (loop.over, loop.start, loop.condition, loop.step, loop.result):
            yield from nodes(one)


def read(serialized: bytes) -> CheckedExpression:
    """The tree of what ``Expression.serialize()`` gives, which is wrapped in a google.protobuf.Any."""
    message = _fields(_fields(serialized)[2][0])
    types, overloads, names = {}, {}, {}
    for entry in message.get(3, ()):
        pair = _fields(entry)
        types[pair.get(1, [0])[0]] = _type(pair.get(2, [b""])[0])
    for entry in message.get(2, ()):
        pair = _fields(entry)
        reference = _fields(pair.get(2, [b""])[0])
        key = pair.get(1, [0])[0]
        names[key] = _text(reference, 1)
        overloads[key] = tuple(one.decode() for one in reference.get(3, ()))
    return CheckedExpression(_expr(message[4][0]), types, overloads, names)


def _fields(data: bytes) -> Fields:
    found: Fields = {}
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        value: Any
        match tag & 7:
            case 0:
                value, at = _number(data, at)
            case 1:
                value, at = data[at : at + 8], at + 8
            case 2:
                size, at = _number(data, at)
                value, at = data[at : at + size], at + size
            case _:
                value, at = data[at : at + 4], at + 4
        found.setdefault(tag >> 3, []).append(value)
    return found


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(fields: Fields, number: int) -> str:
    return str(fields[number][0].decode()) if number in fields else ""


def _expr(data: bytes) -> Expr:
    fields = _fields(data)
    id_ = fields.get(2, [0])[0]
    for number, make in _MAKERS.items():
        if number in fields:
            return make(id_, _fields(fields[number][0]))
    return Expr(id_, "literal")


def _literal(id_: int, fields: Fields) -> Expr:
    value: Any = None
    if 2 in fields:
        value = bool(fields[2][0])
    elif 3 in fields:
        value = fields[3][0] - 2**64 if fields[3][0] >= 2**63 else fields[3][0]
    elif 4 in fields:
        value = fields[4][0]
    elif 5 in fields:
        value = struct.unpack("<d", fields[5][0])[0]
    elif 6 in fields:
        value = fields[6][0].decode()
    elif 7 in fields:
        value = fields[7][0]
    return Expr(id_, "literal", value=value)


def _select(id_: int, fields: Fields) -> Expr:
    return Expr(id_, "select", _text(fields, 2), target=_expr(fields[1][0]), test_only=bool(fields.get(3, [0])[0]))


def _call(id_: int, fields: Fields) -> Expr:
    target = _expr(fields[1][0]) if 1 in fields else None
    return Expr(id_, "call", _text(fields, 2), target=target, args=tuple(map(_expr, fields.get(3, ()))))


def _struct(id_: int, fields: Fields) -> Expr:
    name = _text(fields, 1)
    args: list[Expr] = []
    for entry in map(_fields, fields.get(2, ())):
        args += [_expr(entry[number][0]) for number in (3, 4) if number in entry]
    return Expr(id_, "struct" if name else "map", name, args=tuple(args))


def _comprehension(id_: int, fields: Fields) -> Expr:
    over, start, condition, step, result = (_expr(fields[number][0]) for number in (2, 4, 5, 6, 7))
    loop = Loop(_text(fields, 1), _text(fields, 8), over, _text(fields, 3), start, condition, step, result)
    return Expr(id_, "comprehension", loop=loop)


_MAKERS = {
    3: _literal,
    4: lambda id_, fields: Expr(id_, "ident", _text(fields, 1)),
    5: _select,
    6: _call,
    7: lambda id_, fields: Expr(id_, "list", args=tuple(map(_expr, fields.get(1, ())))),
    8: _struct,
    9: _comprehension,
}


def _type(data: bytes) -> Type:
    fields = _fields(data)
    for number, names in ((3, _PRIMITIVES), (4, _PRIMITIVES), (5, _WELL_KNOWN)):
        if number in fields:
            return Type(names.get(fields[number][0], "dyn"))
    if 2 in fields:
        return Type("null")
    if 6 in fields:
        inner = _fields(fields[6][0])
        return Type("list", (_type(inner.get(1, [b""])[0]),))
    if 7 in fields:
        inner = _fields(fields[7][0])
        return Type("map", (_type(inner.get(1, [b""])[0]), _type(inner.get(2, [b""])[0])))
    if 9 in fields:
        return Type(_text(fields, 9), is_object=True)
    if 14 in fields:
        inner = _fields(fields[14][0])
        return Type(_text(inner, 1), tuple(map(_type, inner.get(2, ()))))
    return DYN
