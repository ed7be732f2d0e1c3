"""Whom to evict where offline pods hold more than is lent: the least work is lost, gangs break last and whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from shared.model.cluster_objects import DisruptionBudget
from shared.model.offline import OfflineTerms
from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector
from shared.scheduling.preemption.giving_way import BUDGET, GivingWayState, VictimChoice, choose
from shared.scheduling.preemption.loss import lost_s, protected_s, works_since
from shared.scheduling.preemption.units import NOT_STARTED, importance
from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import PodBuilder, make_node, make_pod

CPU = "kubernetes.io/batch-cpu"
MEMORY = "kubernetes.io/batch-memory"
NOW = 1_796_000_000.0
OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]


def at(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat().replace("+00:00", "Z")


def offline(
    name: str, cpu: int = 1000, *, ran_s: float = 100.0, owned: bool = True, memory: int = 0, **annotations: str
) -> PodBuilder:
    """An offline pod that has run for so long. ``annotations``: of ours, ``_`` for ``-``."""
    build = make_pod(name).request(**{CPU: str(cpu)})
    if memory:
        build.request(**{MEMORY: str(memory)})
    said = {f"conclave.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    build.set(annotations=said, **({"ownerReferences": OWNER} if owned else {}))
    build.json["status"]["startTime"] = at(ran_s)
    return build


class Cluster:
    def __init__(self, *pods: PodBuilder, node: str = "n0", budgets: tuple[DisruptionBudget, ...] = ()) -> None:
        self.state = ClusterState()
        for name in ("n0", "n1"):
            self.state.upsert_node(make_node(name).allocatable(**{CPU: "8000", MEMORY: "64"}).node())
        self.state.budgets = list(budgets)
        for pod in pods:
            self.put(pod, node)

    def put(self, pod: PodBuilder, node: str, group: str = "") -> None:
        self.state.observe(replace(pod.on(node).pod(), group=group))

    def mark(self, name: str) -> None:
        """As a leader's binder does right before it evicts for this."""
        pod = self.state.index.get(f"uid-{name}")
        assert pod is not None
        terms = OfflineTerms(returns=True, gives_way=True)
        self.state.observe(replace(pod, preempted=True, offline=terms, node_name="n0"))

    def choose(
        self,
        short: Mapping[str, int] | int,
        *,
        keeps: Mapping[str, int] | None = None,
        stays: Callable[[Pod], str] = lambda _: "",
        leaving: Callable[[Pod], bool] = lambda _: False,
    ) -> VictimChoice:
        minimum = keeps or {}
        moment = GivingWayState(NOW, self.state.table.totals(), lambda key: minimum.get(key, 1), stays, leaving)
        needed = {CPU: short} if isinstance(short, int) else short
        return choose(self.state, "n0", needed, moment)


def names(choice: VictimChoice) -> list[str]:
    return sorted(pod.name for pod in choice.victims)


def test_who_saved_last_goes_first_though_it_runs_longest() -> None:
    cluster = Cluster(
        offline("long", ran_s=9000, last_checkpoint=at(5)), offline("short", ran_s=60), offline("middle", ran_s=600)
    )
    assert names(cluster.choose(1)) == ["long"]


def test_what_beginning_anew_costs_counts_as_lost_work() -> None:
    cluster = Cluster(offline("a", ran_s=50, restart_seconds="300"), offline("b", ran_s=200))
    assert names(cluster.choose(1)) == ["b"]


def test_a_pod_that_has_not_started_loses_nothing() -> None:
    fresh = offline("fresh", restart_seconds="900")
    del fresh.json["status"]["startTime"]
    assert names(Cluster(offline("a", ran_s=1), fresh).choose(1)) == ["fresh"]


def test_one_large_pod_goes_where_all_of_it_is_needed_and_a_small_one_where_little_is() -> None:
    pods = [offline("large", 8000, ran_s=100), *(offline(f"small{number}", ran_s=110) for number in range(8))]
    assert names(Cluster(*pods).choose(8000)) == ["large"]
    assert names(Cluster(*pods).choose(500)) == ["small0"]


