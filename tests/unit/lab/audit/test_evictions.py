"""The audit of evictions: nobody for nobody, groups that leave whole, each victim once."""

from __future__ import annotations

import pytest

from lab.audit.judges.evictions import TOGETHER_S
from tests.unit.lab.audit.group_history import ROOM, GroupHistory


def full(**group) -> GroupHistory:
    """A group of two runs on two nodes."""
    history = GroupHistory()
    history.node("n1", ROOM).node("n2", ROOM).group("g", 2, **group).members("a", "b")
    history.bind("a", "n1").bind("b", "n2")
    return history


def test_a_victim_for_a_pod_of_higher_priority_is_just():
    history = full().members("high", group="h", priority=5)
    history.group("h", 1).nominated("high", "n1").evicted("a").bind("high", "n1")
    assert history.report().units.evictions_unjust == 0


def test_a_victim_whose_preemptor_is_bound_there_later_is_just():
    history = full().evicted("a")
    history.pod("high", priority=5).bind("high", "n1")
    assert history.report().units.evictions_unjust == 0


@pytest.mark.parametrize("who", ["nobody", "equal", "elsewhere", "stood there", "never preempts"])
def test_a_victim_for_nobody_is_a_violation(who):
    history = full()
    match who:
        case "equal":
            history.pod("peer").nominated("peer", "n1").evicted("a").bind("peer", "n1")
        case "elsewhere":
            history.pod("high", priority=5).nominated("high", "n2").evicted("a").bind("high", "n2")
        case "stood there":
            history.pod("high", priority=5).bind("high", "n1").evicted("a")
        case "never preempts":
            history.pod("high", priority=5, preemptionPolicy="Never").nominated("high", "n1").evicted("a")
        case _:
            history.evicted("a")
    report = history.report()
    assert report.units.evictions_unjust == 1
    assert not report.ok


@pytest.mark.parametrize("end", ["bound elsewhere", "deleted"])
def test_a_victim_whose_mark_names_who_waits_then_is_just_though_nothing_else_tells(end: str):
    history = full().pod("high", priority=5)
    history.evicted("a", message=f"conclave: preempting ({history.objects['Pod', 'high']['metadata']['uid']})")
    history = history.bind("high", "n2") if end == "bound elsewhere" else history.gone("Pod", "high")
    assert history.report().units.evictions_unjust == 0


@pytest.mark.parametrize("who", ["equal", "never preempts", "bound", "gone", "nobody"])
def test_a_victim_whose_mark_names_somebody_who_gains_nothing_is_a_violation(who: str):
    history = full()
    match who:
        case "equal":
            history.pod("other")
        case "never preempts":
            history.pod("other", priority=5, preemptionPolicy="Never")
        case _:
            history.pod("other", priority=5)
    uid = history.objects["Pod", "other"]["metadata"]["uid"]
    if who == "bound":
        history.bind("other", "n2")
    elif who == "gone":
        history.gone("Pod", "other")
    history.evicted("a", message=f"conclave: preempting ({'uid-x' if who == 'nobody' else uid})")
    assert history.report().units.evictions_unjust == 1


def test_a_victim_that_is_marked_again_for_another_was_evicted_once():
    history = full().pod("high", priority=5).pod("top", priority=9)
    history.nominated("high", "n1").evicted("a", leaves=False, message="m (uid-high)").terminate("a")
    history.evicted("a", message="m (uid-top)").bind("top", "n1")
    assert history.report().units.evictions_unjust == 0


def test_the_groups_own_priority_decides():
    history = full(priority=10).pod("high", priority=5)
    history.nominated("high", "n1").evicted("a").bind("high", "n1")
    assert history.report().units.evictions_unjust == 1


def test_a_nomination_that_was_taken_back_before_gains_nothing():
    history = full().pod("high", priority=5)
    history.nominated("high", "n1").nominated("high", "n2").evicted("a").bind("high", "n2")
    assert history.report().units.evictions_unjust == 1


@pytest.mark.parametrize("old", [True, False])
def test_a_group_that_leaves_whole_leaves_whole(old):
    history = full(whole=True)
    history.old = old
    history.group("g", 2, whole=True).pod("high", priority=5)
    history.nominated("high", "n1").wait(5)
    history.evicted("a", leaves=False).evicted("b").gone("Pod", "a").bind("high", "n1")
    assert history.report().ok


def test_a_group_that_leaves_whole_and_leaves_a_member_is_a_violation():
    history = full(whole=True).pod("high", priority=5)
    history.wait(5)
    history.nominated("high", "n1").evicted("a").bind("high", "n1").wait(TOGETHER_S + 1)
    assert history.phase("b", "Running").report().units.groups_half_evicted == 1


def test_a_group_whose_members_leave_one_by_one_may_keep_some():
    history = full().pod("high", priority=5)
    history.nominated("high", "n1").evicted("a").bind("high", "n1").wait(TOGETHER_S + 1)
    assert history.report().ok


