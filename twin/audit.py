"""The audit file: every accepted change, in order, one JSON line each.

Anyone can check the invariants from it without trusting us. A line is put together from the bytes that watchers get, so
auditing costs no second encoding. Format: docs/twin-api-server.md. Lines are buffered and flushed by ``flush`` (the
shell calls it every 200 ms and at the end).
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from twin.registry.changes import Accepted

FLUSH_EVERY_S = 0.2
_BUFFER_BYTES = 1 << 20

_encode = msgspec.json.Encoder().encode


def audit_line(accepted: Accepted) -> bytes:
    """``{rv, time_s, verb, kind, namespace, name, user, manager, object}``; for a delete the object's last state."""
    stored, kind = accepted.change.new, accepted.kind
    return b"".join(
        (
            b'{"rv":%d,"time_s":%.6f,"verb":' % (stored.revision, accepted.time_s),
            _encode(accepted.verb),
            b',"kind":',
            _encode(kind.info.kind),
            b',"namespace":',
            _encode(stored.namespace),
            b',"name":',
            _encode(stored.name),
            b',"user":',
            _encode(accepted.user),
            b',"manager":',
            _encode(accepted.manager),
            b',"object":',
            kind.head,
            stored.body,
            b"}\n",
        )
    )


class AuditFile:
    """A subscriber that writes lines. ``OSError`` at construction when the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=_BUFFER_BYTES)

    def __call__(self, accepted: Accepted) -> None:
        """Append one change."""
        self._file.write(audit_line(accepted))

    def flush(self) -> None:
        """Hand everything so far to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
