"""Typed decoding: what Go's JSON decoder and encoder would make of a body, without Go.

Why: a real API server decodes a body into Go structs and prints those again, so unknown fields vanish, quantities and
times become canonical, empty optional fields vanish and required ones appear as ``""``, ``0``, ``null`` or ``{}``.
One decoder per Go type is built from ``go_types.json`` (see NOTICE) on first use; it copies the object, so
what it returns shares nothing mutable with its input but raw JSON leaves.

It neither sets defaults nor validates: a wrong type is an error here, a wrong value is not.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from twin.kinds.rules import quantity

Json = dict[str, Any]
Decoder = Callable[[Any], Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_MICROTIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
_INT32, _INT64 = 2**31, 2**63

_ALWAYS, _OMIT_EMPTY, _POINTER, _NULL_WHEN_EMPTY = range(4)


class DecodeError(Exception):
    """The body does not fit the type; ``str()`` is the text of Go's decoder, without its prefix."""


class _Mismatch(DecodeError):
    """A JSON value of the wrong type, on its way out to the struct that holds it."""

    def __init__(self, value: Any, go_type: str) -> None:
        super().__init__()
        self.value, self.go_type = value, go_type
        self.struct = ""
        self.path: list[str] = []

    def __str__(self) -> str:
        where = f"struct field {self.struct}.{'.'.join(reversed(self.path))}" if self.struct else "value"
        return f"json: cannot unmarshal {_json_kind(self.value)} into Go {where} of type {self.go_type}"


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return f"number {value}" if abs(value) >= _INT32 else "number"
    if isinstance(value, float):
        return f"number {value}"
    return "array" if isinstance(value, list) else "object"


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    raise _Mismatch(value, "string")


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _Mismatch(value, "bool")


def _int32(value: Any) -> int:
    if type(value) is int and -_INT32 <= value < _INT32:
        return value
    raise _Mismatch(value, "int32")


def _int64(value: Any) -> int:
    if type(value) is int and -_INT64 <= value < _INT64:
        return value
    raise _Mismatch(value, "int64")


def _float(value: Any) -> int | float:
    if type(value) not in (int, float):
        raise _Mismatch(value, "float64")
    # Go prints a whole number without a point
    return int(value) if value == int(value) else float(value)


def _raw(value: Any) -> Any:
    return value


