"""What a PodDisruptionBudget allows, as the real disruption controller counts it."""

from __future__ import annotations

from typing import Any

import pytest

from twin.model.disruptions import CoveredPods, UncountedPod, budget_status

Json = dict[str, Any]
NOW, NOW_S = "2026-01-01T00:00:00Z", 1767225600.0


def pod(name: str, *, owner: str = "rs", ready: bool = True, **meta: Any) -> Json:
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}] if owner else []
    ready_now = {"type": "Ready", "status": str(ready), "lastTransitionTime": NOW}
    return {"metadata": {"name": name, "ownerReferences": owners, **meta}, "status": {"conditions": [ready_now]}}


def budget(status: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status or {}}


def scale_of(_pod: Json, owner: Json) -> tuple[str, int]:
    return "deployment", 8


def counts(status: Json) -> tuple[int, int, int, int]:
    """Allowed, healthy, desired, expected."""
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    allowed, healthy, desired, expected = (status[name] for name in names)
    return allowed, healthy, desired, expected


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"minAvailable": 2}, (1, 3, 2, 4)),
        ({"minAvailable": "33%"}, (0, 3, 3, 8)),  # of what the controllers want, rounded up
        ({"maxUnavailable": 6}, (1, 3, 2, 8)),
        ({"maxUnavailable": "70%"}, (1, 3, 2, 8)),
        ({"maxUnavailable": 9}, (3, 3, 0, 8)),
        ({}, (0, 3, 0, 0)),  # no budget without a number allows a disruption
    ],
)
def test_what_is_allowed_is_what_is_healthy_beyond_what_is_to_be(spec: Json, wanted: tuple[int, ...]) -> None:
    pods = [pod("a"), pod("b", owner="other-rs"), pod("c"), pod("d", ready=False)]
    status, again_s = budget_status(budget(**spec), CoveredPods(pods), scale_of, NOW, NOW_S)
    assert counts(status) == wanted
    assert status["observedGeneration"] == 3
    condition = status["conditions"][0]
    assert condition["reason"] == ("SufficientPods" if wanted[0] else "InsufficientPods")
    assert again_s is None


def test_who_is_granted_its_eviction_counts_no_more_until_it_is_late() -> None:
    granted = {"a": "2025-12-31T23:59:00Z", "b": "2025-12-31T23:57:59Z", "gone": NOW, "leaving": NOW}
    pods = [pod("a"), pod("b"), pod("leaving", deletionTimestamp=NOW)]
    status, again_s = budget_status(
        budget({"disruptedPods": granted}, minAvailable=0), CoveredPods(pods), scale_of, NOW, NOW_S
    )
    assert status["disruptedPods"] == {"a": granted["a"]}
    assert counts(status) == (1, 1, 0, 3)
    assert again_s == 60.0


def test_where_no_controller_can_be_counted_nothing_is_allowed_and_it_is_said() -> None:
    def unknown(_pod: Json, _owner: Json) -> tuple[str, int]:
        raise UncountedPod('found no controllers for pod "a"')

    before = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
    old = budget({**before, "observedGeneration": 2}, maxUnavailable=1)
    status, _ = budget_status(old, CoveredPods([pod("a")]), unknown, NOW, NOW_S)
    assert counts(status) == (0, 1, 0, 1)
    assert status["observedGeneration"] == 2  # the eviction API refuses as "still being processed"
    assert status["conditions"][0]["reason"] == "SyncFailed"
    assert counts(budget_status(old, CoveredPods([pod("a", owner="")]), unknown, NOW, NOW_S)[0]) == (0, 1, 0, 0)


def test_pods_that_change_are_counted_as_those_that_stand() -> None:
    there = CoveredPods([pod("a"), pod("b")])
    there.put(pod("c"))
    there.put(pod("b", ready=False))
    assert there.drop("a")
    assert not there.drop("a")
    anew = CoveredPods([pod("b", ready=False), pod("c")])
    assert (len(there), there.staying, there.healthy, there.by_owner) == (
        len(anew), anew.staying, anew.healthy, anew.by_owner,
    )  # fmt: skip
