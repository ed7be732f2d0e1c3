"""Where accepted changes go: into the store and to everybody who follows them.

Below the registry, so that creating, updating and deleting can write without knowing who calls them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from twin.registry.served import ServedKind
from twin.registry.status import Json
from twin.registry.store import ObjectStore
from twin.registry.stored import Owners, StoredChange, StoredObject
from twin.registry.strategy import RequestContext


@dataclass(frozen=True, slots=True)
class Accepted:
    """One accepted change, as subscribers get it. ``verb`` is what was asked (create, patch, bind, delete ...)."""

    time_s: float
    verb: str
    kind: ServedKind
    user: str
    manager: str
    change: StoredChange


Subscriber = Callable[[Accepted], None]


class ChangeStore:
    """The store with its subscribers. ``clock`` gives seconds since 1970, ``rng`` uids and name suffixes."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float], rng: Random) -> None:
        self.store = store
        self.clock = clock
        self.rng = rng
        self._subscribers: list[Subscriber] = []
        self._untold: deque[Accepted] = deque()
        self._telling = False

    def write(
        self,
        ctx: RequestContext,
        kind: ServedKind,
        namespace: str,
        name: str,
        obj: Json,
        verb: str,
        owners: Owners = (),
    ) -> StoredObject:
        """Store and tell everybody."""
        change = self.store.write(kind.storage, namespace, name, obj, owners)
        self._announce(ctx, kind, change, verb)
        return change.new

    def remove(self, ctx: RequestContext, kind: ServedKind, old: StoredObject) -> StoredObject:
        """Take away and tell everybody; the last state with the delete's revision."""
        change = self.store.delete(kind.storage, old)
        self._announce(ctx, kind, change, "delete")
        return change.new

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call ``subscriber`` with every accepted change, in order, after it is visible; returns the unsubscription.

        A subscriber may write: its changes are told after the one at hand has been told to all.
        """
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def _announce(self, ctx: RequestContext, kind: ServedKind, change: StoredChange, verb: str) -> None:
        self.store.shelf(kind.storage).announce(change)
        if not self._subscribers:
            return
        self._untold.append(Accepted(ctx.now_s, verb, kind, ctx.user, ctx.manager, change))
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                accepted = self._untold.popleft()
                for subscriber in tuple(self._subscribers):
                    subscriber(accepted)
        finally:
            self._telling = False
