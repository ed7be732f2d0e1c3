"""Claims that are given back: devices that were written for a unit that never bound, and claims that were made for one.

    order --> in line (something else is under way for the claim, or too many writes are) --> FreeClaim --> over
                                                                        ^                        |
                                                                        +--(it failed: a pause)--+

One return, or write, of a claim is under way at a time. A return is tried until it is done, or refused ``REFUSALS``
times in a row. Who has left all of its claims is told of (``left``): its intent may go.

Not its job: what is to be given back (``claims.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from services.binder.core.events import ClaimFreed
from services.binder.core.instructions import ReleaseClaim, WriteClaim
from services.binder.core.state import NEVER, BinderState
from shared.backoff import backoff_s

REFUSED = frozenset({400, 403, 422})
"""The API server will not take it the next time either."""

REFUSALS = 5
"""In a row, after which nothing is given back any more: a Role without the verb, an admission policy."""


@dataclass(slots=True)
class WriteRoom:
    """So many writes of claims and returns are ``under_way``, of ``most`` at a time."""

    most: int
    under_way: int = 0

    @property
    def left(self) -> int:
        """How many more may begin."""
        return max(0, self.most - self.under_way)


@dataclass(slots=True)
class _Freeing:
    """A claim that is being given back; ``again_at``: when it is tried anew, NEVER while it is under way. ``refusals``:
    so many in a row."""

    order: ReleaseClaim
    failures: int = 0
    refusals: int = 0
    again_at: float = NEVER


class ClaimReturns:
    """Gives claims back, in one term. ``writing``: claims that are being written. ``left``: is told whose claims are
    all given back."""

    def __init__(
        self, state: BinderState, room: WriteRoom, writing: Mapping[str, WriteClaim], left: Callable[[str], None]
    ) -> None:
        self._state = state
        self._room = room
        self._writing = writing
        self._left = left
        self.leaving: dict[str, set[str]] = {}
        """What is still to be given back, by the unit that ended."""
        self._freeing: dict[str, _Freeing] = {}
        self._next: dict[str, dict[str, ReleaseClaim]] = {}
        """By claim and consumer: to be given back once nothing else is under way for it."""
        self._held: dict[str, None] = {}
        """Claims that wait until fewer writes are under way."""

    def freeing(self, keys: Collection[str]) -> bool:
        """Whether one of these is being given back."""
        return bool(self.leaving) and any(key in self._freeing or key in self._next for key in keys)

    def order(self, order: ReleaseClaim) -> None:
        """Give a claim back for a consumer, as soon as that can be."""
        orders = self._next.setdefault(order.key, {})
        before = orders.get(order.consumer)
        # The one that frees devices stands: one that only leaves the claim would keep them taken.
        if before is not None and before.deallocate and before.uid == order.uid:
            order = before
        orders[order.consumer] = order
        self.leaving.setdefault(order.consumer, set()).add(order.key)
        self.begin(order.key)

    def begin(self, key: str) -> None:
        """Send the next return of the claim, unless something is under way for it."""
        orders = self._next.get(key)
        if not orders or key in self._freeing or key in self._writing:
            return
        if not self._room.left:
            self._held[key] = None
            return
        consumer = next(iter(orders))
        order = orders.pop(consumer)
        if not orders:
            del self._next[key]
        self._freeing[key] = _Freeing(order)
        self._send(order)

    def fill(self) -> None:
        """Begin with as many of those that wait for room as there is room for."""
        while self._held and self._room.left:
            key = next(iter(self._held))
            del self._held[key]
            self.begin(key)

    def _send(self, order: ReleaseClaim) -> None:
        self._room.under_way += 1
        self._state.emit(order)

    def freed(self, event: ClaimFreed) -> bool:
        """A claim was given back, or not yet. Whether that is over."""
        key, state = event.key, self._state
        freeing = self._freeing.get(key)
        if freeing is None:
            return False
        self._room.under_way -= 1
        if not event.done:
            freeing.failures += 1
            freeing.refusals = freeing.refusals + 1 if event.status in REFUSED else 0
        if not event.done and freeing.refusals < REFUSALS:
            settings = state.settings
            freeing.again_at = state.now + backoff_s(
                freeing.failures, first_s=settings.retry_s, most_s=settings.retry_max_s
            )
            self._look(freeing.again_at)
            return False
        if not event.done:
            state.log(
                "claim_left_as_it_is", level="error", claim=key, pod_uid=freeing.order.consumer, status=event.status,
                remedy="let the binder patch and delete resourceclaims and patch their status, then free the claim",
            )  # fmt: skip
        del self._freeing[key]
        self._left_it(key, freeing.order.consumer)
        if event.done:
            # Only by one that was written: a return that is refused for good stands for no mark of others.
            self._marked(key)
        return True

    def _marked(self, key: str) -> None:
        """Whatever return it was, it was written after all that was written for members of a pod group that leave the
        claim too: one mark is enough for them all."""
        orders = self._next.get(key, {})
        marked = [uid for uid, order in orders.items() if order.group]
        for uid in marked:
            del orders[uid]
        if marked and not orders:
            del self._next[key]
        for uid in marked:
            self._left_it(key, uid)

    def _left_it(self, key: str, uid: str) -> None:
        """The unit has left the claim, unless it is to leave once more."""
        if uid in self._next.get(key, ()):
            return
        left = self.leaving[uid]
        left.discard(key)
        if not left:
            del self.leaving[uid]
            self._left(uid)

    def step(self) -> None:
        """Try again what could not be given back."""
        state = self._state
        state.agenda.claims = NEVER
        for freeing in self._freeing.values():
            if freeing.again_at <= state.now:
                freeing.again_at = NEVER
                self._send(freeing.order)
            self._look(freeing.again_at)

    def _look(self, at: float) -> None:
        agenda = self._state.agenda
        agenda.claims = min(agenda.claims, at)

    def validate(self) -> Iterator[str]:
        """Claims for which two things are under way; returns that nobody waits for."""
        for key in self._writing.keys() & self._freeing.keys():
            yield f"claims-once: {key} is being written and given back"
        trying = sum(freeing.again_at == NEVER for freeing in self._freeing.values())
        if self._room.under_way != len(self._writing) + trying:
            yield f"claims-under-way: {self._room.under_way} are counted, {len(self._writing)} + {trying} are"
        orders = {(one.order.consumer, key) for key, one in self._freeing.items()}
        orders |= {(uid, key) for key, waiting in self._next.items() for uid in waiting}
        if orders != {(uid, key) for uid, keys in self.leaving.items() for key in keys}:
            yield "claims-leaving: who leaves claims is not who is given back"
