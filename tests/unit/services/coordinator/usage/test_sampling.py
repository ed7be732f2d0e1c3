"""What nodes use: read while a policy wants it, told to each agent once, counted into the cluster's means."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import SendOffer
from services.coordinator.usage.measured import MeasuredNodes
from services.coordinator.usage.sampling import MetricsLooks, follow
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.nodes.node_metrics import NodeMetric
from shared.policy.marl.policy import MarlDqn
from shared.policy.observation import Need
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.marl_weights import weights
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.scene import Scene

MARL = PolicyRef("marl-dqn", 1, "a" * 64)


def scene(active: PolicyRef = MARL) -> Scene:
    made = Scene(agents=2)
    for number in range(4):
        made.add_node(make_node(f"n{number}").allocatable(cpu="4", memory="8Gi", pods="110").node())
    made.begin()
    made.run()
    for agent in made.agents.values():
        if active == MARL:
            agent.lanes.use(MARL, MarlDqn(weights()))
    made.inbox.append(PointerSeen(PolicyPointer(active=active, number=1)))
    made.run()
    return made


def come(made: Scene, name: str) -> list[SendOffer]:
    made.trace.clear()
    made.add_pod(make_pod(name).cpu("100m").memory("128Mi").pod())
    made.run()
    return made.of(SendOffer)


def test_samples_reach_each_agent_about_its_own_nodes_once() -> None:
    made = scene()
    measured = tuple(NodeSample(f"n{number}", 2.0, 1000 * number, 0) for number in range(4))
    made.deliver(NodesMeasured((*measured, NodeSample("gone", 2.0, 1, 1))))
    first, second = come(made, "a"), come(made, "b")
    assert sorted(len(send.offer.samples) for send in first) == [2, 2]
    assert all(use.age_ms == 2000 for send in first for use in send.offer.samples)
    assert [send.offer.samples for send in second] == [[], []]
    for agent in made.agents.values():
        slots = np.array([agent.lanes.store.nodes[name] for name in agent.replica.table.row_of])
        expected = [int(name[1:]) / 4 for name in agent.replica.table.row_of]
        np.testing.assert_allclose(agent.lanes.store.samples(slots)[:, 0], expected)


def test_the_clusters_means_are_of_what_was_measured() -> None:
    made = scene()
    assert come(made, "a")[0].offer.cluster[0] == 0.0
    made.now += 5.0  # the pod has started and shows in the sample
    made.deliver(NodesMeasured(tuple(NodeSample(f"n{number}", 0.0, 2000, 0) for number in range(4))))
    cluster = come(made, "b")[0].offer.cluster
    assert cluster[0] == pytest.approx(0.5)
    agent = next(iter(made.agents.values()))
    assert agent.lanes.store.cluster is not None
    np.testing.assert_allclose(agent.lanes.store.cluster, cluster)


def test_where_no_policy_looks_at_use_nothing_is_told() -> None:
    made = scene(PolicyRef("kube-default", 1))
    assert not made.core.variants.needs & {Need.USAGE, Need.CLUSTER_MEANS, Need.WORKLOADS}
    assert all(send.offer.cluster == [] for send in come(made, "a"))


class Metrics:
    """Answers in order; the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def node_metrics(self):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run_until(api: Metrics, *, wanted: bool = True, events: int = 1) -> list:
    posted: list = []
    done = asyncio.Event()

    def post(event) -> None:
        posted.append(event)
        if len(posted) >= events:
            done.set()

    following = asyncio.create_task(
        follow(api, every_s=lambda: 0.001, retuned=asyncio.Event(), wanted=lambda: wanted, post=post)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
    finally:
        following.cancel()
    return posted


async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    posted = await run_until(Metrics(KubeUnknown("no answer"), [NodeMetric("n0", 0.0, 1, 1)]))
    assert isinstance(posted[0], NodesMeasured)


async def test_what_a_server_tells_again_is_not_new() -> None:
    """Its clock is far ahead of ours: each answer would be of now, for ever."""
    standing, moved = [NodeMetric("n0", 4e9, 1, 1)], [NodeMetric("n0", 4e9 + 15, 1, 1)]
    posted = await run_until(Metrics(standing, standing, moved), events=3)
    assert [len(event.samples) for event in posted] == [1, 0, 1]


async def test_nothing_is_asked_that_nobody_wants_and_an_unserved_api_only_once() -> None:
    for api, wanted in ((Metrics([]), False), (Metrics(KubeRejected("404", status=404)), True)):
        following = asyncio.create_task(
            follow(
                api, every_s=lambda: 0.001, retuned=asyncio.Event(), wanted=lambda w=wanted: w, post=lambda event: None
            )
        )
        for _ in range(20):
            await asyncio.sleep(0.001)
        following.cancel()
        assert api.asked == int(wanted)


async def test_a_shorter_interval_holds_before_the_longer_one_is_over() -> None:
    every, retuned, asked = [3600.0], asyncio.Event(), asyncio.Queue[object]()
    api = Metrics([NodeMetric("n0", 0.0, 1, 1)])
    following = asyncio.create_task(
        follow(api, every_s=lambda: every[0], retuned=retuned, wanted=lambda: True, post=asked.put_nowait)
    )
    async with asyncio.timeout(PATIENCE_S):
        await asked.get()
        every[0] = 0.001
        retuned.set()
        await asked.get()
    following.cancel()


def test_a_sample_of_the_future_is_new_and_one_of_long_ago_is_left_out() -> None:
    metrics = [NodeMetric("new", 1010.0, 1, 1), NodeMetric("old", -9000.0, 1, 1), NodeMetric("n", 990.0, 5, 6)]
    assert MetricsLooks().samples(metrics, 1000.0) == (NodeSample("new", 0.0, 1, 1), NodeSample("n", 10.0, 5, 6))


@pytest.mark.parametrize("off_s", [-3660.0, -400.0, 3660.0])
def test_of_a_node_whose_clock_is_off_one_line_says_so_and_what_it_uses_counts(off_s: float) -> None:
    looks, nodes = MetricsLooks(), MeasuredNodes()
    for now in range(100_000, 100_900, 15):
        nodes.take(looks.samples([NodeMetric("n", now - 10 + off_s, 500 + now % 7, now)], float(now)), float(now))
        for name in nodes.expire(float(now)):
            assert not nodes.nodes[name].counts or now < 100_030
        node = nodes.nodes.get("n")
        if now >= 100_030:
            assert node is not None
            assert node.counts, "by turns it would count and not"
            (line,) = [line for line in node.masked(float(now)) if "clock" in line]
            assert f"its clock is {abs(off_s - 10):.0f} s {'behind' if off_s < 0 else 'ahead of'}" in line


def test_a_clock_that_is_not_off_is_not_named_however_rarely_a_server_looks() -> None:
    looks = MetricsLooks()
    for now in range(0, 3000, 300):  # asked every 5 min, measured a minute before
        for sample in looks.samples([NodeMetric("n", now - 60.0, now, now)], float(now)):
            assert (sample.age_s, sample.missing) == (60.0, ())


def test_metrics_that_stand_still_under_new_times_are_left_out_and_named_until_they_move() -> None:
    looks, nodes = MetricsLooks(), MeasuredNodes()
    for now in range(0, 300, 15):
        nodes.take(looks.samples([NodeMetric("n", float(now), 3900, 7 << 30)], float(now)), float(now))
    cpu = nodes.nodes["n"].parts[0]
    assert cpu is not None
    assert cpu.at_s < 75.0, "of a copy nothing is taken for new"
    assert any("the same for 285 s" in line for line in nodes.nodes["n"].masked(285.0))
    nodes.take(looks.samples([NodeMetric("n", 300.0, 3901, 7 << 30)], 300.0), 300.0)
    assert not any("the same for" in line for line in nodes.nodes["n"].masked(300.0))
