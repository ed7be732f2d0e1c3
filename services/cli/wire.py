"""``conclave wire decode``: print messages between services as JSON, field names and all.

It reads with ``msgpack``, not with the codec of the services: an independent reader that shows what is really on the
wire, also where the codec would refuse it. The message table of ``shared.wire.messages`` gives the names only.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from shared.errors import ConfigError
from shared.wire.messages import KINDS

MAX_BYTES = 64 * 1024 * 1024


@click.group()
def wire() -> None:
    """Look at messages between services."""


@wire.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
def decode(file: Path) -> None:
    """Print every message in FILE (- for stdin) as one line of JSON."""
    name = "stdin" if str(file) == "-" else str(file)
    try:
        body = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "stdin" else _read(file)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}; give a file with messages") from None
    if len(body) > MAX_BYTES:
        raise ConfigError(f"{name}: more than {MAX_BYTES} bytes; cut it")
    for message in messages_in(body, name):
        click.echo(json.dumps(message))


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def messages_in(body: bytes, name: str) -> Iterator[dict[str, Any]]:
    """Every message of ``body`` with named fields. ``ConfigError``: not msgpack, with the offset of what is not."""
    import msgpack

    if not body:
        raise ConfigError(f"{name}: it is empty; give at least one message")
    unpacker = msgpack.Unpacker(max_buffer_size=MAX_BYTES, strict_map_key=False)
    unpacker.feed(body)
    offset = 0
    while offset < len(body):
        try:
            value = unpacker.unpack()
        except (msgpack.exceptions.UnpackException, ValueError, TypeError) as error:
            why = str(error) or type(error).__name__
            raise ConfigError(f"{name}: byte {offset}: no msgpack message begins here ({why}); take it whole") from None
        yield named_message(value, name, offset)
        offset = unpacker.tell()


def named_message(value: Any, name: str, offset: int) -> dict[str, Any]:
    """One message's array as a dictionary by field name. ``ConfigError``: no message, or of an unknown kind."""
    if not isinstance(value, list) or not value or not isinstance(value[0], int):
        raise ConfigError(f"{name}: byte {offset}: not a message: it must be an array that begins with its kind")
    kind = KINDS.get(value[0])
    if kind is None:
        raise ConfigError(f"{name}: byte {offset}: kind {value[0]} is not known; known are {sorted(KINDS)}")
    return {"kind": kind.__name__, **_named(kind, value[1:])}


def _named(struct: type, values: list[Any]) -> dict[str, Any]:
    """Fields of an array-like struct by name; what is beyond the known fields is kept as ``+N``."""
    hints = typing.get_type_hints(struct)
    names = [field.name for field in msgspec.structs.fields(struct)]
    out: dict[str, Any] = {}
    for number, value in enumerate(values):
        if number < len(names):
            out[names[number]] = _readable(hints[names[number]], value)
        else:
            out[f"+{number - len(names) + 1}"] = _readable(Any, value)
    return out


def _readable(hint: Any, value: Any) -> Any:
    """``value`` with the structs of ``hint`` named."""
    if isinstance(value, bytes):
        return value.hex()
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        structs = [one for one in arguments if one is not type(None)]
        return _readable(structs[0], value) if len(structs) == 1 else value
    if isinstance(value, list):
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            tagged = hint.__struct_config__.tag is not None
            return _named(hint, value[1:] if tagged else value)
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return [_readable(arguments[min(i, len(arguments) - 1)], one) for i, one in enumerate(value)]
        inner = arguments[0] if arguments else Any
        return [_readable(inner, one) for one in value]
    if isinstance(value, dict):
        inner = arguments[1] if len(arguments) == 2 else Any
        return {str(key): _readable(inner, one) for key, one in value.items()}
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return str(value)
