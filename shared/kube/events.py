"""Events of ``events.k8s.io/v1`` as the API server takes them (1.36, ``core/validation/events.go``). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

NOTE_BYTES = 1024
INSTANCE_CHARS = 128
NAME_CHARS = 220
"""Of an object's name in that of its event: with what is added a name of at most 253."""


def event_name(about: str, wall_ns: int) -> str:
    """A new name, as client-go makes it. ``about``: the object's; ``wall_ns``: nanoseconds since 1970."""
    return f"{about[:NAME_CHARS].rstrip('-.')}.{wall_ns:x}"


def micro_time(at: datetime) -> str:
    """A moment in UTC as ``MicroTime`` is written."""
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def event_body(
    about: Mapping[str, str],
    *,
    name: str,
    at: datetime,
    controller: str,
    instance: str,
    kind: str,
    reason: str,
    action: str,
    note: str,
) -> dict[str, Any]:
    """``about``: apiVersion, kind, namespace, name, uid and resourceVersion of the object; ``kind``: Normal or Warning.
    A note that is too long is cut."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "eventTime": micro_time(at),
        "reportingController": controller,
        "reportingInstance": instance[:INSTANCE_CHARS],
        "type": kind,
        "reason": reason,
        "action": action,
        "note": note.encode()[:NOTE_BYTES].decode(errors="ignore"),
        "regarding": dict(about),
    }
