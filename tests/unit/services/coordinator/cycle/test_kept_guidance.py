"""What was judged of a pod beside others is kept while nothing that it rests on moved, and is as if judged anew."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from services.coordinator.core.state import CoordinatorState, CoreSettings
from services.coordinator.cycle import constraints
from shared.model.cluster_objects import Workload
from shared.model.pod import Pod
from shared.model.terms.labels import selector_of_labels
from shared.scheduling.cycle.constraints import Guidance, guidance_for
from shared.scheduling.state.object_changes import drop_object, put_object
from tests.builders import make_node
from tests.unit.shared.scheduling.random_clusters import SPACES, some_cluster, some_pod
from tests.unit.shared.scheduling.test_rules_against_naive import asked, state_of, to_pod


def started(seed: int) -> tuple[CoordinatorState, list[Pod], list[str]]:
    """A cluster, pods that wait, and names of nodes."""
    nodes, pods, raw = some_cluster(seed)
    state = CoordinatorState(7, "conclave", "kube-default", CoreSettings(), Random(seed))
    state.cluster.namespaces.update(SPACES)
    known = state_of(nodes, pods)
    for node in known.table.nodes:
        assert node is not None
        state.cluster.upsert_node(node)
    for pod in pods:
        state.cluster.observe(to_pod(pod))
    rng = Random(seed)
    more = [asked(some_pod(rng, f"waits-{number}", "")) for number in range(3)]
    return state, [asked(raw), *more], [node["metadata"]["name"] for node in nodes]


def event(state: CoordinatorState, rng: Random, nodes: list[str], number: int) -> None:
    """Something happens."""
    cluster, kind = state.cluster, rng.randrange(6)
    standing = sorted(cluster.cache.accounts)
    new = to_pod(some_pod(rng, f"new-{number}", rng.choice(nodes)))
    if kind <= 1:
        cluster.assume(new, new.node_name, 0.0)
    elif kind == 2:
        cluster.observe(new)
    elif kind == 3 and standing:
        cluster.forget(rng.choice(standing))
    elif kind == 4:
        name = f"service-{rng.randrange(3)}"
        if rng.random() < 0.4:
            drop_object(cluster, "services", f"{new.namespace}/{name}")
        else:
            selector = selector_of_labels(dict(list(new.labels.items())[:1]))
            put_object(cluster, "services", name, Workload("v1", "Service", new.namespace, name, selector))
        cluster.objects_version += 1
    else:
        name = rng.choice([*nodes, f"more-{number}"])
        cluster.upsert_node(make_node(name).label(zone=rng.choice("xyz")).allocatable(cpu=rng.choice("048")).node())


def same(kept: Guidance, fresh: Guidance) -> bool:
    for one, other in ((kept.mask, fresh.mask), (kept.scores, fresh.scores)):
        if one is None or other is None:
            if one is not other:
                return False
        elif not np.array_equal(one, other):
            return False
    return (kept.norms, kept.rejection) == (fresh.norms, fresh.rejection)


def differing(seeds: range) -> tuple[int, int]:
    """How often what is said is not what judging anew says; and how often it was kept."""
    wrong = kept = 0
    for seed in seeds:
        state, waiting, nodes = started(seed)
        rng = Random(f"events {seed}")
        for number in range(12):
            for pod in waiting:
                before = state.constraints.judge(pod)
                event(state, rng, nodes, number)
                now = state.constraints.judge(pod)
                wrong += not same(now, guidance_for(state.cluster, state.feasibility, pod))
                kept += now is before
                assert not list(state.cluster.validate())
    return wrong, kept


def test_what_is_kept_is_what_judging_anew_says() -> None:
    wrong, kept = differing(range(60))
    assert wrong == 0
    assert kept > 100


@pytest.mark.parametrize("part", ["stamp", "moved"])
def test_switched_off_what_guidance_rests_on_it_is_kept_too_long(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def holds(known: constraints._Kept, stamp: tuple[int, int, int, int]) -> bool:
        stamped = part == "stamp" or stamp == known.stamp
        return stamped and (part == "moved" or known.moved == [amounts.moved for amounts in known.behind])

    monkeypatch.setattr(constraints._Kept, "holds", holds)
    assert differing(range(40))[0] > 0
