"""What a dry run says beside nominated pods, however often it is asked, is what it says with them and without them."""

from __future__ import annotations

from random import Random

import pytest

from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import PodBuilder, make_node, make_pod

SLOTS = 12


def drawn(name: str, rng: Random) -> PodBuilder:
    built = make_pod(name).cpu(f"{rng.choice([250, 500, 1000])}m").priority(rng.choice([0, 5, 9]))
    if rng.random() < 0.5:
        built = built.gpu_milli(rng.choice([300, 500, 1000]))
    return built.port(80 + rng.randrange(3)) if rng.random() < 0.3 else built


@pytest.mark.parametrize("seed", range(40))
def test_pods_that_come_and_go_in_thought_are_judged_as_if_they_did(seed: int) -> None:
    rng, state = Random(seed), ClusterState()
    state.upsert_node(make_node("n").allocatable(cpu="4", pods="8").gpus(2).node())
    state.upsert_node(make_node("other").allocatable(cpu="64", pods="99").gpus(2).node())  # a row before is no matter
    for number in range(SLOTS):
        built = drawn(f"p{number}", rng)
        if rng.random() < 0.3:
            built.json["status"]["nominatedNodeName"] = "n"
        else:
            built = built.on(rng.choice(["n", "n", "other"]))
        state.observe(built.pod())
    feasibility = FeasibilityCache(state.table)
    pod = drawn("asks", rng).pod()
    prefiltered, row = prefilter(state, pod), state.table.row_of["n"]
    dry_run = DryRun(state, feasibility, prefiltered, row)
    there = list(state.index.pods_on("n"))
    gone = set[str]()
    for _ in range(30):
        if there:
            one = rng.choice(there)
            (dry_run.add if one.uid in gone else dry_run.remove)(one)
            gone ^= {one.uid}
        anew = DryRun(state, feasibility, prefiltered, row)
        for one in there:
            if one.uid in gone:
                anew.remove(one)
        alone = anew.rejection() is None
        for one in state.nominated_on("n", pod):
            anew.add(one)
        if rng.random() < 0.7:
            assert dry_run.takes_beside_nominated() is (alone and anew.rejection() is None)
        else:
            assert (dry_run.rejection() is None) is alone
    assert int(state.table.requested[3, row]) == len(there)  # nothing of it is so