def test_a_victim_that_is_marked_again_since_the_eviction_put_its_own_reason_there_was_evicted_once():
    history = full().pod("high", priority=5)
    history.nominated("high", "n1").evicted("a", leaves=False).terminate("a")
    (first,) = history.objects["Pod", "a"]["status"]["conditions"]
    servers = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    for condition in (servers, first):
        history.changed("a", lambda pod, one=condition: pod["status"].update(conditions=[one]))
    history.gone("Pod", "a").bind("high", "n1")
    assert history.report().ok


def test_a_victim_that_is_evicted_again_while_it_leaves_is_a_violation():
    history = full().pod("high", priority=5)
    history.nominated("high", "n1").evicted("a", leaves=False).terminate("a")
    other = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for another"}
    history.changed("a", lambda pod: pod["status"].update(conditions=[other])).gone("Pod", "a").bind("high", "n1")
    assert history.report().units.evictions_unjust == 1


def test_members_of_a_broken_gang_that_asks_for_it_may_be_evicted_for_nobody():
    history = full(annotations={"conclave.io/gang-broken": "evict"})
    history.gone("Pod", "b").evicted("a")
    assert history.report().ok


def two_gangs(*, minimum: int = 2, **spec) -> GroupHistory:
    """Two gangs run, a member of each on two nodes; a gang of higher priority is nominated to both."""
    history = GroupHistory()
    history.node("n1", ROOM).node("n2", ROOM)
    for name in "ab":
        history.group(name, minimum).members(f"{name}1", f"{name}2", group=name, **spec)
        history.bind(f"{name}1", "n1").bind(f"{name}2", "n2")
    history.group("h", 2).members("h1", "h2", group="h", priority=5)
    return history.nominated("h1", "n1").nominated("h2", "n2")


def broken_for_nothing(history: GroupHistory, *victims: str) -> int:
    for name in victims:
        history.evicted(name)
    history.bind("h1", "n1").bind("h2", "n2").wait(TOGETHER_S + 1)
    report = history.pod("tick").report()
    assert report.units.evictions_unjust == 0
    return report.units.gangs_broken_needlessly


def test_one_gang_is_broken_before_a_second():
    assert broken_for_nothing(two_gangs(), "a1", "b2") == 1
    assert broken_for_nothing(two_gangs(), "a1", "a2") == 0


def test_two_gangs_may_be_broken_where_one_would_not_do():
    assert broken_for_nothing(two_gangs(), "a1", "a2", "b1") == 0
    assert broken_for_nothing(two_gangs(), "a1", "b1") == 0, "both leave one node"


@pytest.mark.parametrize("why", ["spare", "budgets", "ports", "a lone pod"])
def test_where_more_than_amounts_may_have_decided_nothing_is_held_against_anybody(why):
    match why:
        case "spare":
            history = two_gangs(minimum=1)
        case "budgets":
            budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": {}}
            history = two_gangs().write("create", "PodDisruptionBudget", budget)
        case "ports":
            history = two_gangs(containers=[{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}])
        case _:
            history = two_gangs().pod("lone", priority=9).nominated("lone", "n1")
    assert broken_for_nothing(history, "a1", "b2") == 0


def test_a_member_that_may_not_leave_excuses_the_second_gang():
    history = two_gangs()
    history.changed("b1", lambda pod: pod["metadata"].update(annotations={"conclave.io/preemptible": "false"}))
    assert broken_for_nothing(history, "a1", "b2") == 0


BATCH = "kubernetes.io/batch-cpu"


@pytest.mark.parametrize(("lent", "unjust"), [("1500", 0), ("2000", 1), ("0", 0), (None, 1)])
def test_an_offline_victim_for_nobody_is_just_only_where_less_is_lent_than_pods_hold(lent: str | None, unjust: int):
    history = GroupHistory()
    history.node("n1", {**ROOM, BATCH: "2000"})
    history.pod("a", {"cpu": "0", BATCH: "1000"}).bind("a", "n1").pod("b", {"cpu": "0", BATCH: "1000"}).bind("b", "n1")
    history.wait(60).node("n1", ROOM if lent is None else {**ROOM, BATCH: lent}).wait(60)
    assert history.evicted("a").report().units.evictions_unjust == unjust


@pytest.mark.parametrize(("online", "unjust"), [(True, 0), (False, 1)])
def test_of_one_priority_an_online_pod_may_evict_an_offline_one_and_no_other(online: bool, unjust: int):
    history = GroupHistory()
    history.node("n1", ROOM).pod("a").annotate("Pod", "a", **{"conclave.io/qos": "offline"}).bind("a", "n1").pod("peer")
    if not online:
        history.annotate("Pod", "peer", **{"volcano.sh/qos-level": "BE"})
    history.nominated("peer", "n1").evicted("a").bind("peer", "n1")
    assert history.report().units.evictions_unjust == unjust


@pytest.mark.parametrize(("other", "unjust"), [("BE", 0), ("LS", 1)])
def test_of_marks_that_contradict_each_other_the_more_protected_counts(other: str, unjust: int):
    history = GroupHistory()
    history.node("n1", ROOM).pod("a")
    history.annotate("Pod", "a", **{"conclave.io/qos": "offline", "volcano.sh/qos-level": other})
    history.bind("a", "n1").pod("peer").nominated("peer", "n1").evicted("a").bind("peer", "n1")
    assert history.report().units.evictions_unjust == unjust
