"""What each kubelet has let on its node, and which pods find too little there. Pure; amounts in units of 1e-9.

A kubelet looks at its own node alone, in the order in which pods come, whoever scheduled them (``canAdmitPod``, the fit
of ``GeneralPredicates``): a pod that finds too little of anything is Failed for good. What runs there stays, also where
the node offers less than before. What the node does not name is not asked for: devices whose plug-in is away, or those
that a claim gives (``removeMissingExtendedResources``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.model.resources import PODS

Amounts = Mapping[str, int]
ONE_POD = 1_000_000_000
"""Of the resource ``pods``."""


@dataclass(frozen=True, slots=True)
class OutOf:
    """The first resource of which a pod finds too little."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> str:
        """Of the pod's status."""
        return f"OutOf{self.resource}"

    @property
    def message(self) -> str:
        """In the kubelet's words; amounts in the resource's own unit, thousandths of cpu."""
        unit = 1_000_000 if self.resource == "cpu" else 1_000_000_000
        asked, used, there = self.requested // unit, self.used // unit, self.capacity // unit
        return (
            f"Pod was rejected: Node didn't have enough resource: {self.resource}, "
            f"requested: {asked}, used: {used}, capacity: {there}"
        )


@dataclass(slots=True)
class AdmissionRoom:
    """One node. ``offers``: its allocatable."""

    offers: Amounts
    _on: dict[str, Amounts] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)

    def lacks(self, uid: str, requests: Amounts) -> OutOf | None:
        """What there is too little of for the pod; None: it is let on, and counts. One that is on may ask for more."""
        before = self._on.get(uid)
        if before is None:
            for name, asked in {**requests, PODS: ONE_POD}.items():
                used, there = self._used.get(name, 0), self.offers.get(name)
                if asked and there is not None and used + asked > there:
                    return OutOf(name, asked, used, there)
        self.let_on(uid, requests)
        return None

    def let_on(self, uid: str, requests: Amounts) -> None:
        """It runs there, whatever room there is."""
        self.remove(uid)
        self._on[uid] = {**requests, PODS: ONE_POD}
        for name, amount in self._on[uid].items():
            self._used[name] = self._used.get(name, 0) + amount

    def remove(self, uid: str) -> None:
        """It has ended; an unknown one is fine."""
        for name, amount in self._on.pop(uid, {}).items():
            self._used[name] -= amount
