"""What a placement is worth on a captured cluster: by how even it leaves unlike nodes, by how few of them it fills, by
how near they are; between nothing and the most there is, whatever nodes and pods are like."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod
from lab.worlds.placement.captured_cluster import DrawnEpisode
from lab.worlds.placement.captured_placement import (
    MOST_REWARD,
    CapturedPlacement,
    even_reward,
    few_nodes_reward,
    near_and_few_reward,
)
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU, MEMORY, PODS
from twin.model.usage import UsageNow

GIB = 1 << 30


def env(
    *cores: int, asks: tuple[int, int] = (1000, GIB), latencies_ms: tuple[int, ...] = (), pods: int = 6
) -> CapturedPlacement:
    """Nodes of so many cores and GiB, and equal pods one after the other."""
    nodes = tuple(
        Node(
            f"n{number}", allocatable={CPU: each * 1000, MEMORY: each * GIB, PODS: 110},
            latency_us=latencies_ms[number] * 1000 if latencies_ms else -1,
        )
        for number, each in enumerate(cores)
    )  # fmt: skip
    limits = {"latency_soft_us": 10_000, "latency_hard_us": 30_000} if latencies_ms else {}
    amounts = tuple((name, amount) for name, amount in zip((CPU, MEMORY), asks, strict=True) if amount)
    one = PodClass(requests=amounts, **limits)  # type: ignore[arg-type]
    came = tuple(EnvPod(float(at), 9999.0, UsageNow(), one) for at in range(pods))
    shape = (len(cores), 4)
    return CapturedPlacement(DrawnEpisode(ThesisCluster(nodes, np.full(shape, np.inf), np.zeros(shape)), came), 1)


def test_the_first_node_taken_into_use_is_worth_more_the_more_it_would_hold() -> None:
    world = env(4, 32, 8)
    assert [few_nodes_reward(world, row).reward for row in range(3)] == pytest.approx([1.25, 10.0, 2.5])


def test_a_node_in_use_is_worth_more_than_any_other_and_rank_is_worth_nothing() -> None:
    world = env(4, 32, 32)
    world.place(1)
    assert [few_nodes_reward(world, row).reward for row in (1, 2, 0)] == pytest.approx([10.0, 5.0, 0.625])
    world.place(0)
    assert few_nodes_reward(world, 0).reward == few_nodes_reward(world, 1).reward == 5.0


def test_more_nodes_are_no_loss_where_more_are_needed() -> None:
    world = env(4, 4, asks=(3000, GIB))
    world.place(0)
    assert few_nodes_reward(world, 1).reward == MOST_REWARD


def test_a_nearer_node_is_worth_more_than_any_saving() -> None:
    world = env(4, 64, 64, latencies_ms=(5, 20, 50))
    worth = [near_and_few_reward(world, row).reward for row in range(3)]
    assert worth[0] > worth[1] > worth[2]
    near = env(4, 64, latencies_ms=(5, 8))
    assert near_and_few_reward(near, 1).reward > near_and_few_reward(near, 0).reward


@pytest.mark.parametrize("reward", [even_reward, few_nodes_reward, near_and_few_reward])
@pytest.mark.parametrize("cores", [(0, 0), (0, 4), (1, 64)])
@pytest.mark.parametrize("asks", [(0, 0), (0, GIB), (1000, GIB)])
def test_nothing_divides_by_zero(reward: object, cores: tuple[int, ...], asks: tuple[int, int]) -> None:
    world = env(*cores, asks=asks)
    while not world.finished:
        row = int(world.rows()[-1])
        with np.errstate(all="raise"):
            worth = reward(world, row).reward  # type: ignore[operator]
        assert 0.0 <= worth <= MOST_REWARD
        world.place(row)
