"""The audit's rules among pods and for volumes: each is seen red, and green where nothing is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lab.audit.judges.gangs import BINDING_S
from lab.audit.ledger import ELIGIBILITY_GRACE_S
from tests.unit.lab.audit.audit_history import History

Json = dict[str, Any]
ZONE, HOST = "zone", "host"
LATER_S = ELIGIBILITY_GRACE_S + 1
LANDED_S = BINDING_S + 1
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def cluster(*zones: str) -> History:
    """Nodes n0, n1 … in these zones ("": none), seen by everybody."""
    history = History()
    for number, zone in enumerate(zones):
        labels = {HOST: f"n{number}", **({ZONE: zone} if zone else {})}
        history.node(f"n{number}", {"cpu": "9", "memory": "9Gi", "pods": "99"}, labels=labels)
    return history.wait(LATER_S)


def term(app: str = "x", key: str = HOST, **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def even(skew: int = 1, **more: Any) -> Json:
    rule = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": "x"}}, **more}]}


def pod(
    history: History, name: str, node: str = "", *, app: str = "x", namespace: str = "default", **spec: Any
) -> History:
    """A pod of an application, bound at once where a node is given."""
    history.pod(name, **spec)
    made = json.loads(history.lines.pop())
    made["object"]["metadata"] |= {"labels": {"app": app}, "namespace": namespace}
    made["namespace"] = namespace
    history.objects["Pod", name] = made["object"]
    history.lines.append(json.dumps(made).encode() + b"\n")
    return history.bind(name, node) if node else history


def spread(*nodes: str, zones: tuple[str, ...] = ("a", "b"), **rule: Any) -> History:
    """Pods of one spread, bound in this order."""
    history = cluster(*zones)
    for number, node in enumerate(nodes):
        pod(history, f"p{number}", node, **even(**rule))
    return history


def closed(policy: str) -> History:
    """Two zones, the second of which has a taint; both pods go to the first."""
    history = cluster("a").node("n1", labels={HOST: "n1", ZONE: "b"}, taints=[{"key": "t", "effect": "NoSchedule"}])
    rule: Json = {"nodeTaintsPolicy": policy}
    return pod(pod(history.wait(LATER_S), "p", "n0", **even(**rule)), "q", "n0", **even(**rule))


RED: dict[str, Callable[[], History]] = {
    "anti-affinity of the pod": lambda: pod(pod(cluster("a"), "p", "n0"), "q", "n0", **apart(term())),
    "anti-affinity of one that stands": lambda: pod(pod(cluster("a"), "p", "n0", **apart(term())), "q", "n0"),
    "anti-affinity by zone, on another node": lambda: pod(
        pod(cluster("a", "a"), "p", "n0"), "q", "n1", **apart(term(key=ZONE))
    ),
    "anti-affinity to a terminating pod": lambda: pod(
        pod(cluster("a"), "p", "n0").terminate("p"), "q", "n0", **apart(term())
    ),
    "anti-affinity over namespaces": lambda: pod(
        pod(cluster("a"), "p", "n0", namespace="other"), "q", "n0", **apart(term(namespaces=["other"]))
    ),
    "anti-affinity by namespace selector": lambda: pod(
        pod(cluster("a"), "p", "n0", namespace="other"), "q", "n0", **apart(term(namespaceSelector={}))
    ),
    "anti-affinity: two bound in a race": lambda: pod(
        pod(cluster("a"), "p", **apart(term())), "q", "n0", **apart(term())
    ).bind("p", "n0"),
    "affinity to nobody": lambda: pod(cluster("a"), "p", "n0", app="y", **near(term())),
    "affinity in another zone": lambda: pod(
        pod(cluster("a", "b"), "p", "n0"), "q", "n1", app="y", **near(term(key=ZONE))
    ),
    "affinity without the label": lambda: pod(cluster(""), "p", "n0", **near(term(key=ZONE))),
    "affinity to a pod that left long ago": lambda: pod(
        pod(cluster("a"), "p", "n0").gone("Pod", "p").pod("z").wait(LATER_S), "q", "n0", app="y", **near(term())
    ),
    "spread": lambda: spread("n0", "n0"),
    "spread with a greater skew": lambda: spread("n0", "n0", "n0", skew=2),
    "spread in a race": lambda: spread("n0", "n0", "n1"),
    "spread without the label": lambda: spread("n0", zones=("",)),
    "spread over fewer domains than asked for": lambda: spread("n0", "n1", "n0", minDomains=3),
    "spread that ignores taints": lambda: closed("Ignore"),
    "spread after a pod left long ago": lambda: pod(
        spread("n0", "n1").gone("Pod", "p1").pod("z").wait(LATER_S), "q", "n0", **even()
    ),
    "spread with an operator": lambda: spread(
        "n0", "n0", labelSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    ),
}

GREEN: dict[str, Callable[[], History]] = {
    "anti-affinity on another node": lambda: pod(pod(cluster("a", "a"), "p", "n0"), "q", "n1", **apart(term())),
    "anti-affinity to other pods": lambda: pod(pod(cluster("a"), "p", "n0", app="y"), "q", "n0", **apart(term())),
    "anti-affinity in its own namespace": lambda: pod(
        pod(cluster("a"), "p", "n0", namespace="other"), "q", "n0", **apart(term())
    ),
    "anti-affinity by a label that the node lacks": lambda: pod(
        pod(cluster("a"), "p", "n0"), "q", "n0", **apart(term(key="rack"))
    ),
    "anti-affinity to one that finished": lambda: pod(
        pod(cluster("a"), "p", "n0").phase("p", "Succeeded"), "q", "n0", **apart(term())
    ),
    "affinity to itself, the first": lambda: pod(cluster("a"), "p", "n0", **near(term())),
    "affinity to a pod that left just now": lambda: pod(
        pod(cluster("a"), "p", "n0").gone("Pod", "p"), "q", "n0", app="y", **near(term(app="x"), term(app="x"))
    ),
    "spread": lambda: spread("n0", "n1", "n1", "n0"),
    "spread of another namespace": lambda: pod(spread("n0"), "q", "n0", namespace="other", **even()),
    "spread with a pod that left just now": lambda: pod(spread("n0", "n1").gone("Pod", "p1"), "q", "n0", **even()),
    "spread with a zone that came just now": lambda: pod(
        spread("n0", "n1").node("n9", labels={ZONE: "c", HOST: "n9"}), "q", "n0", **even()
    ),
    "spread that honours taints": lambda: closed("Honor"),
    "spread that is only preferred": lambda: spread("n0", "n0", whenUnsatisfiable="ScheduleAnyway"),
    "spread with an empty selector, which counts nobody": lambda: spread("n0", "n0", labelSelector={}),
    "spread of terminating pods": lambda: pod(spread("n0").terminate("p0").pod("z").wait(LATER_S), "q", "n0", **even()),
}  # fmt: skip


@pytest.mark.parametrize("case", RED)
def test_a_binding_against_other_pods_is_seen(case: str) -> None:
    report = RED[case]().report()
    assert report.misplaced == 1, report.examples
    assert not report.ok


@pytest.mark.parametrize("case", GREEN)
def test_a_binding_that_other_pods_allow_is_fine(case: str) -> None:
    report = GREEN[case]().report()
    assert report.misplaced == 0, report.examples


def test_a_pod_that_other_pods_keep_pending_is_not_lost() -> None:
    history = pod(pod(cluster("a"), "p", "n0"), "q", **apart(term())).unschedulable("q")
    report = history.report()
    assert (report.ok, report.pods_unschedulable) == (True, 1), report.examples
    assert history.gone("Pod", "p").report().lost == 1, "now a node fits it"


def gang(*nodes: str, minimum: int = 4, **rule: Any) -> History:
    """Members of one gang with a hard spread over two zones, bound in this order, at once."""
    history = cluster("a", "b")
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    meta = {"name": "g", "namespace": "default"}
    history._write("create", "PodGroup", {"apiVersion": "scheduling.k8s.io/v1beta1", "metadata": meta, "spec": spec})
    for number in range(len(nodes)):
        pod(history, f"m{number}", schedulingGroup={"podGroupName": "g"}, **even(**rule))
    for number, node in enumerate(nodes):
        history.bind(f"m{number}", node)
    return history


def test_members_of_a_gang_may_land_in_any_order() -> None:
    """One order of the same Bindings is right: that it was another is nobody's fault."""
    assert gang("n0", "n0", "n1", "n1").report().misplaced == 0
    assert gang("n0", "n0", "n1", "n1", minimum=2).report().misplaced == 0, "those beyond the minimum too"
    assert spread("n0", "n0", "n1", "n1").report().misplaced == 1, "lone pods may not"


