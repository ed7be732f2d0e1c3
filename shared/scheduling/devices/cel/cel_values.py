"""Quantities and versions as CEL values, with the functions that Kubernetes has for them and for lists.

The library knows no types of ours but protobuf messages, so both are one message made here: ``kind`` and ``key``,
which is equal where the values are. Overloads are told apart by what the evaluator knows (a message, a text, a list),
so a function that is given the other kind says so itself.

Source: k8s.io/apiserver ``pkg/cel/library`` (quantity.go, semverlib.go, lists.go); semver.org 2.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cmp_to_key, lru_cache
from itertools import pairwise
from typing import Any

from shared.model.devices import NANO, nanos_of

VALUE, DEVICE = "kubernetes.Value", "kubernetes.DRADevice"
QUANTITY, SEMVER = "quantity", "semver"

_NUMBER = r"(?:0|[1-9][0-9]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_INT64 = 2**63


@lru_cache(maxsize=1)
def descriptor_pool() -> Any:
    """Where the messages are declared: that of values, and a device as the compiler is to see it."""
    from google.protobuf import descriptor_pb2, struct_pb2
    from google.protobuf.descriptor_pool import DescriptorPool

    kinds, (package, _, name) = descriptor_pb2.FieldDescriptorProto, VALUE.partition(".")
    file = descriptor_pb2.FileDescriptorProto(name="value.proto", package=package, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name=name)
    for number, field in enumerate(("kind", "key"), start=1):
        message.field.add(name=field, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    device = file.message_type.add(name=DEVICE.rpartition(".")[2])
    device.field.add(name="driver", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    device.field.add(name="allowMultipleAllocations", number=2, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
    for number, field in enumerate(("attributes", "capacity"), start=3):
        entry = device.nested_type.add(name=f"{field.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
        any_value = f".{struct_pb2.Value.DESCRIPTOR.full_name}"
        entry.field.add(
            name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=any_value, label=kinds.LABEL_OPTIONAL
        )
        entry_type = f".{DEVICE}.{entry.name}"
        device.field.add(
            name=field, number=number, type=kinds.TYPE_MESSAGE, type_name=entry_type, label=kinds.LABEL_REPEATED
        )
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool


@lru_cache(maxsize=1)
def _message() -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor_pool().FindMessageTypeByName(VALUE))


def quantity_of(nanos: int) -> Any:
    """An amount as a value."""
    return _message()(kind=QUANTITY, key=str(nanos))


@lru_cache(maxsize=4096)
def _version_key(text: str) -> str:
    """The version without what does not count in comparisons. Raises ``ValueError``."""
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:64]!r} is no version such as 1.2.3 or 1.2.3-rc.1")
    for part in (match[4] or "").split("."):
        if part.isdigit() and part != "0" and part[0] == "0":
            raise ValueError(f"{text[:64]!r}: numeric part {part!r} of the pre-release has a leading zero")
    return f"{match[1]}.{match[2]}.{match[3]}" + (f"-{match[4]}" if match[4] else "")


def semver_of(text: str) -> Any:
    """A version as a value. Raises ``ValueError``."""
    return _message()(kind=SEMVER, key=_version_key(text))


def _normalized(text: str) -> str:
    """``v1.2`` as ``1.2.0``: no leading v, no leading zeros, three numbers."""
    match = re.fullmatch(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", text.strip())
    if match is None:
        raise ValueError(f"{text[:64]!r} is no version such as v1.2")
    return ".".join(str(int(match[n] or 0)) for n in (1, 2, 3)) + (match[4] or "")


def _loose(text: str, loose: bool) -> str:
    return _normalized(text) if loose else text


def _order(key: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Sorts as semver does: a version without a pre-release is after all that have one."""
    numbers, _, before = key.partition("-")
    parts = (
        [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in before.split(".")] if before else [(2, 0, "")]
    )
    return [int(one) for one in numbers.split(".")], parts


def _kind(value: Any, kind: str) -> str:
    if value.kind != kind:
        raise ValueError(f"no such overload: a {value.kind} is no {kind}")
    return str(value.key)


def _compared(one: Any, other: Any) -> int:
    if one.kind != other.kind:
        raise ValueError(f"no such overload: {one.kind}.compareTo({other.kind})")
    if one.kind == QUANTITY:
        return (int(one.key) > int(other.key)) - (int(one.key) < int(other.key))
    first, second = _order(one.key), _order(other.key)
    return (first > second) - (first < second)


def _whole(value: Any) -> int:
    nanos = int(_kind(value, QUANTITY))
    if nanos % NANO or not -_INT64 <= nanos // NANO < _INT64:
        raise ValueError("cannot convert value to integer")
    return nanos // NANO


