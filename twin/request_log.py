"""The request log: who asked for what, once each, as an authorizer sees it. One JSON line per new combination.

Why: a Role is only as small as it can be if every rule of it was used; this file says what was used. It names no
objects and no bodies, so its size is bounded by the number of kinds, and it may be shown around.

A line: ``{user, verb, group, resource, path, allowed}``; ``resource`` is ``pods/binding`` for a subresource, and empty
where ``path`` names something that is no resource. Written at once, since there are few.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from twin.registry.access.rbac import Attributes

LIMIT = 65_536
"""Combinations kept: more than all kinds times verbs, for a dozen users. A scan of random paths ends here."""


class RequestLog:
    """Called for every request that was authenticated. ``OSError`` at construction when the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._seen: set[tuple[str, Attributes, bool]] = set()

    def __call__(self, user: str, asked: Attributes, *, allowed: bool) -> None:
        """Write the combination down unless it was seen. Namespace and name do not matter."""
        what = Attributes(asked.verb, asked.group, asked.resource, path=asked.path)
        key = (user, what, allowed)
        if key in self._seen or len(self._seen) >= LIMIT:
            return
        self._seen.add(key)
        line = {
            "user": user,
            "verb": what.verb,
            "group": what.group,
            "resource": what.resource,
            "path": what.path,
            "allowed": allowed,
        }
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