def _bytes(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch(value, "[]uint8")
    # Go's decoder passes over line breaks, which kustomize writes into long values; answers have none
    text: str = value.replace("\n", "").replace("\r", "")
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        good = _BASE64.match(text)
        raise DecodeError(f"illegal base64 data at input byte {good.end() if good else 0}") from error
    return text


def _quantity(value: Any) -> str:
    text = value if type(value) is str else json.dumps(value)
    try:
        return quantity.canonical(text)
    except quantity.QuantityError as error:
        raise DecodeError(str(error)) from error


def _intstr(value: Any) -> int | str:
    if type(value) is str:
        return value
    return _int32(value)


def _time(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch(value, "string")
    if _TIME.fullmatch(value) and _moment(value):
        return value
    moment = _moment(value)
    if moment is None:
        raise DecodeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"')
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _microtime(value: Any) -> str:
    if type(value) is not str:
        raise _Mismatch(value, "string")
    moment = _moment(value) if _MICROTIME.fullmatch(value) else None
    if moment is None:
        layout = "2006-01-02T15:04:05.000000Z07:00"
        rest, wanted = (value[19:], ".000000") if _moment(value) else (value, "2006")
        raise DecodeError(f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{wanted}"')
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(value: str) -> datetime | None:
    if not _RFC3339.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_SCALARS: dict[str, tuple[Decoder, type | None, Any]] = {
    # decoder, Python type that needs no decoder, Go's zero value as printed
    "string": (_text, str, ""),
    "bool": (_flag, bool, False),
    "int32": (_int32, None, 0),
    "int64": (_int64, None, 0),
    "float": (_float, None, 0),
    "quantity": (_quantity, None, "0"),
    "intstr": (_intstr, str, 0),
    "time": (_time, None, None),
    "microtime": (_microtime, None, None),
    "bytes": (_bytes, None, None),
    "raw": (_raw, None, None),
}


class Types:
    """The decoders of one table of Go types, built on first use."""

    def __init__(self, table: dict[str, dict[str, str]]) -> None:
        self._table = table
        self._decoders: dict[str, Decoder] = {}
        self._unknown_seen: list[str] = []

    def decode(self, type_name: str, obj: Json) -> tuple[Json, list[str]]:
        """(the object as the server would print it, messages about unknown fields). Raises DecodeError."""
        self._unknown_seen.clear()
        decoded: Json = self._decoder(type_name)(obj)
        unknown = list(self._unknown(type_name, obj, "")) if self._unknown_seen else []
        return decoded, unknown

    def __contains__(self, type_name: str) -> bool:
        return type_name in self._table

    def fields(self, struct: str) -> dict[str, str]:
        """JSON name -> declared type of a struct's fields, without marks."""
        return {name: declared.partition(" ")[0] for name, declared in self._table[struct].items()}

    @property
    def table(self) -> dict[str, dict[str, str]]:
        """Fields of each type by name, as ``go_types.json`` declares them; read-only."""
        return self._table

    def merge_keys(self, type_name: str) -> dict[str, str]:
        """Strategic merge lists of a type by dotted path: the key, or ``""`` for a set of scalars."""
        found: dict[str, str] = {}
        self._collect_merge_keys(type_name, "", found, ())
        return found

    def _collect_merge_keys(self, name: str, path: str, found: dict[str, str], above: tuple[str, ...]) -> None:
        for field, declared in self._table[name].items():
            kind, _, marks = declared.partition(" ")
            here = f"{path}.{field}" if path else field
            if "@" in marks:
                _, key, strategy = marks.split("@")
                if "merge" in strategy.split(","):
                    found[here] = key
            bare = _element(kind)
            if bare in self._table and bare not in above:
                self._collect_merge_keys(bare, here, found, (*above, bare))

    def _decoder(self, kind: str) -> Decoder:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = self._build(kind)
        return decoder

    def _build(self, kind: str) -> Decoder:
        if kind in _SCALARS:
            return _SCALARS[kind][0]
        if kind.startswith("*"):
            return self._decoder(kind[1:])
        if "|" in kind and not kind.startswith("{}"):
            return self._either(*kind.split("|"))
        if kind.startswith("[]"):
            return self._list(kind[2:])
        if kind == "{}quantity":
            return _resource_list
        if kind.startswith("{}"):
            return self._map(kind[2:])
        return self._struct(kind)

    def _list(self, element: str) -> Decoder:
        decode, go_type = self._late(element), "[]" + _go_name(element)
        zero = self._zero(element)

        def decode_list(value: Any) -> Any:
            if type(value) is not list:
                raise _Mismatch(value, go_type)
            return [decode(one) if one is not None else zero() for one in value]

        return decode_list

    def _map(self, element: str) -> Decoder:
        decode, go_type = self._late(element), "map[string]" + _go_name(element)
        zero = self._zero(element)

        def decode_map(value: Any) -> Any:
            if type(value) is not dict:
                raise _Mismatch(value, go_type)
            return {key: decode(one) if one is not None else zero() for key, one in value.items()}

        return decode_map

    def _either(self, struct: str, other: str) -> Decoder:
        """A struct, or a list or flag in its place."""
        decode, decode_other = self._late(struct), self._late(other)
        return lambda value: decode(value) if type(value) is dict else decode_other(value)

    def _late(self, kind: str) -> Decoder:
        """A decoder that may be of a type which is still being built (types are recursive)."""
        if kind in _SCALARS:
            return _SCALARS[kind][0]

        def decode(value: Any) -> Any:
            return self._decoder(kind)(value)

        return decode

    def _zero(self, kind: str) -> Callable[[], Any]:
        """What Go prints for a field that was never set."""
        if kind in _SCALARS:
            value = _SCALARS[kind][2]
            return lambda: value
        if kind in self._table:
            return lambda: self._decoder(kind)({})
        return lambda: None

    def _struct(self, name: str) -> Decoder:
        fields: dict[str, tuple[Decoder, type | None, int]] = {}
        always: list[tuple[str, Callable[[], Any]]] = []
        for field, declared in self._table[name].items():
            kind, _, marks = declared.partition(" ")
            mode = _mode(kind, marks, kind in self._table)
            plain = _SCALARS[kind][1] if kind in _SCALARS else None
            decoder = self._late(kind) if _element(kind).partition("|")[0] in self._table else self._decoder(kind)
            fields[field] = (decoder, plain, mode)
            if mode in (_ALWAYS, _NULL_WHEN_EMPTY):
                always.append((field, self._zero(kind)))
        go_type, struct, unknown = _go_name(name), name.rpartition(".")[2], self._unknown_seen

        def decode_struct(value: Any) -> Json:
            if type(value) is not dict:
                raise _Mismatch(value, go_type)
            out: Json = {}
            key = ""
            try:
                for key, item in value.items():
                    known = fields.get(key)
                    if known is None:
                        unknown.append(key)
                        continue
                    if item is None:
                        continue
                    decoder, plain, mode = known
                    if type(item) is not plain:
                        item = decoder(item)
                    if mode == _OMIT_EMPTY:
                        if item:
                            out[key] = item
                    elif mode == _NULL_WHEN_EMPTY:
                        out[key] = item or None
                    else:
                        out[key] = item
            except _Mismatch as error:
                error.struct = error.struct or struct
                error.path.append(key)
                raise
            for key, zero in always:
                if key not in out:
                    out[key] = zero()
            return out

        return decode_struct

    def _unknown(self, kind: str, value: Any, path: str) -> list[str]:
        """Slow second walk, only when the decoder met an unknown field: it alone knows the paths."""
        if kind.startswith("*"):
            return self._unknown(kind[1:], value, path)
        if "|" in kind and not kind.startswith("{}"):
            struct, _, other = kind.partition("|")
            return self._unknown(struct if isinstance(value, dict) else other, value, path)
        found: list[str] = []
        if kind.startswith("[]") and isinstance(value, list):
            for index, one in enumerate(value):
                found += self._unknown(kind[2:], one, f"{path}[{index}]")
        elif kind.startswith("{}") and isinstance(value, dict):
            for key, one in value.items():
                found += self._unknown(kind[2:], one, f"{path}.{key}")
        elif kind in self._table and isinstance(value, dict):
            fields = self._table[kind]
            for key, one in value.items():
                here = f"{path}.{key}" if path else key
                if key in fields:
                    found += self._unknown(fields[key].partition(" ")[0], one, here)
                else:
                    found.append(f'unknown field "{here}"')
        return found


def _resource_list(value: Any) -> Any:
    """core/v1 ResourceList: canonical quantities, rounded up to a thousandth (SetDefaults_ResourceList)."""
    if type(value) is not dict:
        raise _Mismatch(value, "v1.ResourceList")
    try:
        return {
            key: quantity.rounded_up_to_milli(one if type(one) is str else json.dumps(one)) if one is not None else "0"
            for key, one in value.items()
        }
    except quantity.QuantityError as error:
        raise DecodeError(str(error)) from error


def _mode(kind: str, marks: str, is_struct: bool) -> int:
    if kind.startswith("*"):
        return _POINTER if "?" in marks else _ALWAYS
    if is_struct:
        return _OMIT_EMPTY if "~" in marks else _ALWAYS
    if kind in ("time", "microtime"):
        return _POINTER if "~" in marks else _ALWAYS
    if kind == "quantity" or (kind == "intstr" and "?" in marks):
        return _ALWAYS if kind == "quantity" else _POINTER
    if "?" in marks:
        return _OMIT_EMPTY
    return _NULL_WHEN_EMPTY if kind.startswith(("[]", "{}")) else _ALWAYS


def _element(kind: str) -> str:
    while kind.startswith(("*", "[]", "{}")):
        kind = kind.lstrip("*").removeprefix("[]").removeprefix("{}")
    return kind


def _go_name(kind: str) -> str:
    """``core/v1.PodSpec`` as Go prints it: ``v1.PodSpec``."""
    if kind.startswith("*"):
        return _go_name(kind[1:])
    if kind.startswith("[]"):
        return "[]" + _go_name(kind[2:])
    if kind.startswith("{}"):
        return "map[string]" + _go_name(kind[2:])
    return kind.rpartition("/")[2]


TYPES = Types(json.loads(files("twin.kinds").joinpath("go_types.json").read_text(encoding="utf-8")))
"""The types of Kubernetes 1.36."""