def _is_whole(value: Any) -> bool:
    nanos = int(_kind(value, QUANTITY))
    return nanos % NANO == 0 and -_INT64 <= nanos // NANO < _INT64


def _is(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return holds


def _part(number: int) -> Callable[[Any], int]:
    return lambda value: _order(_kind(value, SEMVER))[0][number]


def _sum(one: Any, other: Any, sign: int) -> Any:
    added = other * NANO if isinstance(other, int) else int(_kind(other, QUANTITY))
    return quantity_of(int(_kind(one, QUANTITY)) + sign * added)


def _plain(value: Any) -> Any:
    return value.value() if hasattr(value, "value") else value


def _ordering(one: Any, other: Any) -> int:
    if hasattr(one, "kind"):
        return _compared(one, other)
    if type(one) is not type(other):
        raise ValueError("no such overload: the items are not of one type")
    return int(one > other) - int(one < other)


def _items(values: Any) -> list[Any]:
    return [_plain(one) for one in values]


def _extreme(sign: int) -> Callable[[Any], Any]:
    def extreme(values: Any) -> Any:
        items = _items(values)
        if not items:
            raise ValueError(f"{'max' if sign > 0 else 'min'} called on empty list")
        return max(items, key=cmp_to_key(lambda a, b: sign * _ordering(a, b)))

    return extreme


def _is_sorted(values: Any) -> bool:
    items = _items(values)
    return all(_ordering(one, other) <= 0 for one, other in pairwise(items))


def _includes(value: Any, wanted: Any) -> bool:
    """A list has the value, or the value is it: an attribute may be either."""
    items = _items(value) if isinstance(value, list) else [value]
    return any(type(one) is type(wanted) and one == wanted for one in items)


def declared_functions(cel: Any, value: Any) -> list[Any]:
    """What the environment is given beside the standard functions. ``value``: the message's type."""
    kinds, dyn = cel.Type, cel.Type.DYN
    found: dict[str, list[Any]] = {}

    def add(name: str, result: Any, parameters: list[Any], call: Callable[..., Any], *, member: bool = True) -> None:
        overloads = found.setdefault(name, [])
        overloads.append(cel.Overload(f"{name}_{len(overloads)}", result, parameters, member, call))

    add("quantity", value, [kinds.STRING], lambda text: quantity_of(nanos_of(text)), member=False)
    add("isQuantity", kinds.BOOL, [kinds.STRING], _is(nanos_of), member=False)
    add("semver", value, [kinds.STRING], semver_of, member=False)
    add("semver", value, [kinds.STRING, kinds.BOOL], lambda text, loose: semver_of(_loose(text, loose)), member=False)
    add("isSemver", kinds.BOOL, [kinds.STRING], _is(_version_key), member=False)
    loosely = _is(lambda text: _version_key(_normalized(text)))
    strictly = _is(_version_key)
    add(
        "isSemver",
        kinds.BOOL,
        [kinds.STRING, kinds.BOOL],
        lambda text, loose: (loosely if loose else strictly)(text),
        member=False,
    )
    add("compareTo", kinds.INT, [value, value], _compared)
    add("isGreaterThan", kinds.BOOL, [value, value], lambda one, other: _compared(one, other) > 0)
    add("isLessThan", kinds.BOOL, [value, value], lambda one, other: _compared(one, other) < 0)
    add("sign", kinds.INT, [value], lambda one: (int(_kind(one, QUANTITY)) > 0) - (int(_kind(one, QUANTITY)) < 0))
    add("isInteger", kinds.BOOL, [value], _is_whole)
    add("asInteger", kinds.INT, [value], _whole)
    add("asApproximateFloat", kinds.DOUBLE, [value], lambda one: int(_kind(one, QUANTITY)) / NANO)
    for name, sign in (("add", 1), ("sub", -1)):
        add(name, value, [value, value], lambda one, other, sign=sign: _sum(one, other, sign))
        add(name, value, [value, kinds.INT], lambda one, other, sign=sign: _sum(one, other, sign))
    for number, name in enumerate(("major", "minor", "patch")):
        add(name, kinds.INT, [value], _part(number))
    anything = kinds.List(dyn)
    add("min", dyn, [anything], _extreme(-1))
    add("max", dyn, [anything], _extreme(1))
    add("isSorted", kinds.BOOL, [anything], _is_sorted)
    for one in (kinds.INT, kinds.BOOL, kinds.STRING, value):
        add("includes", kinds.BOOL, [anything, one], _includes)
        add("includes", kinds.BOOL, [one, one], _includes)
    return [cel.FunctionDecl(name, overloads) for name, overloads in found.items()]
