"""Archives that no weights file is, made by hand."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np


def bomb(count: int, tail: int = 20_000) -> bytes:
    """Members each of which holds all that come after it: ``count`` times ``tail`` bytes are claimed, ``tail`` sent."""
    body, entries = bytes(tail), []
    for number in reversed(range(count)):
        data = _npy(body)
        name = f"a{number}.npy".encode()
        head = (zlib.crc32(data), len(data), len(data), len(name), 0)
        body = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, *head) + name + data
        entries.append((head, name, len(body)))
    central = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, *head, 0, 0, 0, 0, len(body) - left) + name
        for head, name, left in entries
    )
    return body + central + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(central), len(body), 0)


def _npy(data: bytes) -> bytes:
    out = io.BytesIO()
    np.save(out, np.frombuffer(data, np.uint8))
    return out.getvalue()
