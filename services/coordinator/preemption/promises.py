"""Victims that are chosen and not asked yet, against the budgets that cover them: many are chosen in one turn, and the
API server counts an eviction when it is made."""

from __future__ import annotations

from collections import Counter

from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod
from shared.scheduling.preemption.budgets import covers


class Promises:
    """One term's of who chooses victims, counted in ``ClusterState.promised`` beside those of others."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._of: dict[str, tuple[str, list[tuple[str, str]]]] = {}
        """By uid: the pod's name, and which budgets cover it."""

    def make(self, pod: Pod) -> None:
        """The pod is to leave: it counts until it was asked, or is not to be."""
        if pod.uid in self._of:
            return
        cluster = self._state.cluster
        for budget in cluster.budgets:
            if covers(budget, pod, cluster.release) and pod.name not in budget.disrupted and not pod.terminating:
                key = budget.namespace, budget.name
                cluster.promised.setdefault(key, Counter())[pod.name] += 1
                self._of.setdefault(pod.uid, (pod.name, []))[1].append(key)
                self._state.budgets_version += 1

    def settle(self, uid: str) -> None:
        """It was asked, or is not to be: from now on the budgets say so themselves. An unknown one is fine."""
        name, keys = self._of.pop(uid, ("", ()))
        promised = self._state.cluster.promised
        for key in keys:
            promised[key][name] -= 1
            if not promised[key][name]:
                del promised[key][name]
            if not promised[key]:
                del promised[key]
            self._state.budgets_version += 1
