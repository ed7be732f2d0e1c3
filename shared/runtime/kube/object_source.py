"""What a watch of one of the kinds that scheduling rules read says, by key: what came, changed or went.

Translates and decides nothing. An object that cannot be used is reported and counts as gone; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from shared.errors import ObjectError
from shared.kube.resources import Bookmark, Deleted, Malformed, Upserted
from shared.kube.scheduling_kinds import SchedulingKind
from shared.runtime.kube import reflector

log = structlog.get_logger()

Change = tuple[str, object | None]
"""(key, the object; None: it is gone or cannot be used)"""


def changes_of(kind: SchedulingKind, batch: reflector.Batch[Any]) -> Iterable[Change]:
    """The changes in a batch, in order; ``Synced`` is the caller's to look for."""
    for event in batch:
        match event:
            case Upserted():
                key = kind.key(event.object.metadata)
                try:
                    yield key, kind.convert(event.object)
                except ObjectError as error:
                    log.warning("object_unreadable", kind=kind.name, key=key, error=error)
                    yield key, None
            case Deleted():
                yield kind.key(event.object.metadata), None
            case Malformed():
                bad = event.object
                log.warning("object_malformed", kind=kind.name, key=f"{bad.namespace}/{bad.name}", error=bad.error)
                yield f"{bad.namespace}/{bad.name}" if kind.resource.namespaced else bad.name, None
            case Bookmark() | reflector.Synced():
                pass


def synced(batch: reflector.Batch[Any]) -> bool:
    """Whether everything that existed has now been delivered."""
    return any(isinstance(event, reflector.Synced) for event in batch)