def test_who_turns_out_not_to_be_needed_stays() -> None:
    cluster = Cluster(offline("a", 1000, ran_s=10), offline("b", 4000, ran_s=1000))
    assert names(cluster.choose(4000)) == ["b"]


def test_each_short_resource_is_freed() -> None:
    cluster = Cluster(offline("cpu", 4000, ran_s=10), offline("memory", 1, memory=32, ran_s=10))
    assert names(cluster.choose({CPU: 1000, MEMORY: 8})) == ["cpu", "memory"]
    assert names(cluster.choose({MEMORY: 8})) == ["memory"]


def test_lower_priority_goes_before_less_work() -> None:
    low, high = offline("low", ran_s=9000).priority(1), offline("high", ran_s=1).priority(2)
    assert names(Cluster(low, high).choose(1)) == ["low"]


def gang(*, minimum: int, members: int = 3, elsewhere: int = 0) -> tuple[Cluster, dict[str, int]]:
    """A gang on n0 beside a lone pod that has more to lose; some of its members stand on n1."""
    cluster = Cluster(offline("lone", ran_s=5000))
    for number in range(members):
        cluster.put(offline(f"g{number}", ran_s=100 + number), "n1" if number < elsewhere else "n0", "g")
    return cluster, {"g": minimum}


def test_a_member_above_its_gangs_minimum_goes_before_a_lone_pod() -> None:
    cluster, keeps = gang(minimum=2)
    assert names(cluster.choose(1, keeps=keeps)) == ["g0"]
    assert names(cluster.choose(1001, keeps=keeps)) == ["g0", "lone"]


def test_a_gang_breaks_last_and_goes_whole_from_all_nodes() -> None:
    cluster, keeps = gang(minimum=3, elsewhere=1)
    assert names(cluster.choose(1000, keeps=keeps)) == ["lone"]
    choice = cluster.choose(1001, keeps=keeps)
    assert names(choice) == ["g0", "g1", "g2"]  # without the lone pod that was taken before
    assert choice.broken == ("g",)
    assert not choice.lacking


def test_a_gang_of_which_one_member_may_not_go_stays_whole() -> None:
    cluster, keeps = gang(minimum=3, elsewhere=1)
    choice = cluster.choose(2000, keeps=keeps, stays=lambda pod: "protected" if pod.name == "g0" else "")
    assert names(choice) == ["lone"]
    assert choice.lacking == {CPU: 1000}
    assert set(choice.stays.values()) == {"protected"}


def test_of_a_gang_members_that_leave_already_are_not_spared_twice() -> None:
    cluster, keeps = gang(minimum=2)
    choice = cluster.choose(1, keeps=keeps, leaving=lambda pod: pod.name == "g2")
    assert names(choice) == ["lone"]


@pytest.mark.parametrize(
    ("marked", "left", "victims"),
    [
        (["g0", "g1"], "g0", ["g1", "g2"]),
        (["g0"], "g0", ["g1", "g2"]),
        (["g1"], "", ["g0", "g1", "g2"]),
        ([], "g0", ["lone"]),  # its user deleted it
    ],
)
def test_a_gang_that_somebody_began_to_break_goes_on_breaking_in_place_of_a_lone_pod(
    marked: list[str], left: str, victims: list[str]
) -> None:
    cluster, keeps = gang(minimum=3)
    for name in marked:
        cluster.mark(name)
    assert names(cluster.choose(1000, keeps=keeps, leaving=lambda pod: pod.name == left)) == victims


@pytest.mark.parametrize("left", ["", "g3"])
def test_a_marked_member_that_its_gang_can_spare_breaks_no_gang(left: str) -> None:
    cluster, keeps = gang(minimum=3, members=4)
    cluster.mark("g3")
    choice = cluster.choose(1000, keeps=keeps, leaving=lambda pod: pod.name == left)
    assert names(choice) == (["lone"] if left else ["g3"])


