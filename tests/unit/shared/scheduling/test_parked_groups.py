"""Groups of waiting pods, and the sums that say whom room could help: never too narrow, held to plain loops."""

from __future__ import annotations

import random

from msgspec.structs import replace

from shared.model.resources import PODS
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import diagnose, rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.framework import Code
from shared.scheduling.parked_groups import ParkedPods, group_key
from shared.scheduling.preemption.preemption import select_victims
from shared.scheduling.preemption.resolvable import openable, resolvable_rows
from shared.scheduling.preemption.units import victim_units
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.room.removable import MAX_LEVELS
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.shared.scheduling.random_clusters import some_cluster
from tests.unit.shared.scheduling.test_rules_against_naive import asked, state_of


def some_waiting_pod(rng: random.Random, number: int) -> PodBuilder:
    pod = make_pod(f"p{number}").priority(rng.choice((0, 0, 5, 9)))
    if rng.random() < 0.8:
        pod = pod.cpu(f"{rng.randrange(1, 9)}00m")
    if rng.random() < 0.5:
        pod = pod.memory(f"{rng.randrange(1, 5)}Gi")
    if rng.random() < 0.2:
        pod = pod.gpu_milli(rng.choice((500, 1000)))
    return pod


def test_whom_room_fits_is_found_among_all_in_queue_order_while_pods_come_and_go() -> None:
    rng = random.Random(7)
    waiting, known = ParkedPods(), {}
    for step in range(600):
        if known and rng.random() < 0.4:
            uid = rng.choice(sorted(known))
            waiting.discard(uid)
            del known[uid]
        else:
            pod = some_waiting_pod(rng, step).pod()
            waiting.add(pod, step, frozenset({"NodeResourcesFit"}))
            known[pod.uid] = (pod, step)
        room = {"cpu": rng.randrange(900), "memory": rng.randrange(5) << 30, PODS: rng.randrange(3)}
        found = [waiting.numbered(number) for number in waiting.fitting(lambda name, room=room: room.get(name, 0))]
        fitting = {
            group_key(pod)
            for pod, _ in known.values()
            if room[PODS] >= 1 and all(room.get(name, 0) >= amount for name, amount in pod.pod_class.requests)
        }
        assert {group.key for group in found} == fitting
        order = [(-group.pod.priority, min(group.members.values())) for group in found]
        assert order == sorted(order)
        assert len(waiting) == len(known)
        assert {uid for group in waiting for uid in group.members} == known.keys()


def test_pods_that_are_judged_alike_are_one_group_and_a_nominated_one_is_alone() -> None:
    waiting, plugins = ParkedPods(), frozenset({"NodeResourcesFit"})
    for number in range(3):
        waiting.add(make_pod(f"p{number}").cpu("1").pod(), number, plugins)
    waiting.add(make_pod("other").cpu("1").priority(1).pod(), 3, plugins)
    waiting.add(make_pod("labelled").cpu("1").set(labels={"a": "b"}).pod(), 4, plugins)
    assert sorted(len(group.members) for group in waiting) == [1, 1, 3]
    pod = make_pod("p1").cpu("1").pod()
    nominated = type(pod)(**{name: getattr(pod, name) for name in pod.__struct_fields__} | {"nominated_node": "n"})
    waiting.add(nominated, 1, plugins)
    assert sorted(len(group.members) for group in waiting) == [1, 1, 1, 2]


def many_priorities(rng: random.Random) -> ClusterState:
    state = ClusterState()
    for number in range(6):
        state.upsert_node(make_node(f"n{number}").allocatable(cpu="4", memory="8Gi", pods="8").node())
    for number in range(30):
        pod = make_pod(f"s{number}").cpu(f"{rng.randrange(1, 12)}00m").priority(rng.randrange(-40, 40))
        state.observe(pod.on(f"n{rng.randrange(6)}").pod())
    return state


