"""What must hold in a coordinator between two turns, checked in full: tests do so after each turn, people by ``conclave
dump --check``, and a process with ``validate`` in its settings after each batch of events.

Each line names the invariant first, then what breaks it. Reads the core and changes nothing; costs as much as all pods,
nodes and views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.coordinator.core.state import NEVER
from shared.scheduling.places import Place

if TYPE_CHECKING:
    from services.coordinator.agents.views import AgentView
    from services.coordinator.core.core import Core


def validate(core: Core) -> list[str]:
    """Every invariant that does not hold; empty while all is well."""
    return [
        *core.state.cluster.validate(),
        *core.state.queue.validate(),
        *core.state.queues.validate(),
        *core.queues.validate(),
        *_places(core),
        *_plans(core),
        *_nominations(core),
        *(
            f"gives-way: {uid} is asked to leave and stands nowhere"
            for uid in core.giving_way.asked
            if uid not in core.state.cache.accounts
        ),
        *(f"gives-way: {line}" for line in core.giving_way.validate()),
        *_ownership(core),
        *_agenda(core),
        *_cycles(core),
        *core.registry.validate(),
        *(line for view in core.registry.views.values() for line in _view(core, view)),
    ]


def _places(core: Core) -> Iterator[str]:
    """Every pending pod of ours is in exactly one place (I3)."""
    state, offered = core.state, _offered(core)
    yield from state.groups.validate()
    for uid, entry in state.queue.entries.items():
        placed = uid in core.ledger.placed
        if entry.place is Place.IN_FLIGHT and not placed and uid not in offered:
            yield f"one-place: {uid} was taken off the queue, and is neither offered nor planned"
        if entry.place is not Place.IN_FLIGHT and placed:
            yield f"one-place: {uid} is {entry.place.value} and planned"
        if uid in core.takeover.held:
            yield f"one-place: {uid} is {entry.place.value}, and held for an inherited intent"
        if uid in state.gated:
            yield f"one-place: {uid} is {entry.place.value} and gated"


def _offered(core: Core) -> set[str]:
    """Pods that the cycles are about."""
    return {uid for current in core.cycle.open for uid in current.uids} | {pod.uid for pod in core.cycle.examined}


def _cycles(core: Core) -> Iterator[str]:
    """Cycles that are open beside each other share no pod and no agent, and none is asked of all."""
    cycles, most = core.cycle.open, core.cycle.most
    if len(cycles) > most:
        yield f"cycles: {len(cycles)} are open, and {most} may be"
    for uid, times in Counter(uid for current in cycles for uid in current.uids).items():
        if times > 1:
            yield f"cycles: {uid} is offered {times} times"
    for agent, times in Counter(agent for current in cycles for agent in current.asked).items():
        if times > 1:
            yield f"cycles: {agent} is asked by {times} that are open"
    for current in cycles if len(cycles) > 1 else ():
        for number, one in current.classes.items():
            if not one.sole:
                yield f"cycles: class {number} is asked of all, and another cycle is open"
        if not current.waiting.keys() <= current.asked:
            yield "cycles: one waits for an agent that it did not ask"


def _plans(core: Core) -> Iterator[str]:
    """Open plans and assumed pods belong together (I2: what is assumed counts)."""
    accounts, ledger, held = core.state.cache.accounts, core.ledger, core.takeover.held
    placing = {uid for current in core.cycle.open if current.placing is not None for uid in current.uids}
    for uid, account in accounts.items():
        known = uid in ledger.placed or uid in held or uid in placing
        if account.assumed_at is not None and not known:
            yield f"assumed: {uid} is assumed on {account.node_name} and in no plan"
    for uid in held:
        if uid not in accounts:
            yield f"assumed: {uid} is held for an inherited intent and counted nowhere"
    for uid in core.takeover.unwatched() if held else ():
        yield f"assumed: {uid} is held for an inherited intent that is gone, and nobody asks about it"
    for uid, placed in ledger.placed.items():
        plan = ledger.plans.get(placed.plan_id)
        if plan is None and not placed.answered and placed.plan_id not in core.outcomes.unfinished:
            yield f"plan-open: {uid} waits for plan {placed.plan_id}, which is not open"
        if plan is not None and all(placement.uid != uid for placement in plan.plan.placements):
            yield f"plan-open: {uid} waits for plan {placed.plan_id}, which does not name it"
        there = accounts.get(uid)
        if not placed.answered and (there is None or there.node_name != placed.placement.node):
            yield f"assumed: {uid} is planned for {placed.placement.node}, which does not count it"


def _nominations(core: Core) -> Iterator[str]:
    """Nobody is asked to leave for a pod of which etcd does not have where it is to go, nor does it have that of others
    than those that wait: the next leader goes on by it."""
    nominations, state = core.nominations, core.state
    waiting = state.queue.entries.keys() | state.gated.keys() | state.untried.keys() | core.takeover.held.keys()
    for uid, known in nominations.made.items():
        if known.evicting and uid not in known.stored:
            yield f"nominated-first: others are to leave for {uid}, and etcd was not told where it is to go"
    for uid in nominations.records.kept.keys() - waiting if state.started else ():
        yield f"nominated-first: etcd is to keep where {uid} is to go, which does not wait"


def _agenda(core: Core) -> Iterator[str]:
    """Nobody is stepped later than he has something to do: what is not on the agenda is never asked."""
    agenda, now = core.state.agenda, core.state.now
    if not core.state.started:
        return
    for name, at, wanted in (
        ("latencies", agenda.latencies, core.variants.nodes.expires_s),
        ("results", agenda.results, now if core.outcomes.busy else NEVER),
        ("ledger", agenda.ledger, core.ledger.wake_at()),
        ("views", agenda.views, core.registry.wake_at()),
        ("waking", agenda.waking, now if core.requeuer.busy else NEVER),
        ("evaluation", agenda.evaluation, core.evaluation.wake_at()),
        ("telling", agenda.telling, core.reporter.wake_at()),
    ):
        if at > wanted:
            yield f"agenda: {name} has something to do at {wanted:.3f} and is stepped at {at:.3f}"


def _ownership(core: Core) -> Iterator[str]:
    """Every node has one agent, or is known to have none."""
    ownership = core.registry.ownership
    nodes, owned_by = core.state.cache.table.row_of.keys(), ownership.owner
    owned = owned_by.keys()
    for name in nodes ^ (owned | ownership.unowned):
        yield f"owned: {name} is {'a node' if name in nodes else 'no node'}, and dealt out otherwise"
    for name in owned & ownership.unowned:
        yield f"owned: {name} has an agent and is listed as without"
    for agent, size in ownership.sizes.items():
        count = sum(owner == agent for owner in ownership.owner.values())
        if size != count:
            yield f"owned: {agent} is counted with {size} nodes and has {count}"
    of_kind = Counter((ownership.kinds[name], agent) for name, agent in owned_by.items() if name in ownership.kinds)
    counted = {(kind, agent): n for kind, sizes in ownership.of_kind.items() for agent, n in sizes.items() if n}
    if counted != of_kind or ownership.kinds.keys() != nodes:
        yield "owned: nodes are counted by other kinds than they have"


def _view(core: Core, view: AgentView) -> Iterator[str]:
    """What an agent was told is what its slots mean; what it is still to be told is noted."""
    agent, table, owner = view.record.id, core.state.cache.table, core.registry.ownership.owner
    if view.slots != {row: name for name, (row, _, _) in view.sent.items()}:
        yield f"view: the slots of {agent} are not those of the nodes it was sent"
    if view.stamp > table.clock or (view.sent and not view.revision):
        yield f"view: {agent} is said to know more than there is"
    for name, (row, _, _) in view.sent.items():
        if name not in view.pending and (owner.get(name) != agent or table.row_of.get(name) != row):
            yield f"view: {agent} was sent {name}, which is not its any more, and will not be told"
    for name, owning in owner.items():
        if owning == agent and name not in view.sent and name not in view.pending:
            yield f"view: {agent} owns {name} and will not be told"
    for current in core.cycle.open:
        request = current.waiting.get(agent)
        if request is not None and (view.request is None or view.request.id != request):
            yield f"cycle-waits: a cycle waits for {agent}, which has no offer of it"
