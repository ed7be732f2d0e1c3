"""HPACK (RFC 7541) as far as one gRPC call needs it: what we send as plain literals, of what comes three headers. Pure.

We tell the server that our dynamic table has no room, so that each block stands for itself; one that refers to such an
entry all the same is ``HeadersBroken``, and its connection ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType

_STATUSES = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
"""Entries of the static table that say ``:status``; the names of the others are not asked for here."""

_STATIC = 61

_LENGTHS = (
    (13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28),
    (28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28),
    (6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6),
    (5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10),
    (13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7),
    (7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6),
    (15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5),
    (6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28),
    (20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23),
    (24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24),
    (22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23),
    (21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23),
    (26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25),
    (19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27),
    (20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23),
    (26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26),
)
"""Bits of each byte's code (RFC 7541, appendix B). Among codes of one length the values are in order, and they begin
where the shorter ones end: that is all there is to know about them."""

_LONGEST = 30


class HeadersBroken(OSError):
    """A block that cannot be read."""


def literal(name: str, value: str) -> bytes:
    """A header that no table keeps."""
    return b"\0" + _text(name.encode()) + _text(value.encode())


def _text(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes((len(text),)) + text
    left, size = len(text) - 127, bytearray(b"\x7f")
    while left >= 128:
        size.append(left % 128 + 128)
        left //= 128
    return bytes((*size, left)) + text


@lru_cache(maxsize=64)
def headers_of(block: bytes) -> Mapping[str, str]:
    """The headers of a block by name; of the static table's only ``:status``. ``HeadersBroken``.

    A server repeats itself: blocks are remembered."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(block):
            first = block[at]
            if first & 0x80:  # an entry of a table
                index, at = _number(block, at, 7)
                _known(index)
                if index in _STATUSES:
                    found[":status"] = _STATUSES[index]
                continue
            if first & 0xE0 == 0x20:  # the size of the dynamic table
                _, at = _number(block, at, 5)
                continue
            index, at = _number(block, at, 6 if first & 0x40 else 4)
            name = ""
            if index:
                _known(index)
                name = ":status" if index in _STATUSES else ""
            else:
                name, at = _string(block, at)
            value, at = _string(block, at)
            if name:
                found[name] = value
    except IndexError as error:
        raise HeadersBroken("headers end in the middle of one") from error
    return MappingProxyType(found)


def _known(index: int) -> None:
    if not 0 < index <= _STATIC:
        raise HeadersBroken(f"headers refer to entry {index}, which no table has")


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """An integer whose first ``bits`` are in this byte, and where it ends."""
    most = (1 << bits) - 1
    value, at, shift = block[at] & most, at + 1, 0
    if value < most:
        return value, at
    while True:
        byte, at = block[at], at + 1
        value += (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 28:
            raise HeadersBroken("headers hold a number that is too large")


def _string(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    length, at = _number(block, at, 7)
    text = block[at : at + length]
    if len(text) < length:
        raise HeadersBroken("headers end in the middle of one")
    return (_decoded(text) if coded else text).decode("latin-1"), at + length


@cache
def _codes() -> dict[tuple[int, int], int]:
    """Byte by (bits, code)."""
    lengths = [length for row in _LENGTHS for length in row]
    codes: dict[tuple[int, int], int] = {}
    code = 0
    for bits in range(1, _LONGEST + 1):
        code <<= 1
        for byte in (byte for byte, length in enumerate(lengths) if length == bits):
            codes[bits, code] = byte
            code += 1
    return codes


def _decoded(text: bytes) -> bytes:
    codes, found, code, bits = _codes(), bytearray(), 0, 0
    for byte in text:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            known = codes.get((bits, code))
            if known is not None:
                found.append(known)
                code = bits = 0
            elif bits > _LONGEST:
                raise HeadersBroken("headers hold a code that is none")
    if bits > 7 or code != (1 << bits) - 1:  # what fills the last byte are the first bits of the end's code: ones
        raise HeadersBroken("headers hold half a code")
    return bytes(found)
