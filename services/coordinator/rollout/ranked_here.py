"""Policies by which the leader ranks all nodes itself, to know whose agents to ask; these decide, as ever.

So it is where all that a policy goes by is here: the table of nodes, what counts as a GPU, what nodes draw, and the
demand. Its scores are then those of the agents, and the best node's agent is always asked. Where a policy fails here,
all agents are asked.

    pointer --heuristics, shipped weights--> made at once
            --other weights--> read from etcd (``pointer.py``) --PolicyRead--> kept
"""

from __future__ import annotations

from services.coordinator.core.state import CoordinatorState
from shared.policy.guard import PlacementGuard
from shared.policy.observation import Policy, Supplies, ToldDemand, supply
from shared.policy.registry import goes_by_nodes, made_here
from shared.policy.rollout.rollout import apply_rehearsal
from shared.wire.records import PolicyPointer, PolicyRef


class RankedHere:
    """One term's. ``demand``: as agents are told it."""

    def __init__(self, state: CoordinatorState, demand: ToldDemand) -> None:
        self._state = state
        self._demand = demand
        self._known: dict[PolicyRef, PlacementGuard] = {}
        self._refs: tuple[PolicyRef, ...] = ()
        """The active policy and, where there is one, the candidate."""
        self._pointer: PolicyPointer | None = None

    def follow(self, refs: tuple[PolicyRef, ...], pointer: PolicyPointer | None) -> None:
        """These are the policies from now on."""
        self._refs, self._pointer = refs, pointer
        self._known = {ref: guard for ref, guard in self._known.items() if ref in refs}
        for ref in refs:
            if ref not in self._known and (policy := made_here(ref)) is not None:
                self.read(ref, policy)
        for ref, guard in self._known.items():
            self._heed(ref, guard.policy)

    def read(self, ref: PolicyRef, policy: Policy) -> None:
        """A policy that the pointer names, or named, was made of its weights."""
        if ref in self._refs and goes_by_nodes(ref):
            profile = self._state.settings.profile
            supply(policy, Supplies(gpu_shares=profile.gpu_shares, power=profile.power, demand=self._demand))
            self._heed(ref, policy)
            self._known[ref] = PlacementGuard(policy)

    def _heed(self, ref: PolicyRef, policy: Policy) -> None:
        """Place by what rehearsals say of it, as agents do."""
        if self._pointer is not None:
            apply_rehearsal(policy, ref, self._pointer)

    def of(self, *, candidate: bool) -> PlacementGuard | None:
        """The policy that decides about such units; None: it is not ranked by here."""
        return self._known.get(self._refs[-1 if candidate else 0]) if self._refs else None
