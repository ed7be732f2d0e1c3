"""The index of pods: whatever came and went, it counts as one built afresh does."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.constraints import Requirement
from shared.model.terms.labels import LabelSelector, selector_of_labels
from shared.scheduling.state import pod_index
from shared.scheduling.state.node_table import NodeTable
from shared.scheduling.state.pod_index import Matcher, PodIndex
from tests.unit.shared.scheduling.random_clusters import some_node, some_pod

MATCHERS = [
    Matcher(((frozenset({"default"}), selector_of_labels({"app": "web"})),)),
    Matcher(((None, selector_of_labels({"app": "db"})),), skip_terminating=True),
    Matcher(((frozenset({"default", "other"}), LabelSelector()),)),
    Matcher(((None, LabelSelector((Requirement("tier", "Exists"),))), (frozenset({"bare"}), LabelSelector()))),
    Matcher(((None, None),)),
    Matcher(((None, selector_of_labels({"app": "web"})),), skip_terminating=True, skip_assumed=True),
]


def everything(index: PodIndex, table: NodeTable) -> dict[str, object]:
    """What the index says, by node name, so that rows may differ."""
    index.sync()
    answers: dict[str, object] = {}
    for number, matcher in enumerate(MATCHERS):
        counts = index.counts(matcher)
        answers[f"matcher {number}"] = {name: int(counts[row]) for name, row in table.row_of.items()}
        live = set(table.row_of.values())
        assert all(not counts[row] for row in range(table.rows) if row not in live), "freed rows count nothing"
    for kind, registry in (("anti", index.anti_affinity), ("weighted", index.weighted)):
        answers[kind] = {
            term: {name: int(rows.amounts[row]) for name, row in table.row_of.items()}
            for term, rows in registry.items()
        }
    answers["claims"] = dict(index.claim_users)
    answers["volumes"] = {name: sorted(pods) for name, pods in index.volume_pods.items()}
    uses = index.claim_uses()
    answers["claim uses"] = {name: int(uses[row]) for name, row in table.row_of.items()}
    return answers


@pytest.mark.parametrize("seed", range(40))
def test_counting_along_equals_counting_afresh(seed: int) -> None:
    rng = random.Random(seed)
    table, names = NodeTable(2), [f"n{i}" for i in range(6)]
    index, standing, nodes, assumed = PodIndex(table), {}, {}, dict[str, bool]()
    for step in range(120):
        name = rng.choice(names)
        match rng.randrange(7):
            case 0:
                nodes[name] = node_from_api(msgspec.convert(some_node(rng, name), api.KubeNode))
                table.upsert(nodes[name])
            case 1:
                nodes.pop(name, None)
                table.remove(name)
            case 2:
                uid = rng.choice([*standing, "nobody"])
                standing.pop(uid, None)
                index.drop(uid)
            case _:
                uid = f"p{rng.randrange(12)}"
                raw = some_pod(rng, uid, name)
                if rng.random() < 0.3:
                    claim = {"name": "v", "persistentVolumeClaim": {"claimName": rng.choice("cd")}}
                    raw["spec"]["volumes"] = [claim]
                standing[uid] = pod_from_api(msgspec.convert(raw, api.KubePod))
                assumed[uid] = rng.random() < 0.3
                index.place(standing[uid], name, assumed=assumed[uid])
        if step % 10 == 0:
            fresh_table = NodeTable()
            for node in nodes.values():
                fresh_table.upsert(node)
            fresh = PodIndex(fresh_table)
            for pod in standing.values():
                fresh.place(pod, pod.node_name, assumed=assumed[pod.uid])
            assert index.assumed == fresh.assumed
            assert everything(index, table) == everything(fresh, fresh_table), (seed, step)


def test_questions_beyond_the_limit_are_forgotten_and_answered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_index, "MATCHER_LIMIT", 2)
    table = NodeTable()
    rng = random.Random(1)
    table.upsert(node_from_api(msgspec.convert(some_node(rng, "n"), api.KubeNode)))
    index = PodIndex(table)
    pod = replace(
        pod_from_api(msgspec.convert(some_pod(rng, "p", "n"), api.KubePod)), labels={"app": "web"}, namespace="default"
    )
    index.place(pod, "n")
    for _ in range(2):
        assert [int(index.counts(matcher)[0]) for matcher in MATCHERS] == [1, 0, 1, 0, 0, 1]
    index.drop("p")
    assert [int(index.counts(matcher)[0]) for matcher in MATCHERS] == [0, 0, 0, 0, 0, 0]


def test_pods_wait_for_a_node_that_is_not_known_yet() -> None:
    table, rng = NodeTable(), random.Random(2)
    index = PodIndex(table)
    raw = some_pod(rng, "p", "late")
    raw["metadata"].update(labels={"app": "web"}, namespace="default")
    index.place(pod_from_api(msgspec.convert(raw, api.KubePod)), "late")
    assert not index.counts(MATCHERS[0]).any()
    row = table.upsert(node_from_api(msgspec.convert(some_node(rng, "late"), api.KubeNode)))
    assert index.counts(MATCHERS[0])[row] == 1
