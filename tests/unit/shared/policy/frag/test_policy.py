"""GPU placement in the mesh: the experiment's scores on the node table, in a fixed order, under the demand seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.errors import ConfigError
from shared.model.gpu import GpuRequest
from shared.model.gpu_shares import DEFAULT, parse_gpu_shares
from shared.policy.attribution import lens_of
from shared.policy.demand import DemandCount
from shared.policy.frag.features import FEATURES
from shared.policy.frag.policy import BestFitPolicy, FgdPolicy, FragPolicy, GpuPolicy, request_of
from shared.policy.frag.power_policy import PowerPolicy
from shared.policy.frag.value import SHAPES, STEP
from shared.policy.observation import Observation, Supplies, ToldDemand, supply
from shared.policy.ranking import Ranker
from shared.policy.registry import make_policy
from shared.policy.weights import Card, WeightsFile
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.room.counted import Counted
from tests.builders import make_node, make_pod

MODEL = "conclave.io/gpu-model"


def some_weights(seed: int = 0) -> WeightsFile:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return WeightsFile(arrays, Card(policy="frag", version=7, features=list(FEATURES)))


def cluster(gpus: list[int], **amounts: str) -> ClusterCache:
    cache = ClusterCache()
    for index, count in enumerate(gpus):
        cache.upsert_node(make_node(f"n{index}").allocatable(**amounts).gpus(count).node())
    return cache


def share(milli: int = 500, cpu: str = "1"):
    return make_pod().cpu(cpu).memory("1Gi").gpu_milli(milli).pod().pod_class


def decide(policy: GpuPolicy, cache: ClusterCache, pod_class) -> np.ndarray:
    rows = cache.table.live_rows()
    return policy.decide(Observation(cache.table, pod_class, rows), np.random.default_rng(0)).score


def ranker(policy, cache: ClusterCache, seed: int) -> Ranker:
    return Ranker(cache.table, FeasibilityCache(cache.table), policy, np.random.default_rng(seed))


def wanting_one_of(*models: str):
    made = make_pod().cpu("2").memory("1Gi").gpu_milli(1000)
    terms = [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": list(models)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made.json["spec"]["affinity"] = {"nodeAffinity": required}
    return made.pod().pod_class


@pytest.mark.parametrize("make", [FgdPolicy, lambda: FragPolicy(some_weights()), PowerPolicy])
def test_what_is_told_of_the_demand_makes_an_agent_of_one_node_judge_as_one_of_all(make) -> None:
    models = ["A", "B", "A", "C"]
    nodes = [
        make_node(f"n{i}").label(**{MODEL: m}).allocatable(cpu="64").gpus(4 - i).node() for i, m in enumerate(models)
    ]
    whole, count = ClusterCache(), DemandCount()
    for node in nodes:
        whole.upsert_node(node)
    named = make_pod().cpu("4").memory("1Gi").gpu_milli(1000).select(**{MODEL: "A"}).pod().pod_class
    several = wanting_one_of("C", "B", "none-here")
    for pod_class, pods in ((share(500), 9), (share(2000, cpu="8"), 3), (named, 5), (several, 4)):
        count.add(pod_class, pods, DEFAULT)
    told = ToldDemand(count.take_over(whole.table, DEFAULT))
    assert told.demand is not None
    assert told.demand.devices == {"A": 6, "B": 3, "C": 1}
    scores, alone, untold = [], [], []
    for policies, demand in ((scores, told), (alone, told), (untold, ToldDemand())):
        for node in nodes if policies is not scores else [None]:
            policy, cache = make(), whole
            supply(policy, Supplies(demand=demand))
            if node is not None:
                cache = ClusterCache()
                cache.upsert_node(node)
            of_half, of_several = (decide(policy, cache, pod_class).tolist() for pod_class in (share(500), several))
            policies += zip(of_half, of_several, strict=True)
    assert scores == alone
    assert scores != untold


def test_a_demand_that_is_told_anew_is_gone_by_at_once() -> None:
    policy, cache, told = FgdPolicy(), cluster([2, 4]), ToldDemand()
    supply(policy, Supplies(demand=told))
    count = DemandCount()
    count.add(share(500), 1, DEFAULT)
    told.demand = count.take_over(cache.table, DEFAULT)
    first = decide(policy, cache, share(500)).tolist()
    count.add(share(2000, cpu="48"), 40, DEFAULT)
    told.demand = count.take_over(cache.table, DEFAULT)
    assert decide(policy, cache, share(500)).tolist() != first
    told.demand = None  # a leader that tells none: what it was asked about counts again
    assert policy._counts.total() == 0
    decide(policy, cache, share(500))
    assert policy._counts.total() == 1


@pytest.mark.parametrize("make", [FgdPolicy, lambda: FragPolicy(some_weights()), PowerPolicy])
def test_by_a_demand_that_is_told_anew_nodes_are_judged_as_by_who_hears_of_none_before(make, monkeypatch) -> None:
    """Though the states of nodes keep their numbers, unless models have other codes or most states are past ones."""
    cache, told, count, policy = ClusterCache(), ToldDemand(), DemandCount(), make()
    for number, model in enumerate("ABA"):
        cache.upsert_node(make_node(f"n{number}").label(**{MODEL: model}).allocatable(cpu="64").gpus(4 - number).node())
    supply(policy, Supplies(demand=told))
    asked = [share(500), share(250), wanting_one_of("none-here", "B"), share(2000, cpu="8"), share(125)]
    kept = []
    for pods, pod_class in enumerate(asked, 3):
        count.add(pod_class, pods, DEFAULT)
        told.demand, before = count.take_over(cache.table, DEFAULT), list(policy._states)
        fresh = make()
        supply(fresh, Supplies(demand=told))
        assert decide(policy, cache, share(500)).tolist() == decide(fresh, cache, share(500)).tolist()
        kept.append(bool(before) and policy._states[: len(before)] == before)
        cache.table.add_usage(pods % 3, share(125), cache.table.pick_devices(pods % 3, 125))
        monkeypatch.setattr("shared.policy.frag.policy.MOST_PAST", 0 if pods == 6 else 2)
    assert kept == [False, True, False, True, False]


@pytest.mark.parametrize("make", [FgdPolicy, BestFitPolicy, lambda: FragPolicy(some_weights())])
def test_equal_nodes_are_taken_in_the_same_order_whatever_the_draws(make):
    pod_class = share()
    first, second = (
        [slot.row for slot in ranker(make(), cluster([2] * 6), seed).slots(pod_class, 1, extra=5)] for seed in (1, 2)
    )
    assert first == second
    assert sorted(first) == list(range(6))


def test_the_order_is_the_same_for_agents_that_own_different_nodes():
    whole, part = cluster([2] * 6), ClusterCache()
    for index in (4, 1, 3):
        part.upsert_node(make_node(f"n{index}").gpus(2).node())
    of_whole = dict(zip(whole.table.names, decide(BestFitPolicy(), whole, share()), strict=True))
    of_part = dict(zip(part.table.names, decide(BestFitPolicy(), part, share()), strict=True))
    assert of_part == {name: of_whole[name] for name in part.table.names}


def test_the_fixed_order_never_outweighs_a_step():
    order = decide(BestFitPolicy(), cluster([2] * 200), share())
    assert float(np.ptp(order)) < 1


def test_a_share_joins_the_device_that_is_used_already():
    cache = cluster([2, 2])
    pod_class = share()
    (slot,) = ranker(BestFitPolicy(), cache, 0).slots(pod_class, 1, extra=0)
    cache.table.add_usage(slot.row, pod_class, cache.table.pick_devices(slot.row, 500))
    (again,) = ranker(BestFitPolicy(), cache, 0).slots(pod_class, 1, extra=0)
    assert again.row == slot.row


def test_scores_kept_of_unchanged_rows_are_those_of_a_new_policy():
    cache, pod_class = cluster([1, 2, 4, 8, 8]), share()
    kept, weights = FragPolicy(some_weights()), some_weights()
    for row in (3, 1, 3):
        decide(kept, cache, pod_class)
        cache.table.add_usage(row, pod_class, cache.table.pick_devices(row, 500))
    assert np.array_equal(decide(kept, cache, pod_class), decide(FragPolicy(weights), cache, pod_class))


def test_the_demand_follows_what_is_asked_for():
    """With only half devices asked for, a lone half is no fragment; once whole devices are asked for, it is."""
    cache = cluster([1, 2])
    cache.table.add_usage(1, share(), cache.table.pick_devices(1, 500))
    halves, mixed = FgdPolicy(), FgdPolicy()
    whole = share(1000)
    for _ in range(40):
        decide(halves, cache, share())
        decide(mixed, cache, whole)
    before, after = decide(halves, cache, share()), decide(mixed, cache, share())
    assert after[1] - after[0] > before[1] - before[0]


def test_a_node_without_gpus_is_judged_too():
    cache = cluster([0, 8])
    scores = decide(FragPolicy(some_weights()), cache, make_pod().cpu("1").pod().pod_class)
    assert np.isfinite(scores).all()


def test_models_named_by_affinity_or_selector_count_in_the_demand():
    models = {"T4": 0, "G2": 1}
    selected = make_pod().gpu_milli(2000).select(**{MODEL: "G2"}).pod().pod_class
    assert request_of(selected, models) == GpuRequest(0, 0, 2, 1000, 0b10)
    unknown = make_pod().gpu_milli(300).select(**{MODEL: "H100"}).pod().pod_class
    assert request_of(unknown, models) == GpuRequest(0, 0, 1, 300, 0)


def test_weights_for_other_features_are_refused():
    good = some_weights()
    other = WeightsFile(good.arrays, Card(policy="frag", version=1, features=["idle"]))
    with pytest.raises(ConfigError, match="train again"):
        FragPolicy(other)


def test_weights_of_another_shape_are_refused():
    arrays = {**some_weights().arrays, "l0.b": np.zeros(3, np.float32)}
    with pytest.raises(ConfigError, match="arrays are not those"):
        FragPolicy(WeightsFile(arrays, Card(policy="frag", version=1, features=list(FEATURES))))


def test_the_lens_shows_what_the_score_is_made_of():
    cache, pod_class = cluster([1, 2, 4, 8, 0]), share()
    cache.table.add_usage(3, pod_class, cache.table.pick_devices(3, 500))
    policy, rows = FragPolicy(some_weights()), np.arange(4)
    score = decide(policy, cache, pod_class)[rows]
    lens = lens_of(policy)
    assert lens is not None
    seen = lens.features(Observation(cache.table, pod_class, rows))
    assert seen.shape == (4, len(lens.names))
    q = lens.q_values(seen)
    assert np.floor((q[:, 1] - q[:, 0]) / STEP) == pytest.approx(np.floor(score), abs=1)
    assert lens_of(FgdPolicy()) is None


@pytest.mark.parametrize("name", ["frag", "fgd", "best-fit"])
def test_the_policies_are_known_by_name(name):
    assert make_policy(name).name == name


def test_in_its_stead_fgd_places_under_the_demand_seen_so_far_and_the_learned_value_again():
    cache, alone, beside = cluster([2, 4, 8]), FgdPolicy(), FragPolicy(some_weights())
    own = FragPolicy(some_weights())
    for pod_class in (share(500), share(250), share(2000)):
        for policy in (alone, beside, own):
            decide(policy, cache, pod_class)
    beside.place_by("fgd")
    # FGD takes the demand over at other moments than a policy that has just changed: at the next it is the same
    alone._start_over()
    assert decide(beside, cache, share(250)).tolist() == decide(alone, cache, share(250)).tolist()
    assert (beside.name, beside.placed_by, lens_of(beside)) == ("frag", "fgd", None)
    beside.place_by("frag")
    decide(own, cache, share(250))
    own._start_over()
    assert decide(beside, cache, share(500)).tolist() == decide(own, cache, share(500)).tolist()
    assert lens_of(beside) is not None


def test_a_verdict_may_come_before_the_first_node_and_names_nobody_else():
    policy = FragPolicy(some_weights())
    policy.place_by("fgd")
    assert policy.placed_by == "fgd"
    assert len(decide(policy, cluster([2, 2]), share())) == 2
    policy.place_by("most-allocated")
    assert policy.placed_by == "frag"


class OneByOne(FragPolicy):
    rows_apart = False


def of_steady_demand(make, cache: ClusterCache) -> FragPolicy:
    """Has seen some pods, and takes no demand over any more."""
    policy = make(some_weights())
    for milli in (200, 500, 1000, 2000, 500):
        decide(policy, cache, share(milli))
    policy._next = np.inf
    return policy


used = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([100, 300, 500, 1000, 2000])), max_size=12)


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0, 1, 2, 4, 8]), min_size=1, max_size=6), used, st.integers(2, 9), st.data())
def test_many_units_at_once_go_where_one_after_the_other_would(gpus, pods, count, data):
    cache = cluster(gpus, cpu="32", memory="64Gi", pods="40")
    for row, milli in pods:
        if row < len(gpus) and (devices := cache.table.pick_devices(row, milli)):
            cache.table.add_usage(row, share(milli), devices)
    pod_class = share(data.draw(st.sampled_from([200, 500, 1000, 2000])))
    at_once, one_by_one = (
        ranker(of_steady_demand(make, cache), cache, 1).slots(pod_class, count, extra=1)
        for make in (FragPolicy, OneByOne)
    )
    assert [(slot.row, slot.score) for slot in at_once] == [(slot.row, slot.score) for slot in one_by_one]


def asked_of(policy: FragPolicy) -> list[int]:
    """How many states the network is asked about, call by call, from now on."""
    asked, net = [], policy._scorer.net
    cost = net.cost
    net.cost = lambda states: asked.append(len(states)) or cost(states)
    return asked


def test_alike_nodes_are_judged_as_one():
    cache = cluster([8] * 50)
    policy = of_steady_demand(FragPolicy, cache)
    asked = asked_of(policy)
    assert len(decide(policy, cache, share(700))) == 50
    cache.table.add_usage(7, share(700), cache.table.pick_devices(7, 700))
    decide(policy, cache, share(700))
    assert asked == [1, 2]  # all alike with the pod there; then the state that is new, and that with the pod


def test_what_is_asked_for_next_is_judged_at_once_and_alike():
    cache = cluster([1, 2, 4, 8])
    classes = [share(milli) for milli in (100, 250, 400)]
    prepared, plain = (of_steady_demand(FragPolicy, cache) for _ in range(2))
    asked, rows = asked_of(prepared), cache.table.live_rows()
    prepared.prepare(cache.table, [(pod_class, rows) for pod_class in classes])
    assert len(asked) == 1
    for pod_class in classes:
        assert decide(prepared, cache, pod_class) == pytest.approx(decide(plain, cache, pod_class))
    assert len(asked) == 1


def test_an_answer_counts_all_its_units_in_the_demand():
    cache, policy = cluster([2] * 4), FragPolicy(some_weights())
    ranker(policy, cache, 0).slots(share(), 6, extra=2)
    assert policy._seen == 8


def test_states_beyond_the_bound_are_numbered_anew(monkeypatch):
    monkeypatch.setattr("shared.policy.frag.policy.MAX_STATES", 3)
    cache, pod_class = cluster([8]), share(100)
    policy = FragPolicy(some_weights())
    for _ in range(20):
        scores = decide(policy, cache, pod_class)
        assert len(policy._states) <= 5
        cache.table.add_usage(0, pod_class, cache.table.pick_devices(0, 100))
    assert np.isfinite(scores).all()


def test_scores_beyond_the_bound_are_forgotten_of_what_was_asked_for_longest_ago(monkeypatch):
    cache = cluster([8])
    kept, bounded = (of_steady_demand(FragPolicy, cache) for _ in range(2))
    monkeypatch.setattr("shared.policy.frag.policy.MAX_SCORES", 8)
    for milli in (100, 200, 300, 100, 400):
        assert decide(bounded, cache, share(milli)) == pytest.approx(decide(kept, cache, share(milli)))
    assert len(bounded._known) <= 8


@pytest.mark.parametrize("make", [lambda _: FgdPolicy(), lambda _: BestFitPolicy(), FragPolicy])
def test_a_node_whose_gpus_come_later_is_judged_as_if_they_had_always_been_there(make):
    """A device plugin tells of GPUs after the node is there, and labels stay as they are."""
    late, early = cluster([0, 2]), cluster([8, 2])
    policy = of_steady_demand(make, late)
    decide(policy, late, share())
    late.upsert_node(make_node("n0").gpus(8).node())
    assert decide(policy, late, share()) == pytest.approx(decide(of_steady_demand(make, early), early, share()))


@pytest.mark.parametrize("make", [lambda _: FgdPolicy(), lambda _: BestFitPolicy(), FragPolicy])
def test_a_copy_of_a_node_that_came_since_is_judged_as_that_node(make):
    cache, pod_class = cluster([2, 2]), share()
    policy = of_steady_demand(make, cache)
    cache.upsert_node(make_node("new").gpus(4).node())
    row = np.array([cache.table.row_of["new"]])
    copied = cache.table.with_copies(row, np.zeros(1, np.int64), pod_class)
    told = policy.decide(Observation(copied, pod_class, np.zeros(1, np.int64)), np.random.default_rng(0)).score
    assert told == pytest.approx(decide(policy, cache, pod_class)[row])


def of_plugin(gpus: list[int], used: list[int]) -> ClusterCache:
    """Nodes with GPUs of a device plugin, some of which are in use."""
    cache = ClusterCache()
    for index, (count, taken) in enumerate(zip(gpus, used, strict=True)):
        cache.upsert_node(make_node(f"n{index}").allocatable(**{"nvidia.com/gpu": str(count)}).node())
        for number in range(taken):
            pod = make_pod(f"p{index}-{number}").on(f"n{index}").request(**{"nvidia.com/gpu": "1"}).pod()
            cache.observe(pod)
    return cache


@pytest.mark.parametrize("make", [FgdPolicy, BestFitPolicy, lambda: FragPolicy(some_weights())])
def test_gpus_of_a_device_plugin_are_judged_as_whole_devices(make):
    plugin, own = of_plugin([4, 4, 2], [3, 0, 1]), cluster([4, 4, 2])
    for index, taken in enumerate((3, 0, 1)):
        for number in range(taken):
            own.observe(make_pod(f"p{index}-{number}").on(f"n{index}").gpu_milli(1000).pod())
    asked = make_pod().cpu("1").memory("1Gi")
    by_plugin = decide(make(), plugin, asked.request(**{"nvidia.com/gpu": "1"}).pod().pod_class)
    by_amount = decide(make(), own, make_pod().cpu("1").memory("1Gi").gpu_milli(1000).pod().pod_class)
    np.testing.assert_allclose(by_plugin, by_amount)


@pytest.mark.parametrize("make", [FgdPolicy, BestFitPolicy, lambda: FragPolicy(some_weights())])
def test_devices_that_claims_are_given_are_judged_as_what_is_free_of_them(make):
    claimed, own = cluster([0, 0]), cluster([2, 2])
    own.table.device_free[0] = [500, 1000]
    claimed.table.set_claimed(0, [500, 1000])
    claimed.table.set_claimed(1, [1000, 1000])
    asked = replace(make_pod().cpu("1").memory("1Gi").pod().pod_class, claimed=(1, 500))
    np.testing.assert_allclose(decide(make(), claimed, asked), decide(make(), own, share(500)))
    claimed.table.set_claimed(0, [0, 1000])
    changed = decide(make(), claimed, asked)
    own.table.device_free[0] = [0, 1000]
    own.table._touch(0)
    np.testing.assert_allclose(changed, decide(make(), own, share(500)))


def test_a_unit_counts_as_the_user_says_and_the_maker_tells_the_model():
    policy, cache = FgdPolicy(), ClusterCache()
    for index, product in enumerate(("A100", "H100")):
        node = make_node(f"n{index}").allocatable(**{"nvidia.com/gpu.shared": "4"})
        cache.upsert_node(node.label(**{"nvidia.com/gpu.product": product}).node())
    shares = parse_gpu_shares("nvidia.com/gpu.shared=250")
    supply(policy, Supplies(gpu_shares=shares))
    pod = make_pod().request(**{"nvidia.com/gpu.shared": "2"}).select(**{"nvidia.com/gpu.product": "H100"})
    pod_class = pod.pod().pod_class
    decide(policy, cache, pod_class)
    request = request_of(pod_class, policy._models, shares)
    assert (request.devices, request.milli) == (1, 500)
    assert request.models == 1 << policy._models["H100"]
    assert policy._of_rows(cache.table, np.arange(2)).free.tolist() == [[1000], [1000]]


def test_whoever_looks_ahead_counts_what_claims_would_take():
    cache = cluster([0])
    cache.table.set_claimed(0, [400, 1000, 1000])
    for claimed, left in (((1, 300), [100, 700, 1000]), ((2, 1000), [400, 0, 0])):
        asked = replace(make_pod().pod().pod_class, claimed=claimed)
        copies = np.array([2 if claimed[0] == 1 else 1])
        assert cache.table.with_copies(np.array([0]), copies, asked).claimed_free[0] == left
    assert cache.table.claimed_free[0] == [400, 1000, 1000]


def test_whoever_counts_for_a_while_gives_back_what_claims_would_take():
    cache = cluster([0])
    cache.table.set_claimed(0, [400, 1000])
    asked = replace(make_pod().pod().pod_class, claimed=(1, 300))
    with Counted(cache.table) as counted:
        for _ in range(2):
            counted.add(0, asked)
        assert cache.table.claimed_free[0] == [100, 700]
    assert cache.table.claimed_free[0] == [400, 1000]
