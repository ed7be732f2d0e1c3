"""Moves come in batches that fit beside everything before them and that budgets allow; circles are broken and told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from shared.model.cluster_objects import DisruptionBudget
from shared.rebalance.components import components
from shared.rebalance.limits import Caps
from shared.rebalance.order import MoveOrdering, OrderedMoves
from shared.rebalance.planner import ClusterSituation, in_order
from shared.rebalance.protections import CoveringBudgets
from shared.rebalance.search import Wish
from shared.rebalance.trial import ClusterTrial
from tests.builders import NodeBuilder, PodBuilder, make_node
from tests.unit.shared.rebalance.worlds import budget, owned, world

FREE = Caps(at_once=0, workload_part=1.0)


def ordered(
    there: ClusterSituation, moves: dict[str, str], *, budgets: Sequence[DisruptionBudget] = (), caps: Caps = FREE
) -> OrderedMoves:
    trial = ClusterTrial(there.state)
    row_of, by_name = trial.table.row_of, {one.pod.name: one for one in there.residents}
    wishes = [
        Wish(by_name[name], row_of[by_name[name].pod.node_name], row_of[target], 1.0) for name, target in moves.items()
    ]
    found = MoveOrdering(trial, CoveringBudgets(budgets), caps, there.residents).run(wishes)
    trial.undo(0)
    return found


def names(found: OrderedMoves) -> list[set[str]]:
    return [{step.wish.resident.pod.name for step in batch} for batch in found.batches]


def full(*given: str) -> list[NodeBuilder]:
    """Nodes that one pod of 3 CPU fills."""
    return [make_node(name) for name in given]


def test_what_needs_a_place_comes_after_who_leaves_it() -> None:
    there = world(full("a", "b", "c"), [owned("one", "a", "3"), owned("two", "b", "3")])
    found = ordered(there, {"one": "b", "two": "c"})
    assert names(found) == [{"two"}, {"one"}]
    assert found.batches[1][0].after == ("default/two",)
    assert "default/two left its place" in found.batches[1][0].why


def test_moves_that_need_nobody_go_together() -> None:
    there = world(full("a", "b", "c", "d"), [owned("one", "a", "3"), owned("two", "b", "3")])
    assert names(ordered(there, {"one": "c", "two": "d"})) == [{"one", "two"}]


def test_a_circle_is_broken_over_a_free_node() -> None:
    there = world(full("a", "b", "free"), [owned("one", "a", "3"), owned("two", "b", "3")])
    found = ordered(there, {"one": "b", "two": "a"})
    assert not found.left
    assert len(found.batches) == 3
    first = found.batches[0][0]
    assert first.why.startswith("over free: ")
    stands = {step.wish.resident.pod.name: step.wish.target for batch in found.batches for step in batch}
    rows = there.state.table.row_of
    assert stands == {"one": rows["b"], "two": rows["a"]}


def test_a_circle_without_a_free_node_is_a_partial_step_and_said_so() -> None:
    there = world(full("a", "b"), [owned("one", "a", "3"), owned("two", "b", "3")])
    found = ordered(there, {"one": "b", "two": "a"})
    assert not found.batches
    assert "a partial step: 2 moves wait for each other's places" in found.left[0][1]
    assert len(found.left) == 2


def test_a_step_over_a_free_node_counts_against_the_cap() -> None:
    there = world(full("a", "b", "free"), [owned("one", "a", "3"), owned("two", "b", "3")])
    found = ordered(there, {"one": "b", "two": "a"}, caps=Caps(moves=2, at_once=0, workload_part=1.0))
    assert not found.batches


def test_a_budget_divides_what_would_fit_at_once() -> None:
    there = world(full("a", "b", "c", "d", "e", "f"), [owned(f"p{name}", name, "3") for name in "abc"])
    moves = {"pa": "d", "pb": "e", "pc": "f"}
    found = ordered(there, moves, budgets=[budget("web", "web", 2)])
    assert [len(batch) for batch in found.batches] == [2, 1]
    assert "the budget web allows no more at once" in found.batches[1][0].why
    assert [len(batch) for batch in ordered(there, moves).batches] == [3], "without the budget"


def test_of_one_workload_a_part_moves_at_once() -> None:
    nodes = [make_node(name).allocatable(cpu="16") for name in "ab"]
    there = world(nodes, [owned(f"p{i}", "a") for i in range(8)])
    found = ordered(there, {f"p{i}": "b" for i in range(8)}, caps=Caps(at_once=0))
    assert [len(batch) for batch in found.batches] == [2, 2, 2, 2]


GRAPHS = {
    0: "A dp1/pod1 B, B dp1/pod2 C",
    1: "A dp1/pod1 B, B dp2/pod1 C, C dp1/pod2 D, D dp2/pod2 E, E dp2/pod3 B, B dp3/pod1 F, C dp1/pod3 F, "
    "F dp1/pod4 G, G dp1/pod5 H, F dp3/pod2 H, G dp2/pod4 I",
    2: "A dp1/pod1 B, B dp2/pod1 C, C dp1/pod2 D, A dp2/pod2 D, E dp2/pod3 F, F dp3/pod1 G, G dp2/pod4 H, "
    "H dp3/pod2 F, E dp3/pod3 H, H dp4/pod1 G, G dp4/pod2 E",
}
"""godel-rescheduler's graphs (policycontroller/generator/testdata, 0 and 1 as there): node, pod, node."""


