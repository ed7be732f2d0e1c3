"""Preemption of and by groups: enough victims and none too many, surplus first, one gang broken before a second."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shared.model.cluster_objects import DisruptionBudget
from shared.model.pod import Pod
from shared.model.terms.labels import selector_of_labels
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.groups import preemption, steps
from shared.scheduling.groups.preemption import search_group, still_helps
from shared.scheduling.groups.steps import GroupPreemption
from shared.scheduling.preemption.preemption import NEVER, NO_CANDIDATE, Preemption, plan_preemption
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling.groups.gangs import attempt, cluster, cpus, gang, member, members, stand


def key(name: str) -> str:
    return group_key(GroupSource.NATIVE, "d", name)


def running(
    state: ClusterState, name: str, minimum: int, nodes: str, cpu: int = 1000, *, whole: bool = False, priority: int = 0
) -> list[Pod]:
    """A gang that runs, a member per letter on the node so called; younger gangs have later names."""
    group = PodGroup(key(name), GroupSource.NATIVE, "d", name, gang=True, min_count=minimum, whole=whole)
    state.pod_groups[group.key] = group
    return [
        stand(
            state,
            member(
                f"{name}{i}", cpu, group=group.key, priority=priority, start_time=f"2026-01-01T00:00:{i:02}Z-{name}"
            ),
            node,
        )
        for i, node in enumerate(nodes)
    ]


def lone(state: ClusterState, name: str, node: str, cpu: int = 1000, **fields: object) -> Pod:
    return stand(state, member(name, cpu, group="", **fields), node)


def whole_search(
    state: ClusterState, group: PodGroup, pods: list[Pod], bound: list[Pod] | None = None, *, strict: bool = False,
    patient: bool = False, leaving: Callable[[Pod], bool] = lambda _: False, ran: Callable[[str], int] = lambda _: 0,
    spoken_for: Callable[[Pod], bool] = lambda _: False,
) -> GroupPreemption:  # fmt: skip
    """What the search comes to, in one go."""
    feasibility = FeasibilityCache(state.table)
    search = search_group(
        state, feasibility, group, pods, bound or (), strict=strict, patient=patient, leaving=leaving, ran=ran,
        spoken_for=spoken_for,
    )  # fmt: skip
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: GroupPreemption = end.value
            return found


def ask(
    state: ClusterState, group: PodGroup, pods: list[Pod], bound: list[Pod] | None = None, *, strict: bool = False
) -> GroupPreemption:
    found = whole_search(state, group, pods, bound, strict=strict)
    if found.nodes:
        assert still_helps(state, FeasibilityCache(state.table), group, pods, found)
    return found


def victims(found: GroupPreemption) -> list[str]:
    return sorted(pod.name for pod in found.victims)


def single(state: ClusterState, pod: Pod) -> Preemption:
    """What preemption of a lone pod would do."""
    feasibility = FeasibilityCache(state.table)
    prefiltered = prefilter(state, pod)
    filtered = run_filters(state, feasibility, prefiltered)
    found = [(row, rejection_of(feasibility, prefiltered, filtered, row)) for row in state.table.row_of.values()]
    codes = [(row, one[0].code) for row, one in found if one is not None]
    return plan_preemption(state, feasibility, prefiltered, codes, may_evict=lambda other: other.preemptible)


# --- the four pairings --------------------------------------------------------------------------------------------


def test_a_pod_preempts_a_pod() -> None:
    state = cpus(a=1000)
    lone(state, "old", "a")
    assert [pod.name for pod in single(state, member("new", 1000, group="", priority=9)).best[0].victims] == ["old"]


@pytest.mark.parametrize(("whole", "expected"), [(True, {"v0", "v1", "v2"}), (False, {"v0"})])
def test_a_pod_preempts_members_of_a_group_all_of_them_where_it_is_preempted_whole(
    whole: bool, expected: set[str]
) -> None:
    state = cpus(a=1000, b=1000, c=1000)
    running(state, "v", 1, "abc", whole=whole)
    found = single(state, member("new", 1000, group="", priority=9))
    assert {c.node_name: {pod.name for pod in c.victims} for c in found.candidates}["a"] == expected


def test_a_group_preempts_pods_on_many_nodes_at_once() -> None:
    state = cpus(a=1000, b=1000, c=1000)
    for node in "abc":
        lone(state, f"old-{node}", node)
    found = ask(state, gang(3), members(3, 1000, priority=9))
    assert victims(found) == ["old-a", "old-b", "old-c"]
    assert sorted(found.nodes.values()) == ["a", "b", "c"]


@pytest.mark.parametrize(("whole", "expected"), [(True, ["v0", "v1", "v2"]), (False, ["v1", "v2"])])
def test_a_group_preempts_a_group_as_a_whole_or_in_part(whole: bool, expected: list[str]) -> None:
    state = cpus(a=1000, b=1000, c=1000)
    running(state, "v", 1, "abc", whole=whole)
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert len(victims(found)) == len(expected)
    assert not whole or victims(found) == expected
    assert found.broken == ((key("v"),) if whole else ())


# --- who leaves ---------------------------------------------------------------------------------------------------


def test_only_those_in_the_way_leave_and_where_there_is_room_nobody_does() -> None:
    state = cpus(a=2000, b=2000)
    lone(state, "x", "a", 2000)
    lone(state, "y", "b", 1000)
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert victims(found) in (["x"], ["y"])
    assert len(found.victims) == 1


def test_the_least_important_leave_first() -> None:
    state = cpus(a=1000, b=1000, c=1000)
    for node, priority in (("a", 5), ("b", 1), ("c", 3)):
        lone(state, f"p{priority}", node, priority=priority)
    assert victims(ask(state, gang(2), members(2, 1000, priority=9))) == ["p1", "p3"]
    assert victims(ask(state, gang(1), members(1, 1000, priority=4))) == ["p1"]


def test_who_is_as_important_stays() -> None:
    state = cpus(a=1000)
    lone(state, "old", "a", priority=5)
    assert ask(state, gang(1), members(1, 1000, priority=5)).reason == NO_CANDIDATE
    assert ask(state, gang(1, priority=6), members(1, 1000, priority=5)).victims
    state.pod_groups[key("v")] = PodGroup(key("v"), GroupSource.NATIVE, "d", "v", priority=7)
    stand(state, member("more", 1000, group=key("v"), priority=5), "a")
    state.forget("old")
    assert ask(state, gang(1, priority=6), members(1, 1000, priority=5)).reason == NO_CANDIDATE


def test_who_opted_out_stays_and_protects_a_group_that_is_preempted_whole() -> None:
    state = cpus(a=1000, b=1000)
    lone(state, "kept", "a", preemptible=False)
    lone(state, "old", "b")
    assert ask(state, gang(2), members(2, 1000, priority=9)).reason == NO_CANDIDATE
    assert victims(ask(state, gang(1), members(1, 1000, priority=9))) == ["old"]
    state = cpus(a=1000, b=1000)
    first, _ = running(state, "v", 1, "ab", whole=True)
    stand(state, replace(first, preemptible=False), "a")
    assert ask(state, gang(1), members(1, 1000, priority=9)).reason == NO_CANDIDATE


def test_a_group_that_never_preempts_asks_nobody_to_leave() -> None:
    state = cpus(a=1000)
    lone(state, "old", "a")
    assert ask(state, gang(1, never_preempts=True), members(1, 1000, priority=9)).reason == NEVER
    assert ask(state, gang(1), members(1, 1000, priority=9, never_preempts=True)).reason == NEVER


def test_a_group_does_not_evict_its_own_members() -> None:
    state = cpus(a=1000)
    mine = stand(state, member("mine", 1000, priority=0), "a")
    assert ask(state, gang(2), [member("next", 1000, priority=9)], [mine]).reason == NO_CANDIDATE


def test_budgets_are_broken_last_and_never_where_that_is_forbidden() -> None:
    state = cpus(a=1000, b=1000)
    lone(state, "guarded", "a", labels={"app": "x"})
    lone(state, "other", "b", priority=5)
    selector = selector_of_labels({"app": "x"})
    state.budgets.append(DisruptionBudget("d", "pdb", selector, 0, frozenset()))
    found = ask(state, gang(1), members(1, 1000, priority=9))
    assert (victims(found), found.violating) == (["other"], frozenset())
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert (victims(found), found.violating) == (["guarded", "other"], {"guarded"})
    assert ask(state, gang(2), members(2, 1000, priority=9), strict=True).reason == NO_CANDIDATE


# --- gangs as victims ---------------------------------------------------------------------------------------------


def test_members_beyond_the_minimum_leave_before_a_gang_is_broken() -> None:
    state = cpus(a=1000, b=1000, c=1000, e=1000)
    running(state, "v", 2, "ab")
    running(state, "w", 1, "ce")
    found = ask(state, gang(1), members(1, 1000, priority=9))
    assert (victims(found)[0][0], found.broken) == ("w", ())


def test_the_surplus_of_all_gangs_goes_before_any_is_broken_and_exactly_one_is_broken_before_a_second() -> None:
    nodes = "abcefh"
    state = cpus(**dict.fromkeys(nodes, 1000))
    running(state, "v", 2, "abc")
    running(state, "w", 2, "efh")
    found = ask(state, gang(2), members(2, 1000, priority=9))
    assert ({name[0] for name in victims(found)}, found.broken) == ({"v", "w"}, ())
    for missing in (3, 4):
        found = ask(state, gang(missing), members(missing, 1000, priority=9))
        assert (len(found.victims), len(found.broken)) == (missing, 1)
    assert len(ask(state, gang(5), members(5, 1000, priority=9)).broken) == 2


def test_the_youngest_gang_is_broken_first() -> None:
    state = cpus(a=1000, b=1000)
    older, younger = running(state, "v", 1, "a"), running(state, "w", 1, "b")
    for pod, start in ((older[0], "2026-01-01T00:00:00Z"), (younger[0], "2026-02-01T00:00:00Z")):
        stand(state, replace(pod, start_time=start), pod.node_name)
    assert ask(state, gang(1), members(1, 1000, priority=9)).broken == (key("w"),)


def test_a_lone_pod_goes_before_a_gang_is_broken_unless_it_is_more_important() -> None:
    state = cpus(a=1000, b=1000)
    running(state, "v", 1, "a", priority=3)
    lone(state, "x", "b", priority=3)
    assert victims(ask(state, gang(1), members(1, 1000, priority=9))) == ["x"]
    stand(state, member("x", 1000, group="", priority=4), "b")
    assert victims(ask(state, gang(1), members(1, 1000, priority=9))) == ["v0"]


def test_members_of_a_gang_that_is_broken_already_are_as_pods() -> None:
    state = cpus(a=1000, b=1000)
    running(state, "v", 5, "a")
    running(state, "w", 1, "b")
    found = ask(state, gang(1), members(1, 1000, priority=9))
    assert (victims(found), found.broken) == (["v0"], ())


def test_a_gang_of_which_members_have_ended_is_not_broken_and_its_others_are_protected() -> None:
    state = cpus(a=1000, b=1000)
    running(state, "v", 2, "a")
    lone(state, "x", "b", start_time="0")
    pods = members(1, 1000, priority=9)
    found = whole_search(state, gang(1), pods, ran={key("v"): 1}.__getitem__)
    assert (victims(found), found.broken) == (["x"], ())
    assert victims(whole_search(state, gang(1), pods)) == ["v0"], "without that it would count as broken already"


def test_who_leaves_already_is_counted_on_before_others_are_asked() -> None:
    state = cpus(a=1000, b=1000, c=1000)
    for node in "abc":
        lone(state, node, node, priority="abc".index(node))
    found = whole_search(state, gang(2), members(2, 1000, priority=9), leaving=lambda pod: pod.name == "c")
    assert victims(found) == ["a", "c"]


@pytest.mark.parametrize("kept", [False, True])
def test_who_leaves_for_nobody_any_more_is_counted_on_wherever_it_stands(kept: bool) -> None:
    """As one that a leader before has marked; not where the room is kept for somebody."""
    nodes = [f"n{number:02}" for number in range(preemption.FIRST_ROWS + 4)]
    state = cpus(**dict.fromkeys(nodes, 1000))
    for node in nodes:
        lone(state, node, node, priority=0)
    last = next(iter(state.index.pods_on(nodes[-1])))
    state.index.place(replace(last, preempted=True), nodes[-1])
    found = whole_search(
        state, gang(1), members(1, 1000, priority=9), leaving=lambda pod: pod.preempted, spoken_for=lambda _: kept
    )
    assert (victims(found) == [nodes[-1]]) is not kept


def test_without_that_order_a_second_gang_would_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: no member is known to be one too many."""
    monkeypatch.setattr(steps.LeavingSteps, "_spare", lambda self, name: 99)
    state = cpus(a=1000, b=1000)
    running(state, "v", 1, "a", priority=0)
    lone(state, "x", "b", start_time="0")
    found = ask(state, gang(1), members(1, 1000, priority=9))
    assert victims(found) == ["v0"]