def test_a_gang_that_no_order_excuses_is_misplaced() -> None:
    report = gang("n0", "n0", "n0", "n1").report()
    assert report.misplaced == 1
    assert "spread: 3 pods" in " ".join(report.examples) or "spread: 2 pods" in " ".join(report.examples)


def test_a_gang_that_stays_uneven_is_misplaced_though_somebody_makes_up_for_it_later() -> None:
    late = gang("n0", "n0", minimum=2).wait(LANDED_S)
    assert pod(late, "q", "n1", **even()).report().misplaced == 1


def test_members_near_a_member_that_lands_last_are_well_placed() -> None:
    def workers(*names: str) -> History:
        history = cluster("a", "b")
        spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        meta = {"name": "g", "namespace": "default"}
        group = {"apiVersion": "scheduling.k8s.io/v1beta1", "metadata": meta, "spec": spec}
        history._write("create", "PodGroup", group)
        member = {"schedulingGroup": {"podGroupName": "g"}}
        pod(history, "driver", app="driver", **member)
        for name in ("w0", "w1"):
            pod(history, name, **member, **near(term("driver", ZONE)))
        for name in names:
            history.bind(name, "n0")
        return history

    assert workers("w0", "w1", "driver").report().misplaced == 0
    assert workers("w0", "w1").report().misplaced == 2
