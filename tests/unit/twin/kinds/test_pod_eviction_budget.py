"""Evictions respect the budget that covers a pod, and its arithmetic is the API server's."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.pod import eviction as pod_eviction
from twin.registry.status import ApiError

Json = dict[str, Any]
BUDGETS = "poddisruptionbudgets.policy"
READY = [{"type": "Ready", "status": "True"}]


def running(cluster: Any, make_pod: Any, name: str, *, ready: bool = True) -> None:
    cluster.create("pods", make_pod(name, meta={"labels": {"app": "x"}}, nodeName="n1"))
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    cluster.change_status("pods", name, lambda pod: pod["status"].update(phase="Running", conditions=conditions))


def budget(cluster: Any, allowed: int, *, name: str = "pdb", healthy: int = 2, desired: int = 1, **spec: Any) -> None:
    selector = {"matchLabels": {"app": "x"}}
    cluster.create(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector, "minAvailable": 1, **spec}})
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": 2,
    }
    cluster.change_status(BUDGETS, name, lambda obj: obj.update(status=status))


def evict(cluster: Any, name: str, *, dry_run: bool = False, **options: Any) -> Json:
    body: Json = {"metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    answer: Json = cluster.post("pods", name, "eviction", body, dry_run=dry_run)
    return answer


def test_an_eviction_takes_one_disruption_and_marks_the_pod(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 2)
    assert evict(cluster, "a")["code"] == 201
    status = cluster.get(BUDGETS, "pdb")["status"]
    assert status["disruptionsAllowed"] == 1
    assert status["disruptedPods"] == {"a": "2026-01-01T00:00:00Z"}
    assert "conditions" not in status
    pod = cluster.get("pods", "a")
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["status"]["conditions"][-1]["type"] == "DisruptionTarget"


def test_the_last_disruption_turns_the_condition(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 1)
    evict(cluster, "a")
    (condition,) = cluster.get(BUDGETS, "pdb")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )


def test_an_exhausted_budget_is_429_and_the_pod_stays(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 0, desired=2)
    with pytest.raises(ApiError) as caught:
        evict(cluster, "a")
    assert (caught.value.code, caught.value.headers) == (429, {})
    assert caught.value.body["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 2 healthy pods and has 2 currently"}
    ]
    assert "deletionTimestamp" not in cluster.get("pods", "a")["metadata"]


def test_without_the_budget_check_the_pod_would_go(
    cluster: Any, make_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: the budget is what stands between an eviction and the pod."""
    monkeypatch.setattr(pod_eviction, "_take_from_budget", lambda *args, **kwargs: None)
    running(cluster, make_pod, "a")
    budget(cluster, 0)
    evict(cluster, "a")
    assert cluster.get("pods", "a")["metadata"]["deletionTimestamp"]


def test_a_budget_not_yet_observed_says_when_to_retry(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 1)
    cluster.change(BUDGETS, "pdb", lambda obj: obj["spec"].update(minAvailable=2))
    with pytest.raises(ApiError, match="violate") as caught:
        evict(cluster, "a")
    assert (caught.value.code, caught.value.headers) == (429, {"Retry-After": "10"})


def test_two_budgets_over_one_pod_are_not_supported(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 1)
    budget(cluster, 1, name="other")
    with pytest.raises(ApiError) as caught:
        evict(cluster, "a")
    assert caught.value.code == 500


@pytest.mark.parametrize(
    ("healthy", "spec", "allowed"),
    [(1, {}, True), (0, {}, False), (0, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, True)],
)
def test_unhealthy_pods_cost_nothing_when_the_policy_says_so(
    cluster: Any, make_pod: Any, healthy: int, spec: Json, allowed: bool
) -> None:
    running(cluster, make_pod, "a", ready=False)
    budget(cluster, 0, healthy=healthy, **spec)
    if allowed:
        evict(cluster, "a")
    else:
        with pytest.raises(ApiError):
            evict(cluster, "a")
    assert ("deletionTimestamp" in cluster.get("pods", "a")["metadata"]) is allowed


def test_a_pending_pod_costs_nothing(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod("a", meta={"labels": {"app": "x"}}))
    budget(cluster, 0)
    evict(cluster, "a")
    assert cluster.get("pods", "a") is None


@pytest.mark.parametrize("by_query", [True, False])
def test_a_dry_run_touches_neither_pod_nor_budget(cluster: Any, make_pod: Any, by_query: bool) -> None:
    running(cluster, make_pod, "a")
    budget(cluster, 1)
    evict(cluster, "a", dry_run=True) if by_query else evict(cluster, "a", dryRun=["All"])
    assert cluster.get(BUDGETS, "pdb")["status"]["disruptionsAllowed"] == 1
    assert cluster.get("pods", "a")["status"]["conditions"] == [
        {**READY[0], "lastProbeTime": None, "lastTransitionTime": None}
    ]


@pytest.mark.parametrize(
    "preconditions", [{"uid": "00000000-0000-0000-0000-000000000001"}, {"resourceVersion": "1"}], ids=str
)
def test_a_failed_precondition_is_a_conflict(cluster: Any, make_pod: Any, preconditions: Json) -> None:
    running(cluster, make_pod, "a")
    with pytest.raises(ApiError, match="in the precondition") as caught:
        evict(cluster, "a", preconditions=preconditions)
    assert (caught.value.code, caught.value.body["details"]["kind"]) == (409, "Pod")
    pod = cluster.get("pods", "a")
    assert "deletionTimestamp" not in pod["metadata"]
    assert len(pod["status"]["conditions"]) == 1


def test_met_preconditions_survive_the_mark(cluster: Any, make_pod: Any) -> None:
    running(cluster, make_pod, "a")
    meta = cluster.get("pods", "a")["metadata"]
    evict(cluster, "a", preconditions={"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]})
    assert cluster.get("pods", "a")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("options", "code"), [({"propagationPolicy": "Sideways"}, 422), ({"gracePeriodSeconds": "x"}, 400)], ids=str
)
def test_bad_delete_options_are_refused(cluster: Any, make_pod: Any, options: Json, code: int) -> None:
    running(cluster, make_pod, "a")
    with pytest.raises(ApiError) as caught:
        evict(cluster, "a", **options)
    assert caught.value.code == code


def test_an_empty_selector_protects_pods_without_labels_too(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod("bare", nodeName="n1"))
    ready = {"phase": "Running", "conditions": READY}
    cluster.change_status("pods", "bare", lambda pod: pod["status"].update(ready))
    budget(cluster, 0, selector={})
    with pytest.raises(ApiError) as caught:
        evict(cluster, "bare")
    assert caught.value.code == 429
