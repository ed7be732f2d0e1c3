"""``power``: joules and fragmentation as one cost; the same in the mesh's table as in the experiment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shared.model.power import CURVE_LABEL, PUBLISHED, PWR, parse_power_curves
from shared.policy.agreement import disagreement
from shared.policy.attribution import attribute, lens_of
from shared.policy.frag import power_policy
from shared.policy.frag.power_policy import PARTS, PRICE, PowerPolicy, priced
from shared.policy.frag.value import STEP, steps
from shared.policy.observation import Need, Observation, Supplies, supply
from shared.policy.ranking import Ranker
from shared.policy.registry import goal_of, make_policy, needs_of_name, ref_of
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

MODEL = "conclave.io/gpu-model"


def cluster(*models: str, gpus: int = 4) -> ClusterCache:
    cache = ClusterCache()
    for number, model in enumerate(models):
        node = make_node(f"n{number}").allocatable(cpu="96", memory="384Gi", pods="200").gpus(gpus)
        cache.upsert_node(node.label(**{MODEL: model}).node())
    return cache


def asks(milli: int, cpu: str = "4"):
    return make_pod().cpu(cpu).memory("8Gi").gpu_milli(milli).pod().pod_class


def made(curves=PWR) -> PowerPolicy:
    policy = PowerPolicy()
    supply(policy, Supplies(power=curves))
    return policy


def scores(policy: PowerPolicy, cache: ClusterCache, pod_class) -> np.ndarray:
    rows = cache.table.live_rows()
    return policy.decide(Observation(cache.table, pod_class, rows), np.random.default_rng(0)).score


def test_of_nodes_alike_but_for_their_gpus_the_one_that_draws_less_is_taken():
    cache = cluster("G3", "T4", "P100", "V100M32")
    assert int(scores(made(), cache, asks(1000)).argmax()) == 1
    assert int(scores(made(), cache, asks(300)).argmax()) == 1


def test_ablation_without_a_price_of_watts_the_models_are_alike(monkeypatch):
    monkeypatch.setattr(power_policy, "PRICE", 0.0)
    cache = cluster("G3", "T4", "P100")
    found = np.floor(scores(made(), cache, asks(1000)))
    assert len(set(found.tolist())) == 1


def test_a_users_curves_turn_the_choice():
    cache = cluster("T4", "A100")
    assert int(scores(made(), cache, asks(1000)).argmax()) == 0
    own = parse_power_curves("[gpus.T4]\nidle = 10\npeak = 700\n")
    assert int(scores(made(own), cache, asks(1000)).argmax()) == 1


def chosen_of(cpu: str) -> set[str]:
    """The curves of the servers that a pod without GPUs goes to, whichever of two comes first by its name."""
    own = parse_power_curves("[nodes.old]\nwatts = [90, 300]\n[nodes.new]\nwatts = [40, 150]\n")
    found = set()
    for curves in (("old", "new"), ("new", "old")):
        cache = ClusterCache()
        for number, curve in enumerate(curves):
            node = make_node(f"n{number}").allocatable(cpu="16", memory="64Gi").label(**{CURVE_LABEL: curve})
            cache.upsert_node(node.node())
        found.add(curves[int(scores(made(own), cache, make_pod().cpu(cpu).pod().pod_class).argmax())])
    return found


@pytest.mark.parametrize("cpu", ["8", "1", "250m"])
def test_a_pod_without_gpus_goes_to_the_server_that_draws_less(cpu):
    assert chosen_of(cpu) == {"new"}


def test_ablation_by_the_steps_of_frag_alone_a_small_pod_goes_by_the_fixed_order(monkeypatch):
    monkeypatch.setattr(power_policy, "PARTS", 1)
    assert chosen_of("8") == {"new"}
    assert chosen_of("1") == {"old", "new"}


def test_a_share_joins_a_device_in_use_rather_than_begin_one():
    cache = cluster("T4", "T4", "T4")
    cache.table.add_usage(1, asks(300), cache.table.pick_devices(1, 300))
    assert int(scores(made(), cache, asks(500)).argmax()) == 1


def test_each_score_is_whole_steps_and_parts_of_them_below_the_fixed_order():
    cache = cluster("G3", "T4", "T4")
    cache.table.add_usage(2, asks(1000), cache.table.pick_devices(2, 1000))
    policy, pod_class = made(), asks(700)
    score, lens = scores(policy, cache, pod_class), lens_of(policy)
    assert lens is not None
    x = lens.features(Observation(cache.table, pod_class, cache.table.live_rows()))
    wanted = steps(x[:, 0].astype(float)) + priced(x[:, 1].astype(float), PRICE)
    assert np.floor(score * PARTS) / PARTS == pytest.approx(wanted)


def test_to_explain_it_tells_joules_and_their_price():
    cache, pod_class = cluster("G3", "T4"), asks(1000, cpu="1")
    policy = made()
    lens = lens_of(policy)
    assert lens is not None
    told = attribute(lens, Observation(cache.table, pod_class, cache.table.live_rows()))
    joules = next(moved for moved in told.moved if moved.feature == "joules_per_s_added")
    assert (told.chosen.row, joules.value, joules.reference) == (1, 60 + 145, 350 + 250)
    assert joules.effect == pytest.approx(PRICE * 395, rel=1e-4)


def test_explaining_does_not_count_as_demand():
    cache, policy = cluster("T4", "G3"), made()
    scores(policy, cache, asks(500))
    lens, seen = lens_of(policy), policy._seen
    assert lens is not None
    lens.features(Observation(cache.table, asks(250), cache.table.live_rows()))
    assert policy._seen == seen


class ByPwr(PowerPolicy):
    """By PWR's figures whatever it is handed: curves in steps, nodes that stay on."""

    def supply(self, supplies):
        super().supply(replace(supplies, power=PWR))


