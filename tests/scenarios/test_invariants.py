"""Every checker of the scenarios, seen red: a history that breaks its rule, and the like that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.audit.log import LogEntry
from tests.scenarios.invariants import (
    ALWAYS,
    below_budget,
    bound_not_ours,
    bound_to_closed_node,
    bound_to_missing_node,
    bound_twice,
    bound_while_gated,
    devices_lost,
    evictions_above,
    latencies_s,
    overcommitted,
    pending_without_reason,
    placed_against_a_rule,
    sharing_a_node,
    skewed,
    unjust_evictions,
    zones_or_lent_over,
)
from tests.scenarios.pressure import FLAT_MB, grown, overdue

Json = dict[str, Any]

LENT = "kubernetes.io/batch-cpu"
OFFLINE = {"koordinator.sh/qosClass": "BE"}


class History:
    """Entries one after the other, a tenth of a second apart unless ``wait`` says otherwise."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.time_s = 100.0
        self._pods: dict[str, Json] = {}

    def wait(self, seconds: float) -> History:
        self.time_s += seconds
        return self

    def _add(self, verb: str, kind: str, obj: Json) -> History:
        self.time_s += 0.1
        name, namespace = obj["metadata"]["name"], "" if kind == "Node" else "default"
        self.entries.append(LogEntry(len(self.entries) + 1, self.time_s, verb, kind, namespace, name, "admin", obj))
        return self

    def node(
        self, name: str, verb: str = "create", *, cpu: str = "2", zone: str = "", lent: str = "", **spec: Any
    ) -> History:
        meta = {"name": name, "uid": f"uid-{name}", "labels": {"zone": zone} if zone else {}}
        status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10", **({LENT: lent} if lent else {})}}
        return self._add(verb, "Node", {"metadata": meta, "spec": spec, "status": status})

    def topology(self, item: Json) -> History:
        return self._add("create", "NodeResourceTopology", item)

    def pod(self, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> History:
        lent = spec.pop("lent", "")
        asked = {"requests": {LENT: lent} if lent else {"cpu": spec.pop("cpu", "1")}}
        self._pods[name] = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}},
            "spec": {"schedulerName": "conclave", "containers": [{"name": "c", "resources": asked}], **spec},
            "status": {"phase": "Pending"},
        }
        return self._add("create", "Pod", self._pods[name])

    def bind(self, name: str, node: str) -> History:
        pod = self._pods[name]
        self._pods[name] = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        return self._add("bind", "Pod", self._pods[name])

    def condition(self, name: str, kind: str, status: str, **more: str) -> History:
        pod = self._pods[name]
        conditions = [{"type": kind, "status": status, **more}]
        self._pods[name] = {**pod, "status": {**pod["status"], "conditions": conditions}}
        return self._add("patch", "Pod", self._pods[name])

    def delete(self, name: str) -> History:
        return self._add("delete", "Pod", self._pods.pop(name))

    def claim(self, name: str, pod: str) -> History:
        """A claim that the mesh gave the one device there is, for this pod."""
        given = {"results": [{"driver": "x", "pool": "p", "device": "d"}]}
        users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
        meta = {"name": name, "uid": f"uid-{name}", "annotations": {"conclave.io/cause-id": "1-2"}}
        status = {"allocation": {"devices": given}, "reservedFor": users}
        return self._add("create", "ResourceClaim", {"metadata": meta, "status": status})

    def evict(self, name: str, named: str = "") -> History:
        message = f"m (uid-{named})" if named else "m"
        return self.condition(name, "DisruptionTarget", "True", message=message).delete(name)


def two_on_a_node(labels: dict[str, str]) -> History:
    return History().node("n").pod("a", labels=labels).pod("b", labels=labels).bind("a", "n").bind("b", "n")


def lending(lent: str) -> History:
    """Two offline pods hold a core each of what a node lends; it lends so much now."""
    history = History().node("n", lent="2000")
    for name in ("a", "b"):
        history.pod(name, lent="1000").bind(name, "n")
    return history.node("n", "patch", lent=lent)


def in_zones(*cpus: str) -> History:
    """Pods that are aligned, on a node of two zones of 4 CPUs."""
    parts = [{"name": name, "capacity": of, "allocatable": of, "available": of}
             for name, of in (("cpu", "4"), ("memory", "4Gi"))]  # fmt: skip
    zones = [{"name": f"node-{number}", "type": "Node", "resources": parts} for number in range(2)]
    single = [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]
    history = History().node("n", cpu="8").topology({"metadata": {"name": "n"}, "attributes": single, "zones": zones})
    for number, cpu in enumerate(cpus):
        amounts = {"cpu": cpu, "memory": "1Gi"}
        aligned = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        history.wait(10).pod(f"z{number}", containers=aligned).bind(f"z{number}", "n")
    return history


