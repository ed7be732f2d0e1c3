"""How a new leader begins: every intent in etcd is finished or withdrawn, only then are plans accepted.

    (elected) --pods, nodes, volumes, devices, intents listed--> JUDGED
    JUDGED --all inherited settled, or the grace over--> ACCEPTING

Intents of older leaders cannot appear after the list: each was put in a transaction that compared its writer's term.
An inherited intent's Binding may still be under way from its old leader, so the unit is *loose*: it may be given up
only after its pod has been marked (a new resourceVersion), which turns that Binding into a 409. Finishing needs no
such care: the same pod to the same node with the same preconditions succeeds once, whoever sends it.

What claims devices is not judged before those, their classes and all claims are listed, however long that takes: who is
told of a claim beside its list may not have been told of one that took the same device before. Plans for other pods do
not wait for that (``put_off``).

Nor is anything judged before Reservations are listed where nodes bear the mark that room is kept on them: a list that
is refused or late is not one of none.

Not its job: accept plans early, trust anything a former leader held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from services.binder.core.events import StoredIntent
from services.binder.core.in_flight import InFlightBinding
from services.binder.core.state import BinderState
from services.binder.cycle.check import hold, may_bind, still_fits
from shared.wire.messages import Outcome
from shared.wire.records import Intent, IntentPod

DEVICES = frozenset({"resourceclaims", "resourceslices", "deviceclasses", "podgroups"})
"""Kinds without which nobody says who has which device, or for whom a claim is to be reserved."""


RESERVATIONS = "reservations"

REMEDY = "apply k8s/base/rbac.yaml of this version, or take conclave.io/reserved-annotations off the nodes"


def adopt(state: BinderState, intent: Intent, pod: IntentPod, *, gang: str = "") -> InFlightBinding:
    """The unit of a pod that an intent found in etcd names, as one on its way."""
    return InFlightBinding(
        uid=pod.uid,
        namespace=pod.ns,
        name=pod.name,
        rv=pod.rv,
        node=pod.node,
        unit=pod.unit or intent.unit,
        coordinator_term=intent.coordinator_term,
        plan_id=intent.plan_id,
        policy=intent.policy,
        arrived=state.now,
        gang=gang,
        devices=pod.devices,
        claims=pod.claims,
        reservation=pod.reservation,
        inherited=True,
        loose=True,
    )


class BinderTakeover:
    """Holds plans up until what earlier leaders left is judged."""

    def __init__(self, state: BinderState, kinds: Collection[str] = ()) -> None:
        self._state = state
        self._missing = {"pods", "nodes"}
        self._kinds = set(kinds)
        self._refused = self._told = False
        self._complete_at: float | None = None
        self._intents: Mapping[str, StoredIntent] | None = None
        self._open: set[str] = set()
        self._judged_at: float | None = None
        self.accepting = False
        self.put_off: set[str] = set()
        """Pods of intents that claim devices, found before those were listed: counted where they are to go."""
        self.giving_back: Callable[[], bool] = lambda: False
        """Whether claims of units that were withdrawn are still being given back."""

    @property
    def missing(self) -> list[str]:
        """What is waited for, for people."""
        waits = sorted(self._missing) + sorted(self._kinds)
        if self._intents is None:
            waits.append("intents")
        if self._open:
            waits.append(f"{len(self._open)} inherited intents")
        if self.put_off:
            waits.append(f"devices for {len(self.put_off)} inherited pods")
        return waits

    @property
    def devices_listed(self) -> bool:
        """Whether all claims, devices and their classes are known."""
        return DEVICES.isdisjoint(self._kinds)

    @property
    def devices_known(self) -> bool:
        """Whether plans for pods that claim devices can be judged: what was there before them has been."""
        return self.devices_listed and not self.put_off

    @property
    def intents_known(self) -> bool:
        """Whether the first list of intents has come."""
        return self._intents is not None

    def listed(self, kind: str) -> None:
        """One list is complete."""
        self._missing.discard(kind)
        self._kinds.discard(kind)

    def reservations_listed(self, *, refused: bool) -> None:
        """Reservations are listed, or there are none, or (``refused``) that is not ours to know."""
        self._refused = refused
        if not refused:
            self.listed(RESERVATIONS)

    def _awaits_reservations(self) -> bool:
        """Whether room is kept, as nodes say, and it is not known which."""
        if RESERVATIONS not in self._kinds or not any(
            node is not None and node.reserved[0] for node in self._state.cache.table.nodes
        ):
            return False
        if not self._told and (self._refused or self._late()):
            self._told = True
            self._state.log("reservations_awaited", level="warning", refused=self._refused, remedy=REMEDY)
        return True

    def _late(self) -> bool:
        over = self._complete_at
        return over is not None and self._state.now >= over + self._state.settings.takeover_grace_s

    def unlisted(self, kind: str) -> None:
        """What is shown of devices is in no order until they are listed again: a claim of ours may be shown before one
        that took its device earlier. Of other kinds the newest is enough."""
        if kind in DEVICES:
            self._kinds.add(kind)

    def list_intents(self, intents: Mapping[str, StoredIntent]) -> None:
        """The intents there were after this leader won; the first list counts."""
        if self._intents is None:
            self._intents = intents

    def due(self) -> Mapping[str, StoredIntent] | None:
        """The intents to judge, once, as soon as all lists are complete, or those that must be, and a grace is over:
        without its volumes a unit that waits for them would be withdrawn."""
        if self._missing or self._intents is None or self._judged_at is not None:
            return None
        if self._complete_at is None:
            self._complete_at = self._state.now
        if self._awaits_reservations():
            return None
        if self._refused:
            self.listed(RESERVATIONS)
        # Volumes that nobody can list must not stop all others for ever; pods and nodes are waited for without end.
        if self._kinds and not self._late():
            return None
        self._judged_at = self._state.now
        return self._intents

    def opened(self, key: str) -> None:
        """An inherited unit is on its way, or about to be."""
        self._open.add(key)

    def settled(self, key: str) -> None:
        """An inherited unit is settled."""
        self._open.discard(key)

    def step(self) -> None:
        """Accept plans if nothing stands against it any more."""
        # Whose turn has not come yet holds up plans beyond the grace: nothing is counted for it so far (I2).
        if self.accepting or self._judged_at is None or self._state.inherited:
            return
        late = self._state.now - self._judged_at >= self._state.settings.takeover_grace_s
        # Late is no danger: what is open is counted on its node, and its key cannot be committed again.
        if (self._open or self.giving_back()) and not late:
            return
        self.accepting = True
        self._state.log(
            "takeover_finished",
            level="warning" if self._open else "info",
            inherited=self._state.stats.intents_inherited,
            unresolved=len(self._open),
            pods=len(self._state.cache.accounts),
            nodes=len(self._state.cache.table.row_of),
        )
        self._open.clear()

    def validate(self) -> Iterator[str]:
        """Inherited units that plans wait for in vain."""
        for key in self._open - self._state.in_flight.keys() - self._state.inherited.keys():
            yield f"inherited: {key} holds plans up, and is not on its way"

    def wake_at(self) -> float | None:
        """When the grace is over."""
        since = self._judged_at if self._judged_at is not None else self._complete_at
        if self._judged_at is None and self._late():
            return None  # it waits for Reservations
        return None if self.accepting or since is None else since + self._state.settings.takeover_grace_s


def judge(state: BinderState, binding: InFlightBinding) -> tuple[Outcome, str] | None:
    """What becomes of an inherited intent: None = finish it (now assumed, COMMITTED), else outcome, and node or reason.

    CONFLICT means that it is to be withdrawn, which needs its pod marked first; GONE that the list did not show the
    pod, which must be read to be sure (it may have another scheduler's name by now).
    """
    account = state.cache.accounts.get(binding.uid)
    if account is not None and account.assumed_at is None:
        if account.node_name == binding.node:
            return Outcome.BOUND, binding.node
        return Outcome.ELSEWHERE, account.node_name
    pod = state.pending.get(binding.uid)
    if pod is None:
        return Outcome.GONE, "not in the list"
    verdict = may_bind(state, pod)
    if verdict is None and pod.resource_version != binding.rv and not state.owns(binding.node):
        # Its lender judged the pod as it was, and this shard sees a part of that node (ADR 0044).
        reason = f"{binding.node}: the pod has changed, and the node is another shard's to judge"
    else:
        reason = verdict.reason if verdict is not None else still_fits(state, binding, pod)
    # Counted in any case: until the pod is marked, its old leader's Binding may still come.
    hold(state, binding, pod)
    return (Outcome.CONFLICT, reason) if reason else None
