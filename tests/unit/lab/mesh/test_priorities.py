"""Priorities through a mesh: they change nothing where all pods have one, and reach agents where they differ."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from bench.policies.priorities import PriorityRanking, episode
from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod, NumpyDraws, thesis_pods
from lab.mesh.measured import SENSORS, MeasuredResult, play
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from shared.policy.marl.policy import MOST_RANK_COST, NAME

NODES = 2
COUNTS = [Agents(1), Agents(2), Agents(0)]


def crowd(first: int, second: int) -> list[EnvPod]:
    """So many pods that nodes are short; of each kind two workloads, with these priorities."""
    return [
        replace(
            pod,
            at_s=0.2 * pod.at_s,
            priority=(first, second)[number % 2],
            pod_class=msgspec.structs.replace(pod.pod_class, workload=f"{pod.pod_class.workload}-{number % 2}"),
        )
        for number, pod in enumerate(thesis_pods("uniform", NumpyDraws(500), nodes=2 * NODES)[:72])
    ]


def played(agents: Agents, first: int, second: int) -> MeasuredResult:
    return play(
        NamedPolicy(NAME), ThesisCluster.alike(NODES), crowd(first, second), agents, SENSORS, 500, measured_s=600.0
    )


@pytest.mark.parametrize("agents", COUNTS, ids=str)
def test_where_all_pods_have_one_priority_the_mesh_decides_as_without(agents):
    plain = played(agents, 0, 0)
    assert min(plain.work) < 0.8  # nodes are short
    for one in (-3, 2**40):
        found = played(agents, one, one)
        assert (found.work, found.imbalance) == (plain.work, plain.imbalance)


@pytest.mark.parametrize("agents", COUNTS, ids=str)
def test_where_they_differ_pods_of_the_higher_priority_get_more_done(agents):
    plain, ranked = (episode(PriorityRanking(NAME, cost=cost), agents, 3.0, 501) for cost in (0.0, MOST_RANK_COST))
    high, low, *_ = plain
    assert high == pytest.approx(low, abs=0.02)
    assert ranked[0] > max(high, ranked[1]) + 0.05
