"""Why an offline pod may be evicted for nobody: a node lends less than offline pods hold there.

Read from the objects alone, by this audit's own code. What is lent is the node's allocatable; it may have changed a
moment ago (``GRACE_S``). What it does not name is not known, and excuses nobody. Of a gang it is enough that one member
stands where too little is lent: it leaves whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lab.audit.ledger import NodeBook
from lab.audit.rules import lends

if TYPE_CHECKING:
    from lab.audit.pods import AuditedPod

GRACE_S = 5.0
"""Source: our own choice, well above what a decision and its eviction take."""


def gives_way(pod: AuditedPod, fellows: Iterable[AuditedPod], nodes: Mapping[str, NodeBook], time_s: float) -> bool:
    """Whether more of something lent is held than there is, where it or one of its gang stands."""
    return pod.offline and any(_short(nodes.get(one.node), one, time_s) for one in (pod, *fellows))


def _short(book: NodeBook | None, pod: AuditedPod, time_s: float) -> bool:
    if book is None:
        return False
    lately = (book.before,) if time_s - book.changed_s <= GRACE_S else ()
    for facts in (book.facts, *lately):
        for name, _ in pod.requests if facts is not None else ():
            if lends(name) and facts is not None and book.used.get(name, 0) > facts.allocatable.get(name, math.inf):
                return True
    return False