def contradicting() -> History:
    """Two that are offline by one mark and online by the other: the more protected counts."""
    return two_on_a_node({**OFFLINE, "conclave.io/qos": "online"})


BAD: dict[str, tuple[Callable[[list[LogEntry]], list[str]], History]] = {
    "bound twice": (bound_twice, History().node("n").node("m").pod("a").bind("a", "n").bind("a", "m")),
    "bound twice to one node": (bound_twice, History().node("n").pod("a").bind("a", "n").bind("a", "n")),
    "bound while gated": (
        bound_while_gated,
        History().node("n").pod("a", schedulingGates=[{"name": "g"}]).bind("a", "n"),
    ),
    "another scheduler's": (bound_not_ours, History().node("n").pod("a", schedulerName="other").bind("a", "n")),
    "no condition": (pending_without_reason, History().node("n").pod("a").wait(10).node("n", "update")),
    "no reason": (
        pending_without_reason,
        History().node("n").pod("a").condition("a", "PodScheduled", "False").wait(10).node("n", "update"),
    ),
    "over-committed cpu": (overcommitted, two_on_a_node({}).pod("c").bind("c", "n")),
    "over-committed after a shrink": (
        overcommitted,
        History().node("n").pod("a").node("n", "patch", cpu="500m").bind("a", "n"),
    ),
    "over-committed for an instant": (overcommitted, two_on_a_node({}).pod("c").bind("c", "n").delete("a")),
    "against a node selector": (
        placed_against_a_rule,
        History().node("n", zone="z").pod("a", nodeSelector={"zone": "y"}).wait(10).bind("a", "n"),
    ),
    "a node that never was": (bound_to_missing_node, History().pod("a").bind("a", "n")),
    "a node that is gone": (
        bound_to_missing_node,
        History().node("n").pod("a").node("n", "delete").wait(10).bind("a", "n"),
    ),
    "a cordoned node": (
        bound_to_closed_node,
        History().node("n").pod("a").node("n", "patch", unschedulable=True).wait(10).bind("a", "n"),
    ),
    "a tainted node": (
        bound_to_closed_node,
        History()
        .node("n").pod("a").node("n", "patch", taints=[{"key": "k", "effect": "NoExecute"}]).wait(10).bind("a", "n"),
    ),
    "no zone has room": (zones_or_lent_over, in_zones("3", "3", "2")),
    "more than is lent": (zones_or_lent_over, lending("2000").pod("c", lent="1000").wait(10).bind("c", "n")),
    "a device of two claims": (
        devices_lost,
        History().node("n").pod("a").pod("b").claim("c", "a").claim("d", "b").node("n", "update"),
    ),
    "a claim that outlives its pod": (
        devices_lost,
        History().node("n").pod("a").claim("c", "a").delete("a").wait(10).node("n", "update"),
    ),
    "shared node": (lambda entries: sharing_a_node(entries, app="x"), two_on_a_node({"app": "x"})),
    "skew": (
        lambda entries: skewed(entries, "zone", 1, app="x"),
        two_on_a_node({"app": "x"}).node("n", "update", zone="z0").node("m", zone="z1")
        .pod("c", labels={"app": "x"}).bind("c", "n"),
    ),
    "too many evictions": (
        lambda entries: evictions_above(entries, 1),
        two_on_a_node({}).evict("a").evict("b"),
    ),
    "evicted for nobody": (unjust_evictions, two_on_a_node({}).evict("a")),
    "evicted for an equal": (unjust_evictions, two_on_a_node({}).pod("c").evict("a").bind("c", "n")),
    "evicted for a pod that never preempts": (
        unjust_evictions,
        two_on_a_node({}).pod("c", priority=9, preemptionPolicy="Never").evict("a").bind("c", "n"),
    ),
    "evicted for an equal that its mark names": (unjust_evictions, two_on_a_node({}).pod("c").evict("a", "c")),
    "evicted for one that was bound already": (
        unjust_evictions,
        two_on_a_node({}).node("m").pod("c", priority=9).bind("c", "m").evict("a", "c"),
    ),
    "an offline one evicted where enough is lent": (unjust_evictions, lending("2000").evict("a")),
    "an offline one more than must": (unjust_evictions, lending("1500").evict("a").evict("b")),
    "an offline one evicted where nobody says what is lent": (unjust_evictions, lending("").evict("a")),
    "an online one evicted where less is lent": (
        unjust_evictions,
        lending("1500").pod("c", cpu="1").bind("c", "n").evict("c"),
    ),
    "one of contradicting marks evicted for an equal": (
        unjust_evictions,
        contradicting().pod("c").evict("a").bind("c", "n"),
    ),
    "an online one evicted for an equal that is offline": (
        unjust_evictions,
        two_on_a_node({}).pod("c", labels=OFFLINE).evict("a").bind("c", "n"),
    ),
    "budget": (
        lambda entries: below_budget(entries, 2, app="x"),
        two_on_a_node({"app": "x"}).evict("a"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_history_that_breaks_the_rule_is_found(case: str) -> None:
    checker, history = BAD[case]
    assert len(checker(history.entries)) == 1


def good() -> list[LogEntry]:
    history = History().node("n", zone="z0").node("m", zone="z1")
    history.pod("a", labels={"app": "x"}).bind("a", "n").pod("b", labels={"app": "x"}).bind("b", "m")
    history.pod("full", cpu="9").condition("full", "PodScheduled", "False", reason="Unschedulable", message="no room")
    history.pod("gated", schedulingGates=[{"name": "g"}]).wait(10)
    history.pod("high", priority=5, cpu="2").evict("a").bind("high", "n")
    return history.pod("new").entries


def test_a_good_history_passes_every_checker() -> None:
    entries = good()
    assert [violation for checker in ALWAYS for violation in checker(entries)] == []
    assert sharing_a_node(entries, app="x") + skewed(entries, "zone", 1, app="x") == []
    assert evictions_above(entries, 1) + below_budget(entries, 1, app="x") == []
    assert [round(value, 1) for value in latencies_s(entries)] == [0.1, 0.1, 0.3]


def test_an_eviction_for_whom_its_mark_names_is_just_though_he_goes_elsewhere_or_is_deleted() -> None:
    high = two_on_a_node({}).node("m").pod("c", priority=9).evict("a", "c")
    assert unjust_evictions(high.bind("c", "m").entries) == []
    gone = two_on_a_node({}).pod("c", priority=9).evict("a", "c")
    assert unjust_evictions(gone.delete("c").entries) == []


def test_an_offline_pod_leaves_where_less_is_lent_than_pods_hold_or_for_an_online_one_of_its_priority() -> None:
    assert unjust_evictions(lending("1500").evict("a").entries) == []
    assert unjust_evictions(two_on_a_node(OFFLINE).pod("c").evict("a").bind("c", "n").entries) == []


def test_a_change_that_nobody_can_have_seen_is_no_violation() -> None:
    history = History().node("n").pod("a").node("n", "patch", unschedulable=True).bind("a", "n")
    assert bound_to_closed_node(history.entries) == []


def test_resources_of_a_deleted_or_finished_pod_are_free_again() -> None:
    history = two_on_a_node({}).delete("a").pod("c").bind("c", "n")
    assert overcommitted(history.entries) == []


def test_a_pod_that_waits_longer_than_its_backlog_takes_is_overdue() -> None:
    history = History()
    for number in range(10):
        history.pod(f"p{number}")
    for number in range(9):
        history.bind(f"p{number}", "n0")
    assert overdue(history.entries, rate=10.0, slack_s=1.0) == []
    history.wait(5.0).bind("p9", "n0")
    [told] = overdue(history.entries, rate=10.0, slack_s=1.0)
    assert told.startswith("uid-p9 waited 6.0 s behind 10 pods")


def test_a_pod_that_is_never_bound_is_overdue_at_the_end() -> None:
    history = History().pod("p").wait(5.0).pod("q").bind("q", "n0")
    assert [told.split()[0] for told in overdue(history.entries, rate=10.0, slack_s=1.0)] == ["uid-p"]


def test_memory_that_grows_by_more_than_the_pods_is_told_of_processes_that_were_there_before() -> None:
    before = {1: ("binder-0", 50.0), 2: ("agent-0", 50.0)}
    assert grown(before, {1: ("binder-0", 50.0 + FLAT_MB), 3: ("agent-0", 900.0)}, 0) == []
    [told] = grown(before, {1: ("binder-0", 51.0 + FLAT_MB), 2: ("agent-0", 50.0)}, 0)
    assert told.startswith("binder-0 grew from 50 to 67 MB")