def test_a_group_without_a_minimum_gives_way_pod_by_pod() -> None:
    cluster, _ = gang(minimum=1)
    assert names(cluster.choose(1500, keeps={"g": 1})) == ["g0", "g1"]


def budget(allowed: int, *, name: str = "b") -> DisruptionBudget:
    return DisruptionBudget("default", name, LabelSelector(), allowed)


def test_of_hundreds_on_one_node_the_cheapest_go_and_no_more_than_must() -> None:
    cluster = Cluster(*(offline(f"p{number:03}", 8, ran_s=10 + number) for number in range(500)))
    assert names(cluster.choose(1600)) == [f"p{number:03}" for number in range(200)]


def test_disruption_budgets_are_never_violated_and_those_kept_are_named() -> None:
    pods = [offline(f"p{number}", ran_s=10 + number) for number in range(3)]
    choice = Cluster(*pods, budgets=(budget(1),)).choose(2500)
    assert names(choice) == ["p0"]
    assert choice.lacking == {CPU: 1500}
    assert choice.stays == {"uid-p1": BUDGET, "uid-p2": BUDGET}


def test_nobody_goes_who_frees_nothing_that_is_short() -> None:
    online = make_pod("online").cpu("1")
    choice = Cluster(online, offline("memory", 1, memory=8)).choose(1000)
    assert names(choice) == ["memory"]
    assert choice.lacking == {CPU: 999}


def test_who_saves_at_intervals_loses_no_more_than_one() -> None:
    often = offline("often", ran_s=9000, checkpoint_interval_seconds="30", restart_seconds="10")
    assert lost_s(often.pod(), NOW) == 40.0
    assert names(Cluster(often, offline("short", ran_s=60)).choose(1)) == ["often"]


@pytest.mark.parametrize("ago", [-600.0, 0.0])
def test_a_checkpoint_of_the_future_was_just_now(ago: float) -> None:
    assert lost_s(offline("a", ran_s=50, last_checkpoint=at(ago)).pod(), NOW) == 0.0


def test_the_least_run_time_is_the_pods_own_word_else_the_settings() -> None:
    assert protected_s(offline("a", ran_s=10).pod(), NOW, 60.0) == 50.0
    assert protected_s(offline("a", ran_s=10, min_runtime_seconds="15").pod(), NOW, 60.0) == 5.0
    assert protected_s(offline("a", ran_s=90).pod(), NOW, 60.0) == 0.0
    assert protected_s(offline("a", ran_s=-900).pod(), NOW, 60.0) == 60.0  # clocks are apart


def test_only_what_is_said_of_checkpoints_changes_who_preemption_takes_for_long_running() -> None:
    plain = offline("a", ran_s=100).pod()
    assert works_since(plain) == plain.start_time
    assert works_since(offline("a", ran_s=100, last_checkpoint=at(40)).pod()) == at(40)
    assert works_since(offline("a", ran_s=100, last_checkpoint=at(40), restart_seconds="20").pod()) == at(60)
    assert works_since(offline("a", ran_s=100, last_checkpoint=at(400)).pod()) == plain.start_time


@pytest.mark.parametrize("began", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:10Z", at(100), "9999-12-31T23:59:59Z"])
@pytest.mark.parametrize(
    "saved", ["9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59+23:59", "9998-12-31T23:59:59Z", "1970-01-01T00:00:01Z"]
)
def test_whatever_times_a_pod_names_it_can_be_compared(began: str, saved: str) -> None:
    build = offline("a", last_checkpoint=saved, restart_seconds="2592000")
    build.json["status"]["startTime"] = began
    pod = build.pod()
    assert works_since(pod) < NOT_STARTED
    assert importance(pod) < (1, NOT_STARTED)
    assert lost_s(pod, NOW) >= 0
