"""The agents there are: their views, their one request in flight, and whether they can be asked.

Sits between ownership (who decides for what) and rounds (who is asked now). An agent that is silent or fails is
*suspect*: left out of rounds, asked again with a whole view now and then, trusted again once it answers. It stays the
owner of its nodes until its lease ends; that is for etcd to say, not for us.
"""

from __future__ import annotations

from services.coordinator.agents.ownership import Ownership
from services.coordinator.agents.views import AgentView, Request
from services.coordinator.core.events import AgentsChanged, RequestFailed, ViewAcked
from services.coordinator.core.instructions import PublishPartition, SendView
from services.coordinator.core.state import State
from shared.wire.messages import VERSION, ViewUpdate
from shared.wire.records import AgentRecord, filters_in

VIEW_DEADLINE_S = 1.0
"""Rounds wait so long for an agent that is being given its view; longer makes it suspect."""


class Roster:
    """Views by agent id."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.ownership = Ownership(state.settings.rebalance_share)
        self.views: dict[str, AgentView] = {}
        self.since_empty = 0.0
        self._epochs = 0
        self._published: tuple[tuple[str, str], ...] | None = None

    # --- who is there -------------------------------------------------------------------------------------------

    def change(self, event: AgentsChanged) -> bool:
        """Agents joined, left or were restarted. True when one joined."""
        records = {record.id: record for record in event.agents}
        joined, had_any = False, bool(self.views)
        for agent in [a for a, view in self.views.items() if a not in records]:
            del self.views[agent]
            self._state.log("agent_left", agent=agent)
        for agent, record in sorted(records.items()):
            view = self.views.get(agent)
            if view is not None and view.record == record:
                continue
            if view is None or view.record.incarnation != record.incarnation:
                joined = True
                self._state.log("agent_joined", agent=agent, url=record.url, node=record.node)
                if not self._filters_alike(record):
                    self._state.log(
                        "agent_filters_differ", level="warning", agent=agent, plugins=" ".join(record.plugins)
                    )
                self.views[agent] = AgentView(record, self._next_epoch(), pending=self._owned_by(agent))
            else:
                view.record = record
        if had_any and not self.views:
            self.since_empty = self._state.now
        owners = {agent: record.node for agent, record in records.items() if self._filters_alike(record)}
        self._move(self.ownership.set_agents(owners))
        self.publish()
        return joined

    def publish(self) -> None:
        """Let everybody see which agents the partition is computed from; once per change, while leading."""
        agents = tuple(sorted(self.ownership.agents.items()))
        if self._state.started and self._published != agents:
            self._published = agents
            self._state.stats.partitions += 1
            self._state.emit(PublishPartition(self.ownership.epoch, agents))

    # --- nodes --------------------------------------------------------------------------------------------------

    def add_nodes(self, names: list[str]) -> None:
        """Nodes appeared."""
        self._move(self.ownership.add_nodes(names))

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        agent = self.ownership.remove_node(name)
        if agent in self.views:
            self.views[agent].pending.add(name)

    def rebalance(self) -> None:
        """Deal anew if partitions drifted apart."""
        self._move(self.ownership.rebalance())

    # --- requests -----------------------------------------------------------------------------------------------

    def begin(self, view: AgentView, *, is_offer: bool) -> int:
        """A request goes out to the agent; its message_id."""
        message_id = self._state.next_message_id()
        view.request = Request(message_id, self._state.now, is_offer)
        return message_id

    def answered(self, agent: str, request: int) -> AgentView | None:
        """The agent answered the request in flight; None when the answer is to nothing we wait for."""
        view = self.views.get(agent)
        if view is None or view.request is None or view.request.id != request:
            return None
        view.request = None
        view.failures = 0
        if view.suspect:
            view.suspect = False
            self._state.log("agent_recovered", agent=agent)
        return view

    def acked(self, event: ViewAcked) -> None:
        """A piece of the view was applied, or the agent asks for everything again."""
        view = self.answered(event.agent, event.request)
        if view is not None:
            self.check_revision(view, event.ack.revision)

    def check_revision(self, view: AgentView, revision: int) -> bool:
        """Whether the agent stands where we think; if not, it gets everything again."""
        if revision == view.revision:
            return True
        self._state.stats.resyncs += 1
        self._state.log("view_resynced", agent=view.record.id, revision=revision, wanted=view.revision)
        self._reset(view)
        return False

    def failed(self, event: RequestFailed) -> AgentView | None:
        """No usable answer: suspect, and what it knows is not known any more."""
        view = self.views.get(event.agent)
        if view is None or view.request is None or view.request.id != event.request:
            return None
        view.request = None
        view.failures += 1
        self.suspect(view, event.code)
        view.retry_at = self._state.now + self._state.settings.suspect_retry_s
        self._reset(view)
        return view

    def suspect(self, view: AgentView, code: str) -> None:
        """Leave the agent out until it answers."""
        if not view.suspect:
            view.suspect = True
            self._state.stats.silences += 1
            self._state.log("agent_suspected", level="warning", agent=view.record.id, code=code)

    # --- what goes out ------------------------------------------------------------------------------------------

    def push_views(self) -> None:
        """Send the next piece to every idle agent that lacks nodes; a suspect one is asked again when it is time."""
        now = self._state.now
        for view in self.views.values():
            if view.request is not None:
                if not view.request.is_offer and now >= view.request.sent_at + VIEW_DEADLINE_S:
                    self.suspect(view, "silent")
                continue
            if view.suspect and now < view.retry_at:
                continue
            if not view.pending and not view.suspect:
                continue
            piece = view.piece(self._state.cache.table, self.ownership.owner)
            if piece is None:
                # nothing to say to a suspect agent that owns nothing: it is trusted when it gets nodes
                view.suspect = view.suspect and view.revision > 0
                view.retry_at = now + self._state.settings.suspect_retry_s
                continue
            message_id = self.begin(view, is_offer=False)
            update = ViewUpdate(VERSION, message_id, 0, self._state.term, piece)
            self._state.emit(SendView(view.record.id, view.record.url, update))

    def askable(self) -> list[AgentView] | None:
        """Whom a round may ask now: every owner that is not suspect. None: somebody is still busy, wait."""
        ready = []
        for view in self.views.values():
            if view.suspect or not self.ownership.sizes.get(view.record.id):
                continue
            if view.request is not None or view.pending:
                return None
            ready.append(view)
        return ready

    def somebody_owns(self) -> bool:
        """Whether any agent decides for any node."""
        return any(self.ownership.sizes.values())

    def grace_over_at(self) -> float:
        """Until when a mesh without agents says nothing: they may only be late."""
        return self.since_empty + self._state.settings.agents_grace_s

    def suspects(self) -> int:
        """Owners that rounds go on without."""
        return sum(1 for v in self.views.values() if v.suspect and self.ownership.sizes.get(v.record.id))

    def wake_at(self) -> float | None:
        """When an agent is to be asked again or becomes suspect."""
        times = []
        for view in self.views.values():
            if view.request is None and view.suspect:
                times.append(view.retry_at)
            elif view.request is not None and not view.request.is_offer and not view.suspect:
                times.append(view.request.sent_at + VIEW_DEADLINE_S)
        return min(times, default=None)

    def _filters_alike(self, record: AgentRecord) -> bool:
        """Whether it judges by our filters. One with others gets no nodes: its answers would be refused again and
        again, or leave out what would do."""
        return filters_in(record.plugins) == self._state.settings.profile.names

    # --- inside -------------------------------------------------------------------------------------------------

    def _move(self, moves: list[tuple[str, str, str]]) -> None:
        for name, old, new in moves:
            for agent in (old, new):
                if agent in self.views:
                    self.views[agent].pending.add(name)

    def _reset(self, view: AgentView) -> None:
        view.reset(self._next_epoch(), self._owned_by(view.record.id))

    def _owned_by(self, agent: str) -> set[str]:
        return {name for name, owner in self.ownership.owner.items() if owner == agent}

    def _next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs
