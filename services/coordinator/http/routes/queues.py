"""Queues: the tree with use and limits, who waits in one, and when a job that does not exist yet would start."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from services.coordinator.http.desk import Desk
from services.coordinator.http.slices import in_slices
from services.coordinator.inspect.queue_facts import capacity_of, queue_facts, queue_names, queue_of, simulated, tree_of
from services.coordinator.inspect.queues import QueueFacts, QueueShown, QueueWhole, shown, whole
from services.coordinator.inspect.simulation import Simulated, SimulatedJob, requests_of
from shared.model.units.pod_group import MAX_MEMBERS
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, key_token, token_key
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, RoutePage, Schema, row

PRIORITIES = 2**31
OF_NAMESPACE = "-"
"""No Queue can have this name."""

Members = Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMBERS)]


class QueuesAnswer(RoutePage, frozen=True, kw_only=True):
    """Each queue before those below it, siblings by name. ``unqueued_units``: those that wait in no queue: no quota
    holds them."""

    unqueued_units: int
    items: list[QueueShown]


class OneQueueAnswer(QueueWhole, RouteAnswer, frozen=True, kw_only=True):
    """One queue and its units."""


class SimulateQuery(Schema, frozen=True, kw_only=True):
    """A job that does not exist: so many members, each of which requests this. ``requests``: as in a pod,
    ``cpu=2,memory=4Gi,nvidia.com/gpu=1``; ``minCount``: so many run at once, or none; by default all."""

    members: Members = 1
    min_count: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)] = msgspec.field(default=0, name="minCount")
    requests: Annotated[str, msgspec.Meta(max_length=1024, extra_json_schema={"pattern": "^$"})] = ""
    priority: Annotated[int, msgspec.Meta(ge=-PRIORITIES, le=PRIORITIES)] = 0
    namespace: Annotated[str, msgspec.Meta(max_length=63)] = "default"


class SimulateAnswer(Simulated, RouteAnswer, frozen=True, kw_only=True):
    """When it would start, and whom it would displace, as things stand now: no promise."""


async def listed(desk: Desk, ask: Ask[PageQuery, Any]) -> QueuesAnswer:
    """A page of queues. The token names a queue; where that is gone the page begins at the next of its name."""
    core, query, now = desk.core, ask.query, desk.clock()
    names = queue_names(core)
    if query.continue_:
        after = token_key(query.continue_, str)
        names = names[names.index(after) + 1 :] if after in names else [name for name in names if name > after]
    chosen, capacity = names[: query.limit], capacity_of(core)
    found = [facts for name in chosen if (facts := queue_facts(core, name, now)) is not None]
    return QueuesAnswer(
        unqueued_units=len(tree_of(core).structure.root.own.units),
        items=[shown(facts, capacity) for facts in found],
        continue_=key_token(chosen[-1]) if len(names) > len(chosen) else "",
    )


async def one(desk: Desk, ask: Ask[Any, Any]) -> OneQueueAnswer:
    """One queue. Refused: 404 ``queue_unknown``."""
    found = whole(_facts(desk, ask.path["name"]), capacity_of(desk.core))
    return OneQueueAnswer(**{name: getattr(found, name) for name in QueueWhole.__struct_fields__})


async def simulation(desk: Desk, ask: Ask[SimulateQuery, Any]) -> SimulateAnswer:
    """When the job would start; for the name ``-`` in the queue to which the namespace belongs. Refused: 404
    ``queue_unknown``, 422 ``invalid_value``."""
    query, name = ask.query, ask.path["name"]
    if name == OF_NAMESPACE:
        name = queue_of(desk.core, query.namespace, {})
        if not name:
            text = f"namespace: no Queue has {query.namespace} among its namespaces; name the Queue"
            raise RequestRefused(text, code="queue_unknown")
    if name not in queue_names(desk.core):
        raise _unknown(name)
    least = query.min_count or query.members
    if least > query.members:
        text = f"minCount: {least} of {query.members} members; ask for fewer, or for more members"
        raise RequestRefused(text, code="invalid_value")
    try:
        requests = requests_of(query.requests)
    except ValueError as error:
        raise RequestRefused(str(error), code="invalid_value") from None
    job = SimulatedJob(name, query.namespace, query.members, least, requests, query.priority)
    found, _ = await in_slices(simulated(desk.core, job, desk.clock()), desk.clock)
    return SimulateAnswer(**{name: getattr(found, name) for name in Simulated.__struct_fields__})


def _facts(desk: Desk, name: str) -> QueueFacts:
    facts = queue_facts(desk.core, name, desk.clock(), units=True)
    if facts is None:
        raise _unknown(name)
    return facts


def _unknown(name: str) -> RequestRefused:
    return RequestRefused(f"there is no Queue {name}; list the queues", code="queue_unknown")


ROUTES = (
    row("GET", "/v1/queues", Role.VIEWER, "The queues with what they use and may use", listed, cost=2,
        fresh_s=SLOW_FRESH_S),
    row("GET", "/v1/queues/{name}", Role.VIEWER, "One queue, and the units in it in turn", one, cost=5,
        errors=("queue_unknown",), fresh_s=SLOW_FRESH_S),
    row("GET", "/v1/queues/{name}/simulate", Role.VIEWER, "When a job would start, and whom it would displace",
        simulation, cost=100, errors=("queue_unknown", "invalid_value")),
)  # fmt: skip
