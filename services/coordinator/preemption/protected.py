"""Who may be a victim, and who not yet: offline pods that began a short while ago, where QoS counts in preemption.

asked about while it is protected --its time is over--> its node is looked at again by those that wait
"""

from __future__ import annotations

from services.coordinator.core.due import Due
from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod
from shared.scheduling.preemption.loss import protected_s


class Protected:
    """One term's. ``over``: counts nodes where somebody's time was over."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._due = Due()
        self.over = 0

    def may_evict(self, preemptor: Pod, pod: Pod) -> bool:
        """Whether a pod that stands may be a victim of one of higher priority: it did not opt out and, where QoS
        counts, no online pod leaves for an offline one, and no offline one before its time."""
        if not self._state.settings.offline_preemption:
            return pod.preemptible
        if pod.offline is not None and pod.preemptible and (left_s := self._left_s(pod)):
            account = self._state.cache.accounts.get(pod.uid)
            if account is not None:
                self._due.later(account.node_name, self._state.now + left_s)
        return self.would_evict(preemptor, pod)

    def would_evict(self, preemptor: Pod, pod: Pod) -> bool:
        """The same, asked by somebody who does not wait for it."""
        if not self._state.settings.offline_preemption:
            return pod.preemptible
        if pod.offline is None:
            return pod.preemptible and preemptor.offline is None
        return pod.preemptible and not self._left_s(pod)

    def _left_s(self, pod: Pod) -> float:
        """For how long yet an offline pod stays."""
        state = self._state
        return protected_s(pod, state.now + (state.epoch or 0.0), state.settings.offline_min_runtime_s)

    def take(self) -> list[str]:
        """Nodes where somebody may be evicted now who was asked about before."""
        nodes = self._due.take(self._state.now)
        self.over += len(nodes)
        return nodes

    def wake_at(self) -> float | None:
        """When there is one."""
        return self._due.next_at()
