"""How a new leader begins: nothing is offered before pods, nodes, agents, intents and control have been listed.

    (elected) --all lists complete--> STARTED: pods with an intent are assumed where it says, the others are queued

An intent found in etcd is the binder's to finish or to withdraw; until the watch or the binder resolves it, its pods
are held here (their place is "intent", I3). Intents of older leaders cannot appear later, since the binder compares
the coordinator's term in every commit; so the list taken after the election is complete.

Reservations are optional, as a cluster may have no such kind; where nodes bear the mark that room is kept on them, they
are waited for like pods, whose room they keep: a list that is refused or late is not one of none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from services.coordinator.core.events import IntentRecord
from services.coordinator.core.instructions import FetchPod
from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod

REQUIRED = frozenset({"pods", "nodes", "intents", "agents", "control"})
"""What a new leader must have complete before it offers anything."""

RESERVATIONS = "reservations"

REMEDY = "apply k8s/base/rbac.yaml of this version, or take conclave.io/reserved-annotations off the nodes"

ASK_AGAIN_S = 2.0
"""Pause before the API server is asked again about a pod whose intent is gone."""


class Takeover:
    """Gate before the first offer, and the pods of inherited intents."""

    def __init__(self, state: CoordinatorState, kinds: Collection[str] = ()) -> None:
        self._state = state
        self._missing = set(REQUIRED)
        self._kinds = set(kinds)
        self._complete_at: float | None = None
        self._refused = self._told = False
        self._early: dict[str, tuple[Pod, float]] = {}
        self._intents: dict[str, IntentRecord] = {}
        self._node_of: dict[str, str] = {}
        self._reservation_of: dict[str, str] = {}
        self._ask_at: dict[str, float] = {}
        self.held: dict[str, Pod] = {}
        """The pods of open inherited intents, by uid."""

    @property
    def inherits(self) -> bool:
        """Whether there are inherited intents whose end must still be watched, or it is not known yet."""
        unknown = "intents" in self._missing
        return unknown or (bool(self._intents) and (bool(self.held) or not self._state.started))

    @property
    def missing(self) -> list[str]:
        """What a new leader still waits for."""
        return sorted(self._missing) + sorted(self._kinds)

    def listed(self, kind: str) -> None:
        """One list is complete."""
        self._missing.discard(kind)
        self._kinds.discard(kind)

    def reservations_listed(self, *, served: bool, refused: bool) -> None:
        """Reservations are listed, or there are none, or (``refused``) that is not ours to know."""
        self._state.reservations_served = served
        self._refused = refused
        if not refused:
            self.listed(RESERVATIONS)

    def list_intents(self, intents: tuple[IntentRecord, ...]) -> None:
        """The intents there were when this leader won."""
        if "intents" not in self._missing:
            return
        self.listed("intents")
        self._intents = {intent.key: intent for intent in intents}
        self._node_of = {uid: node for intent in intents for uid, node in intent.pods}
        self._reservation_of = dict(pair for intent in intents for pair in intent.reservations)
        self._state.stats.inherited_intents = len(intents)

    def ready(self) -> bool:
        """Whether offers may begin: what they must have is there, and the rest, or it was waited for long enough."""
        if self._missing:
            return False
        if self._complete_at is None:
            self._complete_at = self._state.now
        if RESERVATIONS in self._kinds and any(marked for marked, _ in self._state.spared.values()):
            if not self._told and (self._refused or self._late()):
                self._told = True
                self._state.log("reservations_awaited", level="warning", refused=self._refused, remedy=REMEDY)
            return False
        if self._refused:
            self.listed(RESERVATIONS)
        late = self._late()
        if self._kinds and late:
            self._state.log("takeover_incomplete", level="warning", missing=", ".join(sorted(self._kinds)))
        return late or not self._kinds

    def _late(self) -> bool:
        over = self._complete_at
        return over is not None and self._state.now >= over + self._state.settings.objects_grace_s

    def grace_over_at(self) -> float | None:
        """When a leader begins without the lists that are still missing; None: not by itself."""
        if self._complete_at is None or not self._kinds or self._late():
            return None
        return self._complete_at + self._state.settings.objects_grace_s

    def keep(self, pod: Pod) -> bool:
        """Keep a pending pod here: before the start, and while an inherited intent is open for it."""
        if not self._state.started:
            known = self._early.get(pod.uid)
            self._early[pod.uid] = (pod, known[1] if known is not None else self._state.now)
            return True
        if pod.uid in self.held:
            self.held[pod.uid] = pod
            return True
        return False

    def start(self, take_claiming: Callable[[Pod, float], None], as_nominated: Callable[[Pod], Pod]) -> None:
        """All lists are complete: assume the pods of intents, queue the others, oldest first. ``as_nominated``: a pod
        with what leaders before kept of it; ``take_claiming``: takes in one that claims devices, and since when it is
        known: its claims may not be there."""
        state = self._state
        self._spend()
        for uid, node in self._node_of.items():
            early = self._early.pop(uid, None)
            if early is not None:
                pod = state.devices.described(early[0]) if early[0].extended else early[0]
                self.held[uid] = pod
                reservation = self._reservation_of.get(uid, "")
                counts_as = state.cluster.take_room(reservation, pod) if reservation else None
                state.cluster.assume(pod, node, state.now, counts_as=counts_as)
                state.groups.send_away(uid)
        for uid in self.unwatched():  # the binder resolved it while lists were waited for
            self._ask_at[uid] = state.now
        # creation times are whole seconds: within one, pods stand as they were told, by a mirror as they came
        waiting, self._early = self._early, {}
        for pod, seen in sorted(waiting.values(), key=lambda item: item[0].created):
            if pod.asks is not None or pod.extended:
                take_claiming(pod, seen)
                continue
            state.stats.pods_seen += 1
            nominated = as_nominated(pod)
            state.cluster.nominate(nominated)
            state.queue.add(nominated, seen, gated=bool(pod.group))
        state.log("takeover_finished", pods=len(state.queue.entries), intents=len(self._intents), held=len(self.held))

    def _spend(self) -> None:
        """Reservations for once whose taker is gone are not given to another: who named it did not live to say so."""
        cluster = self._state.cluster
        for uid, reserve in list(cluster.reserved.standing.items()):
            taker = reserve.reserves.taker if reserve.reserves is not None else ""
            if taker and cluster.index.get(taker) is None and taker not in self._early:
                cluster.spend_room(uid)

    def gone(self, key: str) -> None:
        """The binder resolved an intent: if the watch has not said how, ask."""
        intent = self._intents.pop(key, None)
        for uid, _ in intent.pods if intent is not None else ():
            if uid in self.held:
                self._ask_at[uid] = self._state.now
        self.ask()

    def unwatched(self) -> set[str]:
        """Pods that are held, though no open intent names them and nobody asks about them."""
        return self.held.keys() - self._ask_at.keys() - {uid for one in self._intents.values() for uid, _ in one.pods}

    def ask(self) -> None:
        """Ask the API server about pods whose intent is gone, and again where it did not answer."""
        for uid, at in self._ask_at.items():
            if at <= self._state.now:
                pod = self.held[uid]
                self._ask_at[uid] = self._state.now + ASK_AGAIN_S
                self._state.stats.fetches += 1
                self._state.out.append(FetchPod(uid, pod.namespace, pod.name))

    def wake_at(self) -> float | None:
        """When somebody is to be asked about again."""
        return min(self._ask_at.values(), default=None)

    def released(self, uid: str) -> Pod | None:
        """The pod turned out to be pending and its intent gone: it is to be queued. None while the intent is open."""
        if any(uid == held for intent in self._intents.values() for held, _ in intent.pods):
            return None
        self._ask_at.pop(uid, None)
        self._state.groups.take_back(uid)
        return self.held.pop(uid, None)

    def settle(self, uid: str) -> None:
        """The pod is bound or gone."""
        self.held.pop(uid, None)
        self._ask_at.pop(uid, None)
        self._early.pop(uid, None)