def test_room_by_evicting_is_never_less_than_what_leaves_however_many_priorities_there_are() -> None:
    rng = random.Random(3)
    state = many_priorities(rng)
    index = state.index
    assert len(index.priorities) > MAX_LEVELS
    for uid in rng.sample([f"uid-s{number}" for number in range(30)], 10):
        state.forget(uid)
    index.sync()
    for priority in range(-45, 45, 5):
        cpu, count = index.removable.below(priority, "cpu"), index.removable.below(priority, PODS)
        for name, row in state.table.row_of.items():
            lower = [pod for pod in index.pods_on(name) if pod.priority < priority]
            exact = sum(dict(pod.pod_class.requests).get("cpu", 0) for pod in lower)
            assert cpu[row] >= exact
            assert count[row] >= len(lower)
            assert index.removable.below_at(priority, "cpu", row) == cpu[row]
    for uid in [pod.uid for name in state.table.row_of for pod in index.pods_on(name)]:
        state.forget(uid)
    assert not index.removable.below(100, "cpu").any()
    assert not index.removable.below(100, PODS).any()


def test_no_node_that_a_dry_run_would_open_is_left_out() -> None:
    opened = 0
    for seed in range(300):
        rng = random.Random(seed)
        state = many_priorities(rng)
        pod = make_pod("in").cpu(f"{rng.randrange(20, 40)}00m").priority(rng.randrange(-30, 45)).pod()
        feasibility, prefiltered = FeasibilityCache(state.table), prefilter(state, pod)
        if feasibility.of(pod.pod_class).mask.any():
            continue
        found = openable(state, feasibility, prefiltered)
        for row in resolvable_rows(state, feasibility, prefiltered).tolist():
            dry_run = DryRun(state, feasibility, prefiltered, row)
            lower = victim_units(state, state.index.pods_on(dry_run.node_name), pod.priority, lambda _: True)
            if select_victims(dry_run, lower, state) is not None:
                assert row in found.rows, seed
                opened += 1
        tried = len(found.rows) + sum(found.reasons.values())
        assert tried >= len(state.table.row_of)
    assert opened > 20


def test_reasons_and_resolvable_nodes_by_arrays_are_those_of_each_node() -> None:
    for seed in range(400):
        nodes, pods, raw = some_cluster(seed)
        state, pod = state_of(nodes, pods), asked(raw)
        feasibility, prefiltered = FeasibilityCache(state.table), prefilter(state, pod)
        filtered = run_filters(state, feasibility, prefiltered)
        reasons: dict[str, int] = {}
        resolvable = []
        for row in state.table.live_rows().tolist():
            found = rejection_of(feasibility, prefiltered, filtered, row)
            if found is None:
                continue
            for reason in found[0].reasons:
                reasons[reason] = reasons.get(reason, 0) + 1
            if found[0].code is Code.UNSCHEDULABLE:
                resolvable.append(row)
        assert diagnose(state, feasibility, prefiltered).reasons == reasons, seed
        assert resolvable_rows(state, feasibility, prefiltered).tolist() == resolvable, seed


def test_devices_that_a_class_stands_for_do_not_raise_the_price_of_nodes_that_give_them() -> None:
    state = ClusterState()
    state.upsert_node(make_node("devices").allocatable(cpu="4", memory="8Gi", pods="8").node())
    plugin = make_node("plugin").allocatable(cpu="4", memory="8Gi", pods="8", **{"example.com/gpu": "1"})
    state.upsert_node(plugin.node())
    for name in ("devices", "plugin"):
        state.observe(make_pod(f"on-{name}").cpu("4").priority(0).on(name).pod())
    pod = make_pod("in").cpu("2").request(**{"example.com/gpu": "2"}).priority(9).pod()
    pod = replace(pod, pod_class=replace(pod.pod_class, by_class=("example.com/gpu",)))
    price = state.index.removable.least_price(pod)
    row_of = state.table.row_of
    assert price[row_of["devices"]] < 1 <= price[row_of["plugin"]]


def test_the_cheapest_node_lacks_least_of_what_the_least_important_pods_could_give() -> None:
    state = ClusterState()
    for name in ("hole", "full", "dear"):
        state.upsert_node(make_node(name).allocatable(cpu="4", memory="8Gi", pods="8").node())
    for name, priority in (("hole", 0), ("full", 0), ("full", 0), ("dear", 5), ("dear", 5)):
        number = len(state.cache.accounts)
        state.observe(make_pod(f"s{number}").cpu("2").priority(priority).on(name).pod())
    price = state.index.removable.least_price(make_pod("in").cpu("3").priority(9).pod())
    row_of = state.table.row_of
    assert price[row_of["hole"]] < price[row_of["full"]] < 1 <= price[row_of["dear"]]
