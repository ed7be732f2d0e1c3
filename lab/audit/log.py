"""Reading the audit file: one JSON object per line, in the order in which the API server accepted the changes.

Pure: lines in, entries out. No line is skipped, because an audit with a hole proves nothing: a malformed one is a
``ConfigError`` naming the file, the line and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.errors import ConfigError

VERBS = frozenset({"create", "update", "patch", "delete", "bind"})


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One accepted change. ``object`` is the object after it; of a delete its last state. ``manager``: the writer's
    field manager; "" in older files."""

    rv: int
    time_s: float
    verb: str
    kind: str
    namespace: str
    name: str
    user: str
    object: dict[str, Any]
    manager: str = ""

    @property
    def uid(self) -> str:
        """``metadata.uid``: names come again, uids do not."""
        return str(self.object["metadata"].get("uid", ""))

    @property
    def gone(self) -> bool:
        """Whether the object is gone, whatever its last state says of a grace or of finalizers: to mark it as
        terminating is an ``update``."""
        return self.verb == "delete"


def read_entries(lines: Iterable[bytes], file: str) -> Iterator[LogEntry]:
    """Decode line by line; ``file`` is named in errors. ``ConfigError``: malformed, out of order, or empty."""
    decoder = msgspec.json.Decoder(LogEntry)
    last_rv, number = -1, 0
    for number, line in enumerate(lines, 1):
        try:
            entry = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            cut = "" if line.endswith(b"\n") else " (the line is cut: was its writer killed?)"
            raise ConfigError(
                f"{file}, line {number}: {error}{cut}; every line must be one JSON object "
                "{rv, time_s, verb, kind, namespace, name, user, object}: take a complete file"
            ) from None
        problem = _problem(entry, last_rv)
        if problem:
            raise ConfigError(f"{file}, line {number}: {problem}; take the file as the API server wrote it")
        last_rv = entry.rv
        yield entry
    if number == 0:
        raise ConfigError(f"{file}, line 1: the file is empty; give the --audit file of a run that changed something")


def _problem(entry: LogEntry, last_rv: int) -> str:
    if entry.verb not in VERBS:
        return f"verb: {entry.verb[:32]!r} is not one of {', '.join(sorted(VERBS))}"
    if entry.rv <= last_rv:
        return f"rv: {entry.rv} comes after {last_rv}, but lines must be in the order of their rv"
    if not isinstance(entry.object.get("metadata"), dict):
        return "object.metadata: is missing"
    if entry.kind in ("Pod", "Node") and not (entry.name and entry.object["metadata"].get("name") == entry.name):
        return f"name: {entry.name[:64]!r} is not the name of the object"
    if entry.kind == "Pod" and not entry.uid:
        return "object.metadata.uid: is missing"
    return ""
