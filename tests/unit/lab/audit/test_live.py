"""The judge of gangs fed from a watch: half a gang is found while it stands, and streams without order between them
accuse nobody."""

from __future__ import annotations

import pytest

from lab.audit.judges.gangs import BINDING_S
from tests.scenarios.group_watch import GroupWatch
from tests.unit.lab.audit.group_history import GroupHistory


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("tests.scenarios.group_watch.time.time", lambda: now[0])
    return now


def objects(history: GroupHistory) -> tuple[dict, list[dict]]:
    pods = [obj for (kind, _), obj in history.objects.items() if kind == "Pod"]
    for number, obj in enumerate([history.objects["PodGroup", "g"], *pods]):
        obj["metadata"].update(uid=f"uid-{number}", resourceVersion=str(number + 1))
    return history.objects["PodGroup", "g"], pods


def bound(pod: dict) -> dict:
    return {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}


def test_half_a_gang_is_found_while_it_stands(clock):
    group, pods = objects(GroupHistory().group("g", 2).members("a", "b"))
    watch = GroupWatch()
    watch.event("PodGroup", "ADDED", group)
    for pod in pods:
        watch.event("Pod", "ADDED", pod)
    watch.event("Pod", "MODIFIED", bound(pods[0]))
    watch.passed()
    assert watch.violations == []
    clock[0] += BINDING_S + 1
    watch.passed()
    assert len(watch.violations) == 1


def test_a_group_that_is_seen_after_its_members_accuses_nobody(clock):
    group, pods = objects(GroupHistory().group("g", 2).members("a", "b"))
    watch = GroupWatch()
    for pod in pods:
        watch.event("Pod", "ADDED", pod)
        watch.event("Pod", "MODIFIED", bound(pod))
    watch.event("PodGroup", "ADDED", group)
    clock[0] += BINDING_S + 1
    watch.passed()
    assert watch.violations == []


def test_a_list_in_place_of_missed_events_counts_as_these(clock):
    group, pods = objects(GroupHistory().group("g", 2).members("a", "b"))
    watch = GroupWatch()
    watch.listed("PodGroup", [group])
    watch.listed("Pod", pods)
    watch.listed("Pod", [bound(pods[0])])  # the other one is gone
    clock[0] += BINDING_S + 1
    watch.passed()
    assert watch.violations == []