# --- where --------------------------------------------------------------------------------------------------------


def test_victims_leave_one_domain_where_members_must_be_near_each_other() -> None:
    state = cluster(*((f"{rack}{i}", {"cpu": 1000}, {"rack": rack}) for rack in "ab" for i in range(2)))
    lone(state, "a-old", "a0")
    lone(state, "b-old", "b0")
    lone(state, "b-new", "b1", priority=9)
    found = ask(state, gang(2, "rack"), members(2, 1000, priority=9))
    assert (victims(found), set(found.nodes.values())) == (["a-old"], {"a0", "a1"})
    assert ask(state, gang(3, "rack"), members(3, 1000, priority=9)).reason == NO_CANDIDATE


def test_members_keep_the_nodes_that_they_are_nominated_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader goes on where one ended before it had asked anybody to leave."""
    monkeypatch.setattr(preemption, "FEWEST_ROWS", 1)
    state = cpus(**{f"n{i}": 1000 for i in range(9)})
    for i in range(9):
        lone(state, f"old{i}", f"n{i}")
    pods = [member(f"m{i}", 1000, priority=9, nominated_node=f"n{i + 6}") for i in range(2)]
    for pod in pods:
        state.nominate(pod)
    assert ask(state, gang(2), pods).nodes == {"m0": "n6", "m1": "n7"}


def test_nodes_that_are_kept_for_others_are_passed_over_for_those_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them are the cheapest."""
    monkeypatch.setattr(preemption, "FEWEST_ROWS", 1)
    state = cpus(**{f"n{i}": 1000 for i in range(5)})
    for i in range(5):
        lone(state, f"old{i}", f"n{i}")
    for i in range(4):
        state.nominate(member(f"other{i}", 1000, group="", priority=9, nominated_node=f"n{i}"))
    assert victims(ask(state, gang(1), members(1, 1000, priority=9))) == ["old4"]


