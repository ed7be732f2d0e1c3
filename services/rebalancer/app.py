"""The rebalancer's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: read, plan, move --lost--> exit code 3

A standby holds no Kubernetes watch and no state; what outlives a leader is the record of the rollout and the board in
etcd, the history of moves in the cluster, and the reservations of a round, which the next one sweeps.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from services.rebalancer.admin import RebalancerAdmin
from services.rebalancer.core.rounds import PlanGuard
from services.rebalancer.io.records import RebalanceRecords
from services.rebalancer.settings import RebalancerSettings
from services.rebalancer.standing import StandingRebalancer
from shared.adapters.kube.api import KubeClient
from shared.decide.guard import Guard
from shared.decide.judging import MOST_GAP_S, WINDOW_S, Judge
from shared.decide.pair import PolicyPair
from shared.kube.reservations import RESERVATIONS
from shared.kube.resources import NODES, PODS, Resource
from shared.rebalance.domain import POLICIES, REBALANCE
from shared.rebalance.plan import MovePlan
from shared.rebalance.planner import ClusterSituation, PlanRequest
from shared.runtime.leading import Begun, on_cluster, stand
from shared.runtime.lease.leadership import Leadership
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service, boottime

NEEDED: tuple[Resource[Any], ...] = (PODS, NODES, RESERVATIONS)


async def main(service: Service, settings: RebalancerSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    async with on_cluster(service, settings, "rebalancer", lambda run, _: RebalancerAdmin(run.id)) as (
        runtime, api, admin,
    ):  # fmt: skip
        await stand(
            runtime, admin, partial(_begin, runtime, api), key=runtime.keys.leader(REBALANCE.name), role="rebalancer",
            ready=runtime.ready, drain=StandingRebalancer.drain,
        )  # fmt: skip


def planner(name: str) -> PlanGuard:
    """The goal's planner behind its guard. ``ConfigError``: there is no such goal."""
    return Guard(POLICIES.entry(name).maker(), REBALANCE.limits, clock=time.thread_time)


def stay() -> PlanGuard:
    """The settings' policy."""

    def nobody(_there: ClusterSituation, asked: PlanRequest, _now: float) -> MovePlan:
        return MovePlan(asked.goal, "", 0.0, 0.0)

    return Guard(nobody, REBALANCE.limits)


async def _begin(
    runtime: Runtime[RebalancerSettings], api: KubeClient, term: int, leadership: Leadership
) -> Begun[StandingRebalancer]:
    """One term."""
    settings, health = runtime.settings, runtime.health
    needed = await asyncio.gather(*(api.may_list(kind) for kind in NEEDED))
    refused = ", ".join(kind.plural for kind, may in zip(NEEDED, needed, strict=True) if not may)
    health.note("lists", f"nobody is moved: we may not list {refused}; apply k8s/components/rebalancer" * bool(refused))
    gap_s = max(MOST_GAP_S, 2 * settings.every_s)
    judge = partial(Judge, REBALANCE, length_s=max(WINDOW_S, gap_s), most_gap_s=gap_s)
    pair: PolicyPair[PlanGuard] = PolicyPair(stay(), make=planner, judge=judge)
    records = RebalanceRecords(runtime.store, runtime.keys, term)
    standing = StandingRebalancer(
        api, records, pair, settings, leadership, term=term, clock=boottime, note=health.note
    )  # fmt: skip
    return standing, [standing.run(), standing.tell(), standing.follow(), standing.heed()]
