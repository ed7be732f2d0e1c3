"""What people are told about a pod group: a condition on each member that waits, and the group's own.

The group's condition is written when it says something else than the API server shows; the watch shows what came of it.
``PodGroupInitiallyScheduled`` never goes back once it is True.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.coordinator.core.instructions import TellPodGroup
from services.coordinator.core.state import CoordinatorState
from services.coordinator.status.reporter import StatusReporter
from shared.model.pod import Pod
from shared.model.units.pod_group import group_title
from shared.scheduling.pod_groups import GroupMembers
from shared.scheduling.reasons import NOT_READY, UNSCHEDULABLE

INITIALLY = "PodGroupInitiallyScheduled"
SCHEDULED = "Scheduled"
"""Reason of the group's condition once at least its minimum is bound."""

ALL_THERE = "All required pods have been successfully scheduled"

GROUPS_KEPT = 4096
"""Groups of which it is remembered what they were told last."""


@dataclass(slots=True)
class GroupReporter:
    """``told``: by key, the uid of the object and the condition that was asked for last, and when."""

    _state: CoordinatorState
    _reporter: StatusReporter
    told: dict[str, tuple[str, tuple[str, str, str], float]] = field(default_factory=dict)

    def unplaced(
        self, key: str, pods: Iterable[Pod], message: str, *, reason: str = UNSCHEDULABLE,
        first_after_s: float | None = None,
    ) -> None:  # fmt: skip
        """The group was tried in vain: its members are told, each with the group's name, and the group.
        ``first_after_s``: see ``StatusReporter.tell``."""
        text = f'pod group "{group_title(key)}": {message}'
        for pod in pods:
            self._reporter.tell(pod, reason, text, first_after_s=first_after_s)
        self._tell_group(key, "False", reason, message)

    def waits(self, key: str, members: GroupMembers, why: str) -> None:
        """The group cannot be tried yet. Only one that asks for more than all nodes have would be helped by a node."""
        queue = self._state.queue
        pods = (queue.entries[uid].pod for uid in members.pending if uid in queue.entries and uid not in members.away)
        reason = UNSCHEDULABLE if self._state.groups.short_of_nodes(key) else NOT_READY
        self.unplaced(key, pods, why, reason=reason, first_after_s=0.0)  # it has waited for as long already

    def unusable(self, key: str) -> None:
        """The group has no members: where it is written so that none could be placed, that is told at once."""
        group = self._state.groups.group(key)
        if group is not None and group.problem:
            self._tell_group(key, "False", NOT_READY, group.problem)

    def complete(self, key: str) -> None:
        """At least the minimum is bound."""
        group = self._state.groups.group(key)
        if group is not None and group.gang and not self._state.groups.lacking(key):
            self._tell_group(key, "True", SCHEDULED, ALL_THERE)

    def _tell_group(self, key: str, status: str, reason: str, message: str) -> None:
        state, group = self._state, self._state.groups.group(key)
        if group is None:
            return
        kind, *shown = group.condition
        condition = (status, reason, message)
        if tuple(shown) == condition or (kind == INITIALLY and shown[0] == "True"):
            return
        uid, told, at = self.told.get(key, ("", ("", "", ""), 0.0))
        alike = uid == group.uid and told[:2] == condition[:2]
        if alike and state.now < at + state.settings.notice_repeat_s:
            return
        if len(self.told) >= GROUPS_KEPT:
            self.told.clear()
        self.told[key] = group.uid, condition, state.now
        state.out.append(TellPodGroup(group, condition))