def test_members_that_run_already_count_and_only_the_missing_ones_preempt() -> None:
    state = cpus(a=1000, b=1000, c=1000)
    mine = stand(state, member("mine", 1000, priority=9), "a")
    lone(state, "x", "b")
    lone(state, "y", "c")
    found = ask(state, gang(2), members(2, 1000, priority=9), [mine])
    assert len(found.victims) == len(found.nodes) == 1


def test_unequal_members_preempt_in_an_order_that_helps() -> None:
    state = cpus(a=3000)
    lone(state, "old", "a", 3000)
    pods = [member("large", 3000, priority=9), *members(2, 1500, priority=9)]
    found = ask(state, gang(2), pods)
    assert set(found.nodes) == {"m0", "m1"}


def test_who_waits_patiently_counts_on_its_equals_too_and_on_nobody_above() -> None:
    state = cpus(a=1000, b=1000)
    lone(state, "equal", "a", priority=5)
    lone(state, "above", "b", priority=6)
    group, pods = gang(1), members(1, 1000, priority=5, never_preempts=True)
    assert whole_search(state, group, pods).reason == NEVER
    found = whole_search(state, group, pods, patient=True)
    assert (victims(found), list(found.nodes.values())) == (["equal"], ["a"])
    assert still_helps(state, FeasibilityCache(state.table), group, pods, found, patient=True)
    assert not still_helps(state, FeasibilityCache(state.table), group, pods, found)
    assert whole_search(state, gang(2), members(2, 1000, priority=5), patient=True).reason == NO_CANDIDATE