@pytest.mark.parametrize(("graph", "allowed"), [(0, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize("room", [1, 4])
def test_godel_reschedulers_graphs_come_in_batches_that_the_budget_allows(graph: int, allowed: int, room: int) -> None:
    """Its own cases: no batch beyond the budget; ours beside that: every move fits when its batch begins. ``room``: how
    many pods a node takes beside those that stand there, before or after."""
    edges = [tuple(edge.split()) for edge in GRAPHS[graph].split(", ")]
    stand, come = Counter(source for source, _, _ in edges), Counter(target for _, _, target in edges)
    names_of = sorted({edge[0] for edge in edges} | {edge[2] for edge in edges})
    has = {name: max(stand[name], come[name]) + room for name in names_of}
    nodes = [make_node(name).allocatable(cpu=str(has[name])) for name in names_of]
    pods = [owned(pod.replace("/", "-"), source, "1") for source, pod, _ in edges]
    there = world(nodes, pods)
    found = ordered(
        there, {pod.replace("/", "-"): target for _, pod, target in edges}, budgets=[budget("all", "web", allowed)]
    )
    assert all(len(batch) <= allowed for batch in found.batches)
    assert not found.left
    stands = Counter(one.pod.node_name for one in there.residents)
    names_by_row = there.state.table.names
    for batch in found.batches:
        for step in batch:
            stands[names_by_row[step.wish.target]] += 1
        for name, count in stands.items():
            assert count <= has[name]
        for step in batch:
            stands[names_by_row[step.wish.source]] -= 1


def test_a_move_of_a_spread_waits_while_others_of_it_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [make_node(name).allocatable(cpu="8").label(zone=name) for name in "abc"]
    pods = [owned("a-1", "a"), owned("a-2", "a"), owned("b-1", "b"), owned("c-1", "c")]
    for pod in pods:
        pod.json["spec"]["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"app": "web"}}}
        ]  # fmt: skip
    there = world(nodes, pods)
    moves = {"a-1": "b", "a-2": "c"}
    found = ordered(there, moves)
    assert names(found) == [{"a-1"}]
    assert [wish.resident.pod.name for wish, _ in found.left] == ["a-2"]
    monkeypatch.setattr(MoveOrdering, "_tied", lambda *_: False)
    assert names(ordered(there, moves)) == [{"a-1", "a-2"}], "nobody looks at the batch as it will be"


def test_components_come_after_what_they_need() -> None:
    assert components({0: [1], 1: [2], 2: [1, 3], 3: []}) == [[3], [1, 2], [0]]
    assert components({}) == []
    assert components({0: [0]}) == [[0]]


def beside(name: str, node: str, app: str) -> PodBuilder:
    """A pod that must stand where one of the app does."""
    found = owned(name, node)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    found.json["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return found


def hosts(*given: str) -> list[NodeBuilder]:
    return [make_node(name).label(**{"kubernetes.io/hostname": name}) for name in given]


def test_who_must_stand_beside_another_follows_it_in_a_later_batch() -> None:
    """Room that is kept has no labels: nobody finds the other by it."""
    there = world(hosts("a", "b"), [owned("cache", "a", owner="cache"), beside("web", "a", "cache")])
    assert names(ordered(there, {"cache": "b", "web": "b"})) == [{"cache"}, {"web"}]


def test_nobody_leaves_a_pod_that_stays_and_must_have_it_beside_it() -> None:
    there = world(hosts("a", "b"), [owned("cache", "a", owner="cache"), beside("web", "a", "cache")])
    found = ordered(there, {"cache": "b"})
    assert not found.batches
    assert found.left[0][1] == "default/web stays, and must have it beside it"
    twice = world(
        hosts("a", "b"), [*(owned(f"cache-{i}", "a", owner="cache") for i in range(2)), beside("web", "a", "cache")]
    )
    assert names(ordered(twice, {"cache-0": "b"})) == [{"cache-0"}], "another one stands beside it"


def test_of_a_node_that_cannot_be_emptied_nobody_moves() -> None:
    """Both leave ``a`` for its sake; where one of them finds no room, the other wins nothing."""
    wishes = dict.fromkeys(("one", "two"), "b")
    crowd = world(full("a", "b"), [owned("one", "a", "2"), owned("two", "a", "2")])
    trial, row_of = ClusterTrial(crowd.state), crowd.state.table.row_of
    asked = [Wish(one, row_of["a"], row_of[wishes[one.pod.name]], 1.0, "a") for one in crowd.residents]
    kept = owned("more", "b", "1").pod()
    crowd.state.observe(kept)
    result = in_order(trial, CoveringBudgets(()), FREE, crowd.residents, asked)
    assert not result.batches
    assert len(result.left) == 2
    assert any("without it nothing is won" in why for _, why in result.left)
