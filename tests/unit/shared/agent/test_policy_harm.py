"""What a policy, its features or a learner may do wrong without a decision or the agent being lost."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from shared.adapters.peers.client import PeerClient
from shared.agent.core import AgentCore
from shared.agent.experience import Experience
from shared.decide.stages import Stage
from shared.errors import PeerRejected
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Verdicts
from shared.runtime.agent.policies import PolicyLoader
from shared.runtime.agent.sender import Sender
from shared.wire.messages import Transition
from shared.wire.records import LearnerRecord, PolicyPointer
from tests.unit.shared.agent.test_experience import CLUSTER, POD, cluster
from tests.unit.shared.agent.test_variants import GOOD, GOOD_BYTES, HEURISTIC, OTHER, OTHER_BYTES, kept, make_lanes


class Blind:
    """Decides well; looking at its features fails after the first ``looks``."""

    name, version, row_local = "blind", 1, False
    feature_names = ("x",)

    def __init__(self, looks: int = 0) -> None:
        self.looks = looks

    def decide(self, observation, rng):
        return Verdicts(np.ones(len(observation.rows)))

    def features(self, observation):
        self.looks -= 1
        if self.looks < 0:
            raise ValueError("features of another release")
        return np.zeros((len(observation.rows), 1), np.float32)

    def q_values(self, features):
        return np.zeros((len(features), 2), np.float32)


def recording(name: str) -> Experience:
    made = Experience()
    made.want(name)
    return made


@pytest.mark.parametrize("looks", [0, 1])
def test_features_that_fail_cost_a_transition_and_no_decision(looks):
    cache, lived = cluster(), recording("blind")
    lived.judged(Blind(looks), cache.table, POD, [1], now_s=0.0)
    lived.told += 1
    lived.read(cache.table, CLUSTER, 100.0)
    assert (lived.waiting, lived.lost) == (0, 1)


@pytest.mark.parametrize("url", ["http://a:99999999", "http://" + "a" * 70 + ".b", "http://[::1", "nonsense", ""])
async def test_a_learner_registered_under_no_url_is_unreachable_and_nothing_else(url):
    client = PeerClient()
    with pytest.raises(PeerRejected) as refused:
        await client.call(url, "/v1/transitions", b"", timeout_s=1.0)
    assert refused.value.code == "peer_unreachable"
    await client.close()


async def test_what_was_lived_under_one_policy_is_not_kept_for_another_ones_learner():
    core = AgentCore(KubeDefault(), Random(1))

    class Slow:
        async def call(self, *_args, **_options):
            sender.follow(LearnerRecord(id="m", url="http://m", incarnation="j", policy="lb"))
            raise PeerRejected("gone", code="peer_unreachable")

    sender = Sender(core, Slow(), agent_id="a", clock=lambda: 0.0)
    first = LearnerRecord(id="l", url="http://l", incarnation="i", policy="marl-dqn")
    sender.follow(first)
    core.experience.give_back([Transition([0.5], 1, -1.0, [0.25])])
    assert not await sender._send(first)
    assert (core.experience.wanted, core.experience.waiting) == ("lb", 0)
    assert core.experience.dropped == 1


async def test_a_replaced_candidate_decides_nothing_while_the_next_one_is_fetched():
    lanes = make_lanes()
    stored = kept((GOOD, GOOD_BYTES), (OTHER, OTHER_BYTES))
    seen = []

    async def fetch(sha256: str) -> bytes | None:
        seen.append(lanes.candidate.ref if lanes.candidate is not None else None)
        return stored.get(f"s{sha256}")

    loading = PolicyLoader(lanes, fetch)
    await loading.take_over(PolicyPointer(active=HEURISTIC, candidate=OTHER, stage=Stage.SHADOW, number=2))
    await loading.take_over(PolicyPointer(active=HEURISTIC, candidate=GOOD, stage=Stage.CANARY, percent=100, number=3))
    assert seen == [None, None]
    assert lanes.candidate is not None
    assert lanes.candidate.ref == GOOD


def test_reading_rewards_never_keeps_offers_waiting_for_all_of_them():
    cache, lived = cluster(), recording("blind")
    for _ in range(100):
        lived.judged(Blind(1000), cache.table, POD, [1], now_s=0.0)
    lived.told += 1
    left = []
    while lived.read(cache.table, CLUSTER, 100.0):
        left.append(lived.waiting)
    assert left == [32, 64, 96]
    assert lived.waiting == 100
