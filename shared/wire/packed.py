"""Files that hold one gzipped JSON document: what is recorded of a cluster, to be read elsewhere. Pure.

A file that is no gzip, is cut, or unpacks to more than fits the memory is refused in one line that says what to do.
"""

from __future__ import annotations

import gzip
import zlib

from shared.errors import ConfigError

MAX_BYTES = 1 << 30
"""Of JSON. A file that unpacks to more is refused before it fills the memory."""


def packed(text: bytes) -> bytes:
    """The file. The same text gives the same bytes."""
    return gzip.compress(text, compresslevel=6, mtime=0)


def unpacked(data: bytes, name: str, *, writer: str, again: str) -> bytes:
    """The document in a file called ``name``. ``writer``: the command that writes such files; ``again``: how one gets a
    whole one. Raises ``ConfigError``."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        if data[:2] == b"\x1f\x8b":
            raise ConfigError(f"{name}: the file is damaged ({error}); {again}") from None
        raise ConfigError(f"{name}: no gzip file; give a file of '{writer}'") from None
    if unpacker.unconsumed_tail:
        raise ConfigError(f"{name}: unpacks to more than {MAX_BYTES} bytes; record less at a time")
    if not unpacker.eof:
        raise ConfigError(f"{name}: the file is cut; {again}")
    return text
