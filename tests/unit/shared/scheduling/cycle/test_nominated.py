"""What is kept of nodes with nominated pods is what a dry run of each node says, whatever has happened since."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from shared.model.pod import Pod
from shared.scheduling.cycle import nominated
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import diagnose, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.framework import Rejection
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod

NODES = 6


def one_by_one(state: ClusterState, feasibility: FeasibilityCache, pod: Pod, *, explain: bool) -> dict[int, Rejection]:
    prefiltered, found = prefilter(state, pod), dict[int, Rejection]()
    mask = feasibility.of(pod.pod_class).mask
    for name in state.nominated:
        row = state.table.row_of.get(name)
        if row is None or not (explain or mask[row]):
            continue
        others = state.nominated_on(name, pod)
        dry_run = DryRun(state, feasibility, prefiltered, row)
        for other in others:
            dry_run.add(other)
        rejection = dry_run.rejection() if others else None
        if rejection is not None:
            found[row] = rejection
    return found


def happen(state: ClusterState, rng: Random, step: int) -> None:
    node = f"n{rng.randrange(NODES)}"
    built = make_pod(f"p{rng.randrange(20)}").cpu(f"{rng.choice([500, 1000, 2000])}m").priority(rng.choice([0, 5, 9]))
    if rng.random() < 0.4:
        built = built.gpu_milli(rng.choice([300, 1000]))
    if rng.random() < 0.2:
        built = built.port(80)
    match rng.randrange(6):
        case 0 | 1:
            pod = built.pod()
            state.forget(pod.uid)
            built.json["status"]["nominatedNodeName"] = node
            state.observe(built.pod())
        case 2:
            state.forget(f"uid-p{rng.randrange(20)}")
        case 3:
            state.observe(built.on(node).pod())
        case 4 if rng.random() < 0.5:
            state.remove_node(node)
        case _:
            made = make_node(node).allocatable(cpu=rng.choice(["2", "4"]), pods="4").gpus(2)
            state.upsert_node((made.cordon() if rng.random() < 0.2 else made).label(step=str(step % 3)).node())


@pytest.mark.parametrize("seed", range(12))
def test_the_kept_verdicts_are_those_of_a_dry_run_of_each_node(seed: int) -> None:
    rng, state = Random(seed), ClusterState()
    for number in range(NODES):
        state.upsert_node(make_node(f"n{number}").allocatable(cpu="4", pods="4").gpus(2).node())
    feasibility = FeasibilityCache(state.table)
    asking = [
        make_pod("a").cpu("1").priority(5).pod(),
        make_pod("b").cpu("500m").gpu_milli(1000).priority(0).pod(),
        make_pod("c").cpu("1").port(80).priority(9).pod(),
        make_pod("d").cpu("1").select(step="1").priority(5).pod(),
    ]
    for step in range(120):
        happen(state, rng, step)
        waiting = [pod for pods in state.nominated.values() for pod in pods.values()]
        for pod in (rng.choice(asking), *rng.sample(waiting, min(1, len(waiting)))):
            explain = rng.random() < 0.5
            found = run_filters(state, feasibility, prefilter(state, pod), explain=explain)
            expected = one_by_one(state, feasibility, pod, explain=explain)
            assert dict(found.contested) == expected
            assert not found.mask[list(expected)].any()
            told = diagnose(state, feasibility, prefilter(state, pod))
            contested = one_by_one(state, feasibility, pod, explain=True)
            assert told.plugins >= {rejection.plugin for rejection in contested.values()}
            left = [row for row in state.table.live_rows().tolist() if row not in contested]
            one = {row: feasibility.rejection(pod.pod_class, row) for row in left}
            reasons = [*contested.values(), *(rejection for rejection in one.values() if rejection is not None)]
            assert sum(told.reasons.values()) == sum(len(rejection.reasons) for rejection in reasons)


def test_a_member_does_not_yield_to_its_fellows_nor_a_pod_to_itself() -> None:
    state = ClusterState()
    state.upsert_node(make_node("n0").allocatable(cpu="1").node())
    feasibility = FeasibilityCache(state.table)
    built = make_pod("a").cpu("1").priority(5)
    built.json["status"]["nominatedNodeName"] = "n0"
    own = built.pod()
    state.observe(own)
    assert run_filters(state, feasibility, prefilter(state, own)).mask.tolist() == [True]
    other = make_pod("b").cpu("1").priority(5).pod()
    assert run_filters(state, feasibility, prefilter(state, other)).mask.tolist() == [False]


@pytest.mark.parametrize("count", [10, 200])
def test_a_node_is_judged_again_only_when_it_changed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    judge = nominated.Yielding._judge

    def counting(self: nominated.Yielding, pod: Pod, rows: np.ndarray, *rest: object, **named: bool) -> None:
        judged.extend(rows.tolist())
        judge(self, pod, rows, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(nominated.Yielding, "_judge", counting)
    state = ClusterState()
    for number in range(count):
        state.upsert_node(make_node(f"n{number}").allocatable(cpu="1").node())
    feasibility = FeasibilityCache(state.table)
    asking = make_pod("asking").cpu("1").priority(5).pod()
    for number in range(count):
        built = make_pod(f"p{number}").cpu("1").priority(5)
        built.json["status"]["nominatedNodeName"] = f"n{number}"
        state.observe(built.pod())
        diagnose(state, feasibility, prefilter(state, asking))
    assert len(judged) == count
