"""The agents there are: which nodes each decides for, its view, its one request in flight, and whether it can be asked.

A change of agents assigns all nodes anew by ``partition.assign`` (stable: most stay). A single new node goes to the
agent that it prefers among those with room, without disturbing the others; when the partitions have drifted too far
apart, in nodes or in those of one kind, all are assigned anew. An agent that is silent or fails is *suspect*: left out
of cycles, asked again with a whole view now and then, trusted again once it answers. It stays the owner of its nodes
until its lease ends; that is for etcd to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter

from services.coordinator.agents.views import AgentRequest, AgentView
from services.coordinator.core.events import AgentsChanged, RequestFailed
from services.coordinator.core.instructions import PublishPartition, SendView
from services.coordinator.core.state import NEVER, CoordinatorState
from shared.model.node import Node
from shared.scheduling.partition import assign, kind_of, preferred
from shared.wire.messages import VERSION, ViewUpdate
from shared.wire.records import AgentRecord, filters_in

VIEW_DEADLINE_S = 1.0
"""Cycles wait so long for an agent that is being given its view; longer makes it suspect."""

REBALANCE_SLACK = 8
"""Partitions may differ by so many nodes on top of the share, so that small clusters are not dealt for nothing."""


class Ownership:
    """Agent id per node name; ``unowned``: nodes that no agent decides for."""

    def __init__(self, rebalance_share: float) -> None:
        self.epoch = 0
        self.agents: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.unowned: set[str] = set()
        self.kinds: dict[str, str] = {}
        """Of all nodes, owned or not (``partition.kind_of``)."""
        self.of_kind: dict[str, Counter[str]] = {}
        """How many nodes of each kind each agent has."""
        self._share = rebalance_share

    def set_agents(self, agents: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """The agents there are: id -> the one node it serves or "". Moves as (node, from, to); "" is nobody."""
        if dict(agents) == self.agents:
            return []
        self.agents = dict(agents)
        return self._deal()

    def add_nodes(self, nodes: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """New nodes, name -> kind; those known already are left where they are."""
        fresh = [name for name in nodes if name not in self.kinds]
        if not fresh:
            return []
        self.kinds.update((name, nodes[name]) for name in fresh)
        if len(fresh) * 4 > len(self.owner):
            # Many at once (a first list): dealing all anew costs no more and balances exactly.
            self.unowned.update(fresh)
            return self._deal()
        moves = []
        for name in fresh:
            agent = self._choose(name)
            self._put(name, agent)
            if agent:
                moves.append((name, "", agent))
        return moves

    def remove_node(self, name: str) -> str:
        """The node is gone; who decided for it, "" for nobody."""
        self.unowned.discard(name)
        kind, agent = self.kinds.pop(name, ""), self.owner.pop(name, "")
        if agent:
            self.sizes[agent] -= 1
            self.of_kind[kind][agent] -= 1
            if not any(self.of_kind[kind].values()):
                del self.of_kind[kind]
        return agent

    def change_kind(self, name: str, kind: str) -> None:
        """The node has another kind by now. It stays where it is, until partitions have drifted apart."""
        if self.kinds.get(name, kind) != kind:
            agent = self.remove_node(name)
            self.kinds[name] = kind
            self._put(name, agent)

    def rebalance(self) -> list[tuple[str, str, str]]:
        """Deal anew if the general partitions have drifted apart (many nodes of one agent were deleted)."""
        general = self._general()
        if len(general) < 2 or not any(self._apart(sizes, general) for sizes in (self.sizes, *self.of_kind.values())):
            return []
        return self._deal()

    def _general(self) -> list[str]:
        return sorted(agent for agent, node in self.agents.items() if not node)

    def _apart(self, sizes: Mapping[str, int], agents: Collection[str]) -> bool:
        counts = [sizes.get(agent, 0) for agent in agents]
        return max(counts) > sum(counts) / len(counts) * (1 + self._share) + REBALANCE_SLACK

    def _deal(self) -> list[tuple[str, str, str]]:
        before = self.owner
        self.owner = assign(self.kinds, self.agents)
        self.unowned = self.kinds.keys() - self.owner.keys()
        self.sizes = dict.fromkeys(self.agents, 0)
        self.of_kind.clear()
        for name, agent in self.owner.items():
            self.sizes[agent] += 1
            self.of_kind.setdefault(self.kinds[name], Counter())[agent] += 1
        self.epoch += 1
        moves = []
        for name in sorted(self.kinds):
            old, new = before.get(name, ""), self.owner.get(name, "")
            if old != new:
                moves.append((name, old, new))
        return moves

    def _choose(self, name: str) -> str:
        """As ``assign`` would for this node alone, the others staying where they are."""
        for agent, node in self.agents.items():
            if node == name:
                return agent
        general = self._general()
        for sizes in (self.of_kind.get(self.kinds[name], {}), self.sizes):
            full = -(-(sum(sizes.get(agent, 0) for agent in general) + 1) // max(1, len(general)))
            general = [agent for agent in general if sizes.get(agent, 0) < full] or general  # who has room
        return preferred(name, general)

    def _put(self, name: str, agent: str) -> None:
        if agent:
            self.owner[name] = agent
            self.sizes[agent] += 1
            self.of_kind.setdefault(self.kinds[name], Counter())[agent] += 1
        else:
            self.unowned.add(name)


class AgentRegistry:
    """Views by agent id."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.ownership = Ownership(state.settings.rebalance_share)
        self.views: dict[str, AgentView] = {}
        self._restless: dict[str, AgentView] = {}
        """Those that may be busy, suspect, or to be told of nodes: who is to be asked or told is looked for among
        these alone, however many agents there are."""
        self._owners: dict[str, AgentView] | None = None
        """Those that own nodes; None: not looked up since that changed."""
        self.since_empty = 0.0
        self._epochs = 0
        self._published: tuple[tuple[str, str], ...] | None = None

    # --- who is there -------------------------------------------------------------------------------------------

    def change(self, event: AgentsChanged) -> bool:
        """Agents joined, left or were restarted. True when one joined."""
        records = {record.id: record for record in event.agents}
        joined, had_any = False, bool(self.views)
        self._owners = None
        for agent in [a for a, view in self.views.items() if a not in records]:
            del self.views[agent]
            self._restless.pop(agent, None)
            self._state.log("agent_left", agent=agent)
        known = ((agent, record, self.views.get(agent)) for agent, record in records.items())
        changed = [one for one in known if one[2] is None or (one[2].record is not one[1] and one[2].record != one[1])]
        for agent, record, view in sorted(changed, key=itemgetter(0)):
            if view is None or view.record.incarnation != record.incarnation:
                joined = True
                self._state.log("agent_joined", agent=agent, url=record.url, node=record.node)
                if not self._filters_alike(record):
                    self._state.log(
                        "agent_filters_differ", level="warning", agent=agent, plugins=" ".join(record.plugins)
                    )
                view = self.views[agent] = AgentView(record, self._next_epoch(), pending=self._owned_by(agent))
                self._restless[agent] = view
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
            self._state.out.append(PublishPartition(self.ownership.epoch, agents))

    # --- nodes --------------------------------------------------------------------------------------------------

    def add_nodes(self, names: list[str]) -> None:
        """Nodes appeared."""
        table = self._state.cache.table
        nodes = (table.nodes[table.row_of[name]] for name in names)
        self._move(self.ownership.add_nodes({node.name: kind_of(node) for node in nodes if node is not None}))

    def change_node(self, node: Node) -> None:
        """Its labels or what it offers changed."""
        self.ownership.change_kind(node.name, kind_of(node))
        self._owners = None

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self._move([(name, self.ownership.remove_node(name), "")])

    def rebalance(self) -> None:
        """Deal anew if partitions drifted apart."""
        self._move(self.ownership.rebalance())

    # --- requests -----------------------------------------------------------------------------------------------

    def asked(self, view: AgentView, *, is_offer: bool) -> int:
        """The number of a request that goes to the agent now."""
        self._state.messages += 1
        view.request = AgentRequest(self._state.messages, self._state.now, is_offer)
        self._restless[view.record.id] = view
        return view.request.id

    def answered(self, agent: str, request: int, revision: int) -> tuple[AgentView, bool] | None:
        """The agent answered the request in flight, and whether its view stands at ``revision``, as it should; if not,
        it gets everything again. None when the answer is to nothing we wait for."""
        view = self.views.get(agent)
        if view is None or view.request is None or view.request.id != request:
            return None
        view.request = None
        view.failures = 0
        if view.suspect:
            view.suspect = False
            self._state.log("agent_recovered", agent=agent)
        in_step = revision == view.revision
        if not in_step:
            self._state.stats.resyncs += 1
            self._state.log("view_resynced", agent=agent, revision=revision, wanted=view.revision)
            view.reset(self._next_epoch(), self._owned_by(agent))
            self._restless[agent] = view
        if view.pending:
            self._state.agenda.views = self._state.now
        return view, in_step

    def failed(self, event: RequestFailed) -> AgentView | None:
        """No usable answer: suspect, and what it knows is not known any more."""
        view = self.views.get(event.agent)
        if view is None or view.request is None or view.request.id != event.request:
            return None
        view.request = None
        view.failures += 1
        self.suspect(view, event.code)
        view.retry_at = self._state.now + self._state.settings.suspect_retry_s
        self._state.agenda.views = min(self._state.agenda.views, view.retry_at)
        view.reset(self._next_epoch(), self._owned_by(event.agent))
        return view

    def suspect(self, view: AgentView, code: str) -> None:
        """Leave the agent out until it answers."""
        self._restless[view.record.id] = view
        if not view.suspect:
            view.suspect = True
            self._state.stats.silences += 1
            self._state.log("agent_suspected", level="warning", agent=view.record.id, code=code)

    # --- what goes out ------------------------------------------------------------------------------------------

    def push_views(self) -> None:
        """Send the next piece to every idle agent that lacks nodes; a suspect one is asked again when it is time."""
        now = self._state.now
        for view in self._unsettled():
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
            update = ViewUpdate(VERSION, self.asked(view, is_offer=False), 0, self._state.term, piece)
            self._state.out.append(SendView(view.record.id, view.record.url, update))
        self._state.agenda.views = self.wake_at()

    def askable(self, asked: Collection[str] = ()) -> tuple[list[AgentView], list[AgentView], int]:
        """Owners of nodes that are trusted; those of them that are idle, and not among ``asked``; and how many owners a
        cycle goes on without."""
        if self._owners is None:
            self._owners = {agent: view for agent, view in self.views.items() if self.ownership.sizes.get(agent)}
        unsettled = [view for view in self._unsettled() if view.record.id in self._owners]
        suspect = {view.record.id for view in unsettled if view.suspect}
        owners = [*self._owners.values()]
        if suspect:
            owners = [view for view in owners if view.record.id not in suspect]
        away = {view.record.id for view in unsettled}.union(asked)
        return owners, [view for view in owners if view.record.id not in away] if away else owners, len(suspect)

    def nobody(self) -> str:
        """Why no agent decides for any node, once they are not only late; "" when some do, or may come."""
        late = self._state.now >= self.since_empty + self._state.settings.agents_grace_s
        if not late or any(self.ownership.sizes.values()):
            return ""
        return "no agent decides for any of the nodes" if self.views else "no agents are registered"

    def wake_at(self) -> float:
        """When an agent is to be told or asked again or becomes suspect, or is missed where there is none."""
        grace_over_at = self.since_empty + self._state.settings.agents_grace_s
        times = []
        if self._state.now < grace_over_at and not any(self.ownership.sizes.values()):
            times.append(grace_over_at)
        for view in self._unsettled():
            if view.request is None and view.suspect:
                times.append(view.retry_at)
            elif view.request is None and view.pending:
                times.append(self._state.now)
            elif view.request is not None and not view.request.is_offer and not view.suspect:
                times.append(view.request.sent_at + VIEW_DEADLINE_S)
        return min(times, default=NEVER)

    def _filters_alike(self, record: AgentRecord) -> bool:
        """Whether it judges by our filters. One with others gets no nodes: its answers would be refused again and
        again, or leave out what would do."""
        return _filters_in(record.plugins) == self._state.settings.profile.names

    def validate(self) -> Iterator[str]:
        """One line per agent that would not be asked, or told, as it should."""
        for agent, view in self.views.items():
            if not view.settled and self._restless.get(agent) is not view:
                yield f"agent-restless: {agent} is busy, suspect or to be told of nodes, and is not looked for"
            owns = bool(self.ownership.sizes.get(agent))
            if self._owners is not None and (self._owners.get(agent) is view) != owns:
                yield f"agent-owner: {agent} {'owns' if owns else 'does not own'} nodes, and is taken for otherwise"

    # --- inside -------------------------------------------------------------------------------------------------

    def _unsettled(self) -> list[AgentView]:
        """Those that are busy, suspect, or to be told of nodes."""
        found = {agent: view for agent, view in self._restless.items() if not view.settled}
        if len(found) < len(self._restless):
            self._restless = found
        return [*found.values()]

    def _move(self, moves: list[tuple[str, str, str]]) -> None:
        for name, old, new in moves:
            for agent in (old, new):
                if (view := self.views.get(agent)) is not None:
                    view.pending.add(name)
                    self._restless[agent] = view
        self._owners = None
        self._state.agenda.views = self._state.now

    def _owned_by(self, agent: str) -> set[str]:
        return {name for name, owner in self.ownership.owner.items() if owner == agent}

    def _next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs


_filters_in = lru_cache(maxsize=64)(filters_in)
"""Thousands of agents have the same plug-ins, and all are looked at as one comes or goes."""
