"""The picture: utilisation per node over time, from audit entries alone."""

from __future__ import annotations

import pytest

from lab.audit.log import read_entries
from lab.audit.timeline import UtilisationTimeline
from tests.unit.lab.audit.audit_history import History
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile


def picture_of(history: History, *, speed: float = 1.0, columns: int = 100):
    timeline = UtilisationTimeline(speed=speed)
    for entry in read_entries(history.lines, "a"):
        timeline.feed(entry)
    return timeline.picture(columns)


def used_pod(history: History, name: str, usage: UsageNow, duration_s: float) -> History:
    history.pod(name)
    annotations = {USAGE_ANNOTATION: UsageProfile(((0, usage),), duration_s).to_json()}
    history.objects["Pod", name]["metadata"]["annotations"] = annotations
    return history.bind(name)


def test_a_pod_with_a_profile_counts_by_its_use_while_it_runs():
    history = used_pod(History().node("n1"), "a", UsageNow(cpu_millis=500), 100)
    history.wait(5).phase("a", "Running").wait(5).phase("a", "Succeeded").wait(5).unschedulable("a")
    picture = picture_of(history)
    assert picture is not None
    assert picture.values["n1"][20] == 0.0
    assert picture.values["n1"][50] == pytest.approx(0.5)
    assert picture.values["n1"][90] == 0.0
    assert picture.parts["cpu"][50] == pytest.approx(0.5)


def test_a_profile_s_steps_pass_at_the_run_s_speed():
    history = (
        used_pod(History().node("n1"), "a", UsageNow(cpu_millis=500), 50).phase("a", "Running").wait(10).pod("late")
    )
    picture = picture_of(history, speed=10.0)
    assert picture is not None
    assert picture.values["n1"][25] == pytest.approx(0.5)
    assert picture.values["n1"][75] == 0.0


def test_a_pod_without_a_profile_counts_by_its_requests_from_its_binding_on():
    history = History().node("n1").pod("a", {"cpu": "250m"}).bind("a").wait(10).pod("b")
    picture = picture_of(history)
    assert picture is not None
    assert picture.values["n1"][-1] == pytest.approx(0.25)


def test_imbalance_is_the_time_mean_over_nodes():
    history = History().node("n1").node("n2").pod("a", {"cpu": "500m"}).bind("a").wait(1000).pod("b")
    picture = picture_of(history)
    assert picture is not None
    assert picture.imbalance == pytest.approx(0.25, rel=0.02)


def test_gpus_have_a_part_of_their_own():
    node = {"cpu": "8", "memory": "8Gi", "pods": "9", "conclave.io/gpu-milli": "2000"}
    pod = {"cpu": "1m", "conclave.io/gpu-milli": "1000"}
    history = History().node("n1", node).pod("a", pod).bind("a", devices="0").wait(10).pod("b")
    picture = picture_of(history)
    assert picture is not None
    assert picture.parts["gpu"][-1] == pytest.approx(0.5)


def test_without_pods_there_is_no_picture():
    assert picture_of(History().node("n1")) is None
