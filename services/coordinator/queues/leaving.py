"""Those that were asked to leave so that a limit lets others go: asked in parts, waited for, given up.

    chosen --leaving: they count as gone already--> asked --all gone--> the unit goes before all others
                                                        | refused, or not begun to leave
                                                        v
                                                     passed over for a while, and others are found

Whoever was asked is looked after until he has gone or is given up, whatever became of the unit.

They are asked in few plans at a time, those of all units together: each holds a connection to the binder, and many
would stand before those that place pods. Nobody is given up who was not asked yet.

Both are done to some per turn: a limit that falls may cost most of what runs. Victims of nominations are asked and
followed by those (``preemption/nominations.py``); here they stop counting as leaving when their nomination is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.evictions import REFUSED, UNKNOWN, PastEviction
from services.coordinator.preemption.nominations import MOST_UNKNOWN, Nominations
from shared.scheduling.queues.nodes import Charge
from shared.scheduling.queues.reclaim.victims import may_leave
from shared.wire.messages import Eviction, EvictionReason

GIVE_UP_S = 60.0
"""Victims that have not begun to leave so long after others did last are not waited for any more; nor asked again that
may not go."""

MARKED_PER_TURN, ASKED_PER_TURN = 2048, 256
"""Victims that one turn counts as leaving, and asks to: some 5 ms each."""

LOOKED_AFTER = 1024
"""Victims that are looked after in one part of the work."""

FOLLOWED_PER_LOOK = 256
"""Victims of nominations that are looked after in one look."""

FOLLOWED, FOLLOWED_MAKING = 2, 4
"""Work of one of them, in nodes looked at."""


@dataclass(slots=True)
class _Attempt:
    """``victims``: uids that are still there; ``unasked``: of those, in order; ``stay``: how many had not begun to
    leave at the last look; ``at``: when they were chosen, or somebody was asked, or began to, last; ``unknown``: by
    victim, how often in a row nobody knew whether he was asked."""

    victims: dict[str, None]
    unasked: dict[str, None]
    stay: int
    at: float
    unknown: Counter[str] = field(default_factory=Counter)


class Leaving:
    """Asks victims to leave and looks after them, in one term.

    ``refused``: victims that may not be evicted, by uid: until when they are passed over."""

    def __init__(self, state: CoordinatorState, ledger: Ledger, nominations: Nominations) -> None:
        self._state = state
        self._ledger = ledger
        self._nominations = nominations
        self.attempts: dict[tuple[str, str], _Attempt] = {}
        """By queue, and the unit for which it is; "" for nobody: a lowered limit."""
        self.refused: dict[str, float] = {}
        self._lines: dict[tuple[str, EvictionReason], dict[str, tuple[str, str]]] = {}
        """By shard and reason: victims that were not asked yet, in order, and the attempt that asks for each."""
        self._unmarked: dict[str, None] = {}
        """Victims that do not count as leaving yet."""
        self._asked: dict[str, None] = {}
        """Victims of nominations that count as leaving."""

    @property
    def busy(self) -> bool:
        """Whether another turn has somebody to ask still, before any plan is answered."""
        return bool(self._unmarked) or any(self._ledger.may_evict(*key) for key in self._lines)

    def may_leave(self, victims: Sequence[Charge]) -> bool:
        """Whether each of them may still be asked, for somebody else than those were who are asked already."""
        charges, unmarked = self._state.queues.charges, self._unmarked
        # Marking takes turns: until then a victim that was chosen looks as if it stayed, and would be chosen twice.
        return may_leave(charges, victims) and not any(pod.uid in unmarked for pod in victims)

    def evict(self, name: str, unit: str, victims: Sequence[Charge]) -> None:
        """For the unit, "" for nobody, that a limit of the queue, or of one above, holds back."""
        state, uids = self._state, {charge.uid: None for charge in victims}
        before = self.attempts.get((name, unit), _Attempt({}, {}, 0, state.now))  # others leave for it still
        waited_for = before.victims | uids
        attempt = _Attempt(waited_for, before.unasked | uids, len(waited_for), state.now)
        self.attempts[name, unit] = attempt
        self._line_up(name, unit, attempt, attempt.unasked)
        self._unmarked |= uids
        self._nominations.wanted |= uids.keys()
        self._mark()
        state.stats.reclaimed += len(uids)
        state.log("quota_reclaimed", queue=name, unit=unit, victims=len(uids))

    def nominate(self, uids: Iterable[str]) -> None:
        """These leave for a nomination."""
        for uid in uids:
            self._state.queues.leave(uid)
            self._asked[uid] = None

    def step(self) -> None:
        """Ask as many to leave as a turn and the plans that may be out can; not for a unit that is gone, or went."""
        self._mark()
        left = ASKED_PER_TURN
        for key, line in list(self._lines.items()):
            if self._nominations.has_in_line(*key):
                continue  # those are asked first, and those again that the binder has in its line
            while line and left and self._ledger.may_evict(*key):
                some = list(islice(line, left))
                left -= len(some)
                requests = [self._request(uid, *line.pop(uid), key[1]) for uid in some]
                if evictions := [request for request in requests if request is not None]:
                    self._ledger.evict(evictions)
            if not line:
                del self._lines[key]

    def follow(self) -> Iterator[int]:
        """Whether victims have gone, or will not; yields what each part of the work was."""
        now = self._state.now
        self.refused = {uid: until for uid, until in self.refused.items() if until > now}
        followed = 0
        for key in list(self.attempts):
            if key in self.attempts:
                followed += len(self.attempts[key].victims) % LOOKED_AFTER
                yield from self._follow(*key, self.attempts[key])
                if followed >= LOOKED_AFTER:
                    yield FOLLOWED * followed
                    followed = 0
        yield FOLLOWED * followed + self._follow_nominations()

    # --- inside -------------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        for uid in list(islice(self._unmarked, MARKED_PER_TURN)):
            del self._unmarked[uid]
            self._state.queues.leave(uid)

    def _line_up(self, name: str, unit: str, attempt: _Attempt, uids: Iterable[str]) -> None:
        """These are to be asked; whoever stands in line already stays where he is."""
        reason = EvictionReason.RECLAIM if unit else EvictionReason.OVER_LIMIT
        for uid in list(uids):
            if (account := self._state.cache.accounts.get(uid)) is None:
                attempt.unasked.pop(uid, None)  # he stands nowhere
                continue
            attempt.unasked[uid] = None
            self._lines.setdefault((self._state.shards.of(account.node_name), reason), {})[uid] = name, unit

    def _request(self, uid: str, name: str, unit: str, reason: EvictionReason) -> Eviction | None:
        """The victim is asked now; None: the attempt does not want him any more, he is gone, or leaves."""
        state, attempt = self._state, self.attempts.get((name, unit))
        if attempt is None or uid not in attempt.unasked or self._is_over(unit):
            return None
        del attempt.unasked[uid]
        attempt.at = state.now
        preemptor = self._uid_of(unit)
        by = state.queue.entries.get(preemptor)
        pod, account, charge = (
            state.cluster.index.get(uid), state.cache.accounts.get(uid), state.queues.charges.get(uid)
        )  # fmt: skip
        if pod is None or account is None or charge is None or pod.terminating:
            return None
        state.evicted.asked(
            PastEviction(
                state.now, uid, pod.namespace, pod.name, charge.priority, account.node_name, preemptor,
                by.pod.key if by is not None else f"queue {name}", by.pod.priority if by is not None else 0,
            )
        )  # fmt: skip
        return Eviction(uid, pod.namespace, pod.name, preemptor, account.node_name, reason=reason)

    def _uid_of(self, unit: str) -> str:
        group = self._state.queue.groups.get(unit)
        return next(iter(group.members)) if group is not None and group.members else unit

    def _is_over(self, unit: str) -> bool:
        return unit != "" and unit not in self._state.queues.reserved

    def _follow(self, name: str, unit: str, attempt: _Attempt) -> Iterator[int]:
        """Whether the victims have gone, or will not."""
        state, tree = self._state, self._state.queues
        stay, unknown, refused = dict[str, None](), dict[str, None](), dict[str, None]()
        for number, uid in enumerate(list(attempt.victims), 1):
            if uid not in tree.charges:
                del attempt.victims[uid]
                self._nominations.wanted.discard(uid)
                attempt.unasked.pop(uid, None)
            elif not self._leaves(uid):
                stay[uid] = None
                outcome = state.evicted.outcome(uid) if uid not in attempt.unasked else ""
                if outcome == UNKNOWN:
                    # Asked again, not for ever: where a webhook answers 5xx nobody would go, and nobody else be asked.
                    attempt.unknown[uid] += 1
                    (refused if attempt.unknown[uid] >= MOST_UNKNOWN else unknown)[uid] = None
                elif outcome == REFUSED:
                    refused[uid] = None
            if number % LOOKED_AFTER == 0:
                yield FOLLOWED * LOOKED_AFTER
        if len(stay) < attempt.stay:
            attempt.at = state.now
        late = state.now >= attempt.at + GIVE_UP_S
        given_up = refused or ({uid: None for uid in stay if uid not in attempt.unasked} if late else {})
        self.refused |= dict.fromkeys(given_up, state.now + GIVE_UP_S)
        if given_up and (waiting := tree.reserved.get(unit)) is not None:
            tree.add(waiting)  # the others leave as they were asked to; somebody else may go in place of these
            self._free_room(unit)
        over = self._is_over(unit)
        let_stay = given_up | attempt.unasked if over else given_up
        for uid in let_stay:
            self._unmarked.pop(uid, None)
            tree.leave(uid, leaving=False)
            self._nominations.wanted.discard(uid)
            del attempt.victims[uid], attempt.unknown[uid]
            attempt.unasked.pop(uid, None)
        attempt.stay = len(stay.keys() - let_stay.keys())
        if not attempt.victims:
            del self.attempts[name, unit]
            if unit in tree.reserved:
                tree.due[unit] = None
        elif not over:
            self._line_up(name, unit, attempt, [uid for uid in unknown if uid in attempt.victims])

    def _free_room(self, unit: str) -> None:
        """No node is kept for the unit any more."""
        entry = self._state.queue.entries.get(unit)
        if entry is not None and (known := self._nominations.made.get(unit)) is not None and known.patient:
            self._nominations.clear(entry.pod)

    def _follow_nominations(self) -> int:
        """Victims of nominations that were given up, and who did not leave, may be asked again."""
        some = list(islice(self._asked, FOLLOWED_PER_LOOK))
        for uid in some:
            del self._asked[uid]
            if uid in self._nominations.leaving or uid in self._nominations.wanted or self._leaves(uid):
                self._asked[uid] = None  # behind those that were looked at longer ago
                continue
            self._state.queues.leave(uid, leaving=False)
            if self._state.evicted.outcome(uid) == REFUSED:
                self.refused[uid] = self._state.now + GIVE_UP_S
        return FOLLOWED_MAKING * len(some)

    def _leaves(self, uid: str) -> bool:
        pod = self._state.cluster.index.get(uid)
        return pod is not None and pod.terminating
