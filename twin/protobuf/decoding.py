"""Kubernetes' protobuf to the JSON it stands for.

Why: kubectl's typed commands and client-go's typed clients send protobuf. The answer is JSON, which they all take, so
only reading is needed. Types come from the table of Go types, numbers from ``field_numbers.json``; there is no
generated code. Sources: apimachinery ``runtime/serializer/protobuf`` (envelope), ``*/generated.proto``. Pure.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

Json = dict[str, Any]
Wire = bytes | int

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """A body that is no protobuf of the type it says."""


@cache
def _numbers() -> dict[str, dict[str, str]]:
    text = files("twin.protobuf").joinpath("field_numbers.json").read_bytes()
    table: dict[str, dict[str, str]] = msgspec.json.decode(text)
    return table


@cache
def _types() -> dict[str, dict[str, str]]:
    text = files("twin.kinds").joinpath("go_types.json").read_bytes()
    table: dict[str, dict[str, str]] = msgspec.json.decode(text)
    return table


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, Wire]]:
    """(number, wire type, value) of every field of a message. Raises ``ProtobufError``."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: Wire
        if wire == _VARINT:
            value, at = _varint(data, at)
        else:
            if wire == _BYTES:
                size, at = _varint(data, at)
            elif wire in (_FIXED64, _FIXED32):
                size = 8 if wire == _FIXED64 else 4
            else:
                raise ProtobufError(f"illegal wireType {wire}")
            if at + size > len(data):
                raise ProtobufError("unexpected EOF")
            value = data[at : at + size]
            at += size
        yield number, wire, value


def _signed(value: Wire) -> int:
    if isinstance(value, bytes):
        raise ProtobufError("wrong wireType for an integer")
    return value - (1 << 64) if value >= 1 << 63 else value


def _raw(value: Wire) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("wrong wireType for a message")
    return value


def _text(value: Wire) -> str:
    return _raw(value).decode("utf-8", "replace")


def _moment(value: Wire, *, micro: bool) -> str | None:
    parts = {number: _signed(part) for number, _, part in fields(_raw(value))}
    if not parts.get(1) and not parts.get(2):
        return None
    moment = datetime.fromtimestamp(parts.get(1, 0), UTC)
    if micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{parts.get(2, 0) // 1000:06d}Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _scalar(go: str, value: Wire) -> Any:
    """A value of a type that is no message of the table."""
    if go == "string":
        return _text(value)
    if go == "bool":
        return bool(_signed(value))
    if go in ("int32", "int64"):
        return _signed(value)
    if go == "float":
        return struct.unpack("<d", _raw(value))[0]
    if go == "bytes":
        return base64.b64encode(_raw(value)).decode()
    if go in ("time", "microtime"):
        return _moment(value, micro=go == "microtime")
    parts = {number: part for number, _, part in fields(_raw(value))}
    if go == "quantity":
        return _text(parts.get(1, b""))
    if go == "intstr":
        return _text(parts.get(3, b"")) if parts.get(1) else _signed(parts.get(2, 0))
    if go == "raw":
        content = _raw(parts.get(1, b""))
        return msgspec.json.decode(content) if content else None
    raise ProtobufError(f"unknown type {go}")


def _value(go: str, wire: int, value: Wire) -> Any:
    return message(go, _raw(value)) if go in _types() and wire == _BYTES else _scalar(go, value)


def _packed(go: str, value: bytes) -> list[Any]:
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_scalar(go, number))
    return found


def message(go: str, data: bytes) -> Json:
    """A message of Go type ``go`` as JSON. Raises ``ProtobufError``."""
    out: Json = {}
    _fill(out, _numbers().get(go, {}), _types().get(go, {}), data)
    return out


def _fill(out: Json, numbers: dict[str, str], types: dict[str, str], data: bytes) -> None:
    for number, wire, value in fields(data):
        name = numbers.get(str(number))
        if name is None:
            continue
        if name.startswith("+"):
            # A message that JSON shows in place: its fields belong to the holder's type.
            _fill(out, _numbers().get(name[1:], {}), types, _raw(value))
            continue
        go = types.get(name, "").partition(" ")[0].lstrip("*")
        if not go:
            continue
        if go.startswith("[]"):
            element = go[2:].lstrip("*")
            into = out.setdefault(name, [])
            if element in ("int32", "int64") and wire == _BYTES:
                into.extend(_packed(element, _raw(value)))
            else:
                into.append(_value(element, wire, value))
        elif go.startswith("{}"):
            key, item = _entry(go[2:], _raw(value))
            out.setdefault(name, {})[key] = item
        else:
            out[name] = _value(go, wire, value)


def _entry(go: str, data: bytes) -> tuple[str, Any]:
    parts = {number: (wire, part) for number, wire, part in fields(data)}
    key = _text(parts[1][1]) if 1 in parts else ""
    if 2 not in parts:
        return key, "" if go in ("string", "bytes") else None
    return key, _value(go.lstrip("*"), *parts[2])


def type_name(api_version: str, kind: str) -> str:
    """The table's name of an (apiVersion, kind). Options of a request are meta/v1 in every group."""
    if kind == "DeleteOptions":
        return "meta/v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}/{version}.{kind}"


def decode(body: bytes) -> Json:
    """A whole body, with kind and apiVersion. Raises ``ProtobufError``."""
    if not body.startswith(MAGIC):
        raise ProtobufError(
            "the provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    envelope = {number: value for number, _, value in fields(body[len(MAGIC) :])}
    meta = {number: _text(value) for number, _, value in fields(_raw(envelope.get(1, b"")))}
    api_version, kind = meta.get(1, ""), meta.get(2, "")
    go = type_name(api_version, kind)
    if go not in _types():
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"kind": kind, "apiVersion": api_version, **message(go, _raw(envelope.get(2, b"")))}
