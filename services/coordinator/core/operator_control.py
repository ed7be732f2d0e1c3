"""What operators told the mesh, as the core obeys it: scheduling paused, nodes drained, settings changed. Pure.

    etcd --watch--> ControlSeen --> paused: no cycle begins, no eviction is planned; what is under way finishes
                                    drained: the node counts as cordoned, for us alone, until it is resumed
                                    settings: the next cycle, window or eviction goes by the new ones

Levels, not edges: every event holds all there is, so one that comes twice or late changes nothing (I9). A new leader
begins nothing before the first (``Takeover``): a pause survives a failover.

The admin API writes all of it. Pods that run on a drained node stay.
"""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.core.events import ControlSeen
from services.coordinator.core.intake import ClusterIntake
from services.coordinator.core.state import Agenda, CoordinatorState, CoreSettings
from services.coordinator.rollout.evaluation import RolloutEvaluation


class OperatorControl:
    """Applies ``ControlSeen``. ``number``: of the settings in force, 0 for those the process was started with."""

    def __init__(self, state: CoordinatorState, intake: ClusterIntake, evaluation: RolloutEvaluation) -> None:
        self._state = state
        self._intake = intake
        self._evaluation = evaluation
        self._started_with: CoreSettings = state.settings
        self.number = 0

    def seen(self, event: ControlSeen) -> None:
        """Everything that holds now."""
        self._pause(event)
        self._drain(event)
        self._tune(event)

    def _pause(self, event: ControlSeen) -> None:
        state, before = self._state, self._state.paused
        state.paused = event.paused
        if event.paused is not None and event.paused != before:
            state.log(
                "scheduling_paused", level="warning", by=event.paused.by, reason=event.paused.reason,
                since=event.paused.since,
            )  # fmt: skip
        elif before is not None and event.paused is None:
            state.log("scheduling_resumed", pending=len(state.queue.entries))

    def _drain(self, event: ControlSeen) -> None:
        state = self._state
        before, state.drained = state.drained, {record.node: record for record in event.drained}
        changed = {name for name in before.keys() | state.drained.keys() if before.get(name) != state.drained.get(name)}
        table = state.cache.table
        for name in sorted(changed):
            record, row = state.drained.get(name), table.row_of.get(name)
            if record is None:
                state.log("node_resumed", node=name)
            else:
                state.log("node_drained", node=name, by=record.by, reason=record.reason)
            node = table.nodes[row] if row is not None else None
            if node is not None:
                self._intake.upsert_node(replace(node, drained=""))  # which looks up what holds for it now

    def _tune(self, event: ControlSeen) -> None:
        state = self._state
        self.number = event.settings_number
        settings = event.settings or self._started_with
        if settings == state.settings:
            return
        state.settings, state.agenda = settings, Agenda()  # what was due by the old ones is looked at anew
        self._evaluation.tune(settings.rollout)
        state.log("settings_changed", number=event.settings_number)
