"""The gangs of a scenario judged live, from watches: half a gang is reported when it happens, not when all is over.

Fed by ``World`` with every event that it sees. It goes by the audit's judge of units, which shares no code
with the scheduler. Streams of two kinds have no order between them, so only what needs none is judged here: that no
gang stays in part. The rest is judged by the whole history, at the end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from lab.audit.judges.units import UnitsAudit
from lab.audit.log import LogEntry

Json = dict[str, Any]


class GroupWatch:
    """``violations``: one sentence each."""

    def __init__(self, scheduler_name: str = "conclave") -> None:
        self.violations: list[str] = []
        self._units = UnitsAudit({}, self._note, scheduler_name)
        self._known: defaultdict[str, dict[str, Json]] = defaultdict(dict)

    def _note(self, text: str) -> None:
        if text.startswith("partial:"):
            self.violations.append(text)

    def passed(self) -> None:
        """Time went by without an event."""
        self._units.passed(time.time())

    def event(self, kind: str, event: str, obj: Json) -> None:
        """One watch event; ``event``: ADDED, MODIFIED or DELETED."""
        meta = obj["metadata"]
        uid = meta["uid"]
        if event == "DELETED":
            self._known[kind].pop(uid, None)
            verb = "delete"
        else:
            verb = "update" if uid in self._known[kind] else "create"
            self._known[kind][uid] = obj
        entry = LogEntry(int(meta["resourceVersion"]), time.time(), verb, kind, meta.get("namespace", ""), meta["name"],
                      "watch", obj)  # fmt: skip
        self._units.feed(entry)

    def listed(self, kind: str, items: Iterable[Json]) -> None:
        """A list in place of events that were missed."""
        now = {item["metadata"]["uid"]: item for item in items}
        for uid, obj in list(self._known[kind].items()):
            if uid not in now:
                self.event(kind, "DELETED", obj)
        for obj in now.values():
            if self._known[kind].get(obj["metadata"]["uid"]) != obj:
                self.event(kind, "MODIFIED", obj)