def test_agents_that_see_some_nodes_each_give_them_the_same_scores():
    assert disagreement(PowerPolicy) == ""
    assert disagreement(ByPwr) == ""


class OneByOne(PowerPolicy):
    rows_apart = False


@pytest.mark.parametrize("milli", [250, 600, 1000, 2000])
def test_many_units_at_once_go_where_one_after_the_other_would(milli):
    cache, found = cluster("T4", "G3", "T4", "P100"), []
    cache.table.add_usage(2, asks(300), cache.table.pick_devices(2, 300))
    for make in (PowerPolicy, OneByOne):
        policy = make()
        supply(policy, Supplies(power=PWR))
        for other in (200, 500, 1000):
            scores(policy, cache, asks(other))
        policy._next = np.inf  # no demand is taken over any more
        ranker = Ranker(cache.table, FeasibilityCache(cache.table), policy, np.random.default_rng(1))
        found.append([(slot.row, slot.score) for slot in ranker.slots(asks(milli), 6, extra=1)])
    assert found[0] == found[1]


def test_states_that_are_numbered_anew_keep_their_devices(monkeypatch):
    monkeypatch.setattr("shared.policy.frag.policy.MAX_STATES", 3)
    cache, bounded, kept = cluster("T4", "G3", gpus=8), made(), made()
    for _ in range(12):
        found = scores(bounded, cache, asks(100))
        cache.table.add_usage(0, asks(100), cache.table.pick_devices(0, 100))
    assert np.isfinite(found).all()
    monkeypatch.undo()
    for _ in range(12):
        scores(kept, cache, asks(100))
    assert np.floor(scores(bounded, cache, asks(100))) == pytest.approx(np.floor(scores(kept, cache, asks(100))))


def test_it_is_known_by_name_and_is_for_joules():
    assert make_policy("power").name == "power"
    assert goal_of("power") == "joules"
    assert needs_of_name("power") == needs_of_name("frag") | {Need.POWER}
    assert (ref_of("power").sha256, ref_of("power").version) == ("", make_policy("frag").version)
    assert PUBLISHED.gpus == PWR.gpus
    assert PRICE * 50 > STEP  # what tells models apart is worth more than a step


def test_watts_that_differ_by_rounding_alone_cost_the_same():
    exact = np.arange(0, 4000, 5.0)
    near = exact + np.random.default_rng(0).uniform(-1e-9, 1e-9, len(exact))
    assert np.array_equal(priced(exact, PRICE), priced(near, PRICE))
    assert priced(np.array([0.0, 10.0, 10.1, 1.0]), 0.002).tolist() == [0, -1, -33 / 32, -4 / 32]