def test_what_has_changed_meanwhile_is_noticed() -> None:
    state = cpus(a=1000)
    old = lone(state, "old", "a")
    group, pods = gang(1), members(1, 1000, priority=9)
    feasibility = FeasibilityCache(state.table)
    found = whole_search(state, group, pods)
    state.forget(old.uid)
    assert still_helps(state, feasibility, group, pods, found)
    lone(state, "thief", "a")
    assert not still_helps(state, feasibility, group, pods, found)
    state.forget("thief")
    stand(state, replace(old, priority=9), "a")
    assert not still_helps(state, feasibility, group, pods, found)
    assert not still_helps(state, feasibility, group, [], found)


@pytest.mark.parametrize("seed", range(60))
def test_without_its_victims_the_cluster_takes_the_gang_and_with_any_unit_of_them_it_does_not(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(rng.randint(2, 5))]
    state = cpus(**{name: rng.randint(2, 5) * 500 for name in names})
    for number in range(3):
        minimum, whole = rng.randint(1, 3), rng.random() < 0.3
        group = PodGroup(
            key(f"v{number}"), GroupSource.NATIVE, "d", f"v{number}", gang=True, min_count=minimum, whole=whole
        )
        state.pod_groups[group.key] = group
    for number in range(12):
        pod = member(
            f"p{number}", rng.randint(1, 3) * 250, group=key(f"v{number % 3}") if number % 2 else "",
            priority=rng.randint(0, 3), start_time=str(number), labels={"app": rng.choice("xy")},
        )  # fmt: skip
        node = rng.choice(names)
        mask = run_filters(state, FeasibilityCache(state.table), prefilter(state, pod)).mask
        if mask[state.table.row_of[node]]:
            stand(state, pod, node)
    state.budgets.append(DisruptionBudget("d", "pdb", selector_of_labels({"app": "x"}), 1, frozenset()))
    pods = members(rng.randint(1, 4), rng.randint(1, 4) * 250, priority=3)
    group = gang(len(pods))
    if attempt(state, group, pods).reached:
        return
    found = ask(state, group, pods)
    if found.reason:
        for uid in [p.uid for name in names for p in list(state.index.pods_on(name)) if p.priority < 3]:
            pod = state.index.get(uid)
            if pod is not None and not _as_important(state, pod):
                state.forget(uid)
        assert not attempt(state, group, pods).reached
        return
    assert all(pod.priority < 3 for pod in found.victims)
    placed = [replace(pod, nominated_node=found.nodes[pod.uid]) for pod in pods]
    taken = {pod.uid: (pod, state.cache.accounts[pod.uid].node_name) for pod in found.victims}
    for uid in taken:
        state.forget(uid)
    assert attempt(state, group, placed).nodes == found.nodes
    for pod in placed:
        state.observe(replace(pod, node_name=found.nodes[pod.uid]))
    units: dict[str, list[str]] = {}
    for uid, (pod, _) in taken.items():
        whole = bool(pod.group) and state.pod_groups[pod.group].whole
        units.setdefault(pod.group if whole else uid, []).append(uid)
    for uids in units.values():
        fits = True
        for uid in uids:
            pod, node = taken[uid]
            mask = run_filters(state, FeasibilityCache(state.table), prefilter(state, pod)).mask
            fits = fits and bool(mask[state.table.row_of[node]])
            stand(state, pod, node)
        assert not fits, (seed, uids)
        for uid in uids:
            state.forget(uid)


def _as_important(state: ClusterState, pod: Pod) -> bool:
    group = state.pod_groups.get(pod.group)
    if group is None or not group.whole:
        return False
    return any(other.priority >= 3 for uid in state.members[pod.group] if (other := state.index.get(uid)))
