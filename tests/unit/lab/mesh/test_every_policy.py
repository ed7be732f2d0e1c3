"""Whoever places, learned or not, ours or a user's: how many agents decide changes no more than a stated regret."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lab.mesh.regret import NOT_ACCEPTED, share_lost
from lab.mesh.world import PER_NODE
from services.coordinator.core.state import CoreSettings
from shared.plugins import policy_maker
from shared.policy import registry
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.marl.policy import MarlDqn
from shared.policy.networks import layer_count
from shared.policy.observation import Verdicts
from shared.policy.registry import POLICIES, bring, make_policy, ref_of, reference
from shared.policy.weights import WeightsFile, decode, encode, shipped
from shared.scheduling.cycle.profile import PluginSet
from shared.scheduling.state.node_table import NodeTable
from tests.marl_weights import with_networks
from tests.unit.lab.mesh.scene import lost_by

AGENTS = ("1", "2", "4", PER_NODE)
REGRET = 0.01
"""docs/policies/README.md states it."""
REGRET_OF_JUMPS = 0.1
OF_GPUS = ("best-fit", "fgd", "frag", "power")


@pytest.fixture
def _brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's policy, as a user's that was loaded."""
    monkeypatch.setattr(registry, "HEURISTICS", dict(registry.HEURISTICS))
    monkeypatch.syspath_prepend(str(Path("docs/examples/plugin")))
    import conclave_example_plugins as example

    bring("fullest", policy_maker("fullest", example.Fullest))
    yield
    sys.modules.pop("conclave_example_plugins", None)


@pytest.mark.usefixtures("_brought")
@pytest.mark.parametrize("agents", AGENTS)
@pytest.mark.parametrize("name", [*sorted(POLICIES), "el=0.5,lb=0.5", "kube-default=0.7,frag=0.3", "fullest"])
def test_any_number_of_agents_places_as_one_decider_that_sees_every_node(name, agents):
    gpus = name in OF_GPUS or "frag" in name
    lost = [lost_by(agents, lambda: make_policy(name), ref_of(name), seed=seed, gpus=gpus) for seed in (1, 2)]
    assert np.mean(lost) <= REGRET


@pytest.mark.parametrize("agents", AGENTS)
def test_so_it_is_where_classes_of_nodes_have_networks_of_their_own(agents):
    """Each with a taste of its own; the shared one judges every third node; half-way all nodes are labelled anew."""
    own = {number: tasting(shipped("marl-dqn"), -number) for number in (1, 2)}
    file = decode(encode(with_networks(shipped("marl-dqn"), {"a": 1, "b": 2, "gone": 1}, own)), policy="marl-dqn")
    lost = [lost_by(agents, lambda: MarlDqn(file), reference(file), seed=seed, pools=("a", "b")) for seed in (1, 2)]
    assert np.mean(lost) <= REGRET


def tasting(file: WeightsFile, sign: int) -> WeightsFile:
    last = f"l{layer_count(file.arrays) - 1}."
    arrays = {name: array * np.float32(0.5 * sign) if name.startswith(last) else array
              for name, array in file.arrays.items()}  # fmt: skip
    return WeightsFile(arrays, file.card)


@pytest.mark.usefixtures("_brought")
@pytest.mark.parametrize("name", [*sorted(POLICIES), "el=0.5,lb=0.5", "fullest"])
def test_asking_few_of_the_agents_loses_no_more_than_that(name):
    """At most five best nodes of twelve and five of which too little is known: most are others from pod to pod here."""
    gpus, few = name in OF_GPUS, CoreSettings(asked_agents=5)
    lost = [
        lost_by(PER_NODE, lambda: make_policy(name), ref_of(name), seed=seed, gpus=gpus, settings=few)
        for seed in (1, 2)
    ]
    assert np.mean(lost) <= REGRET


@pytest.mark.parametrize("name", ["ee", "el", "lb"])
def test_asking_few_while_use_jumps_loses_a_bounded_part(name):
    """What agents said before a reading is gone by (docs/policies/deepsets.md)."""
    few = CoreSettings(asked_agents=5)
    lost = [
        lost_by(PER_NODE, lambda: make_policy(name), ref_of(name), seed=seed, measured=True, settings=few)
        for seed in (1, 2)
    ]
    assert np.mean(lost) <= REGRET_OF_JUMPS


LOOKING = ("ee", "el", "lb", "el=0.5,lb=0.5", "lb=0.5,kube-default=0.5")


@pytest.mark.parametrize("agents", AGENTS)
@pytest.mark.parametrize("name", LOOKING)
def test_measured_use_changes_nothing_of_that(name, agents):
    lost = [
        lost_by(agents, lambda: make_policy(name), ref_of(name), seed=seed, pods=40, measured=True, settings=settings)
        for seed, settings in ((1, None), (2, CoreSettings(profile=PluginSet(load_parts=("disk", "pods")))))
    ]
    assert np.mean(lost) <= REGRET


def test_ablation_a_reading_that_its_agent_does_not_take_in_loses_more(monkeypatch):
    """What is measured counts in the check above: where agents go on by what they judged before, it fails."""
    monkeypatch.setattr(NodeTable, "judge_anew", lambda self, row: None)
    lost = [lost_by("4", lambda: make_policy("lb"), ref_of("lb"), seed=seed, measured=True) for seed in (1, 2)]
    assert np.mean(lost) > REGRET


def test_ablation_policies_that_pooled_their_own_nodes_lose_more(monkeypatch):
    """The fault of the first ``ee``, ``lb`` and ``el``: what is told is left out, and the check above fails."""
    monkeypatch.setattr(DeepSetsPolicy, "supply", lambda self, supplies: None)
    lost = [lost_by(PER_NODE, lambda: make_policy("lb"), ref_of("lb"), seed=seed) for seed in (1, 2)]
    assert np.mean(lost) > REGRET


def test_what_is_lost_is_a_share_of_what_there_was_to_lose():
    rows = np.array([2, 5, 7])
    verdicts = Verdicts(np.array([1.0, 3.0, 5.0]))
    assert [share_lost(verdicts, rows, row) for row in (2, 5, 7)] == [1.0, 0.5, 0.0]
    some = Verdicts(verdicts.score, np.array([True, True, False]))
    assert [share_lost(some, rows, row) for row in (2, 5, 7)] == [0.5, 0.0, NOT_ACCEPTED]
    assert share_lost(Verdicts(np.ones(3)), rows, 5) == 0.0


def test_the_same_seed_gives_the_same_placements():
    once, again = (lost_by("4", lambda: make_policy("fgd"), ref_of("fgd"), seed=3, gpus=True) for _ in range(2))
    assert once == again
