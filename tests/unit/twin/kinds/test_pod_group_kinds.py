"""Workloads and PodGroups in both releases: defaults, what is refused and how, what may change."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest

from tests.unit.twin.kinds.conftest import Cluster
from tests.unit.twin.kinds.test_kinds_survive_anything import draw
from twin.kinds.workload.pod_groups import PODGROUPS, pod_group_strategies
from twin.registry.discovery import discovery
from twin.registry.status import ApiError

Json = dict[str, Any]
WORKLOADS = "workloads.scheduling.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
BASIC: Json = {"schedulingPolicy": {"basic": {}}}


@pytest.fixture
def old() -> Cluster:
    return Cluster("1.36")


@pytest.fixture
def new() -> Cluster:
    return Cluster("1.37")


def group(spec: Json, name: str = "g") -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def template(name: str = "t", **more: Any) -> Json:
    return {"name": name, **GANG, **more}


def test_each_release_serves_one_version_and_the_group_document_names_neither(old: Cluster, new: Cluster) -> None:
    for cluster, version in ((old, "v1alpha2"), (new, "v1beta1")):
        served = discovery.versions_of(cluster.registry, "scheduling.k8s.io")
        assert served == ["v1", version]
        [listed] = [g for g in discovery.api_group_list(cluster.registry)["groups"] if g["name"] == "scheduling.k8s.io"]
        assert [one["version"] for one in listed["versions"]] == ["v1", version]
        alone = discovery.api_group(cluster.registry, "scheduling.k8s.io")
        assert alone is not None
        assert [one["version"] for one in alone["versions"]] == ["v1"]  # as recorded from a server without the gate
        resources = discovery.resource_list(cluster.registry, "scheduling.k8s.io", version)
        assert resources is not None
        assert [one["name"] for one in resources["resources"]] == ["podgroups", "podgroups/status", "workloads"]


def test_a_group_is_disrupted_pod_by_pod_unless_it_says_otherwise(old: Cluster, new: Cluster) -> None:
    assert old.create(PODGROUPS, group(GANG))["spec"]["disruptionMode"] == "Pod"
    assert new.create(PODGROUPS, group(GANG))["spec"]["disruptionMode"] == {"single": {}}
    assert new.create(PODGROUPS, group({**GANG, "disruptionMode": {"all": {}}}, "h"))["spec"]["disruptionMode"] == {
        "all": {}
    }


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({}, ("spec.schedulingPolicy", "Invalid")),
        ({"schedulingPolicy": {**GANG["schedulingPolicy"], "basic": {}}}, ("spec.schedulingPolicy", "Invalid")),
        ({"schedulingPolicy": {"gang": {}}}, ("spec.schedulingPolicy.gang.minCount", "Required")),
        ({"schedulingPolicy": {"gang": {"minCount": -1}}}, ("spec.schedulingPolicy.gang.minCount", "Invalid")),
        ({**BASIC, "priority": 2_000_000_001}, ("spec.priority", "Invalid")),
        ({**BASIC, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
         ("spec.schedulingConstraints.topology", "TooMany")),
        ({**BASIC, "schedulingConstraints": {"topology": [{}]}},
         ("spec.schedulingConstraints.topology[0].key", "Required")),
        ({**BASIC, "resourceClaims": [{"name": "c"}]}, ("spec.resourceClaims[0]", "Invalid")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_a_group_that_says_nothing_sensible_is_refused(causes: Any, release: str, spec: Json, cause: Any) -> None:
    with pytest.raises(ApiError) as caught:
        Cluster(release).create(PODGROUPS, group(spec))
    assert causes(caught.value) == [cause]


@pytest.mark.parametrize(
    ("release", "spec", "cause"),
    [
        ("1.36", {"disruptionMode": "All"}, ("spec.disruptionMode", "NotSupported")),
        ("1.37", {"disruptionMode": {}}, ("spec.disruptionMode", "Invalid")),
        ("1.37", {"disruptionMode": {"all": {}, "single": {}}}, ("spec.disruptionMode", "Invalid")),
        ("1.36", {"podGroupTemplateRef": {}}, ("spec.podGroupTemplateRef", "Invalid")),
        ("1.36", {"podGroupTemplateRef": {"workload": {"workloadName": "w"}}},
         ("spec.podGroupTemplateRef.workload.podGroupTemplateName", "Required")),
        ("1.37", {"workloadRef": {"templateName": "t"}}, ("spec.workloadRef.workloadName", "Required")),
        ("1.37", {"parentCompositePodGroupName": "c"}, ("spec.workloadRef", "Required")),
        ("1.37", {"preemptionPolicy": "Sometimes"}, ("spec.preemptionPolicy", "NotSupported")),
    ],
)  # fmt: skip
def test_each_version_has_its_own_rules(causes: Any, release: str, spec: Json, cause: Any) -> None:
    with pytest.raises(ApiError) as caught:
        Cluster(release).create(PODGROUPS, group({**GANG, **spec}))
    assert causes(caught.value) == [cause]


def set_count(obj: Json) -> None:
    obj["spec"]["schedulingPolicy"]["gang"]["minCount"] = 2


def test_the_minimum_changes_in_the_newer_version_only(causes: Any, old: Cluster, new: Cluster) -> None:
    for cluster in (old, new):
        cluster.create(PODGROUPS, group(GANG))
    with pytest.raises(ApiError) as caught:
        old.change(PODGROUPS, "g", set_count)
    assert causes(caught.value) == [("spec.schedulingPolicy", "Invalid")]
    changed = new.change(PODGROUPS, "g", set_count)
    assert changed["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert changed["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"schedulingPolicy": {"basic": {}}}, ["spec.schedulingPolicy.basic", "spec.schedulingPolicy.gang"]),
        ({"priority": 3}, ["spec.priority"]),
        ({"disruptionMode": {"all": {}}}, ["spec.disruptionMode"]),
        ({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, ["spec.schedulingConstraints"]),
        ({"workloadRef": {"workloadName": "w", "templateName": "t"}}, ["spec.workloadRef"]),
    ],
)
def test_all_else_stays_as_it_was_made(causes: Any, new: Cluster, change: Json, fields: list[str]) -> None:
    new.create(PODGROUPS, group(GANG))
    with pytest.raises(ApiError) as caught:
        new.change(PODGROUPS, "g", lambda obj: obj["spec"].update(change))
    assert [field for field, _ in causes(caught.value)] == fields


def test_priority_comes_from_the_class(new: Cluster) -> None:
    classes = "priorityclasses.scheduling.k8s.io"
    new.create(classes, {"metadata": {"name": "high"}, "value": 7})
    assert new.create(PODGROUPS, group({**GANG, "priorityClassName": "high"}))["spec"]["priority"] == 7
    for spec, text in (
        ({"priorityClassName": "no"}, "no PriorityClass with name no was found"),
        ({"priorityClassName": "high", "priority": 8}, "the integer value of priority (8) must not be provided"),
    ):
        with pytest.raises(ApiError) as caught:
            new.create(PODGROUPS, group({**GANG, **spec}, "h"))
        assert caught.value.code == 403
        assert text in str(caught.value)
    new.create(classes, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
    assert new.create(PODGROUPS, group(GANG, "i"))["spec"]["priority"] == 3


def condition(**fields: Any) -> Json:
    return {
        "type": "T",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    } | fields


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"status": "Maybe"}, ("status.conditions[0].status", "NotSupported")),
        ({"reason": ""}, ("status.conditions[0].reason", "Required")),
        ({"reason": "no reason"}, ("status.conditions[0].reason", "Invalid")),
        ({"lastTransitionTime": None}, ("status.conditions[0].lastTransitionTime", "Required")),
        ({"type": "-"}, ("status.conditions[0].type", "Invalid")),
    ],
)
def test_a_condition_is_whole(causes: Any, old: Cluster, fields: Json, cause: Any) -> None:
    old.create(PODGROUPS, group(GANG))
    with pytest.raises(ApiError) as caught:
        old.change_status(PODGROUPS, "g", lambda obj: obj.update(status={"conditions": [condition(**fields)]}))
    assert causes(caught.value) == [cause]


def test_conditions_are_merged_by_type_and_the_spec_stays(old: Cluster) -> None:
    old.create(PODGROUPS, group(GANG))
    old.change_status(PODGROUPS, "g", lambda obj: obj.update(status={"conditions": [condition()]}))
    patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": 9}}}, "status": {"conditions": [condition(type="U")]}}
    kind = old.registry.kind(PODGROUPS)
    ctx = old.registry.context("patch", kind, "ns", "g")
    ctx.subresource = "status"
    found = old.registry.patch(ctx, PODGROUPS, "ns", "g", patch, strategy="strategic", subresource="status")
    assert sorted(one["type"] for one in found["status"]["conditions"]) == ["T", "U"]
    assert found["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert found["metadata"]["generation"] == 1


# --- Workloads --------------------------------------------------------------------------------------------------------


def test_a_workload_has_one_to_eight_templates_by_name(causes: Any, old: Cluster) -> None:
    for templates, cause in (
        ([], ("spec.podGroupTemplates", "Required")),
        ([template(f"t{n}") for n in range(9)], ("spec.podGroupTemplates", "TooMany")),
        ([template(), template()], ("spec.podGroupTemplates[1]", "Duplicate")),
        ([template("A b")], ("spec.podGroupTemplates[0].name", "Invalid")),
        ([{"name": "t"}], ("spec.podGroupTemplates[0].schedulingPolicy", "Invalid")),
    ):
        with pytest.raises(ApiError) as caught:
            old.create(WORKLOADS, group({"podGroupTemplates": templates}))
        assert causes(caught.value) == [cause]
    made = old.create(WORKLOADS, group({"podGroupTemplates": [template()]}))
    assert "status" not in made
    with pytest.raises(ApiError) as caught:
        old.change(WORKLOADS, "g", lambda obj: obj["spec"]["podGroupTemplates"].append(template("u")))
    assert causes(caught.value) == [("spec.podGroupTemplates", "Invalid")]


def test_a_controller_may_be_named_later_and_is_then_kept(causes: Any, old: Cluster) -> None:
    old.create(WORKLOADS, group({"podGroupTemplates": [template()]}))
    old.change(WORKLOADS, "g", lambda obj: obj["spec"].update(controllerRef={"kind": "Job", "name": "j"}))
    with pytest.raises(ApiError) as caught:
        old.change(WORKLOADS, "g", lambda obj: obj["spec"].update(controllerRef={"kind": "Job", "name": "k"}))
    assert causes(caught.value) == [("spec.controllerRef", "Invalid")]


def test_templates_of_groups_of_groups_are_a_tree_of_four_levels(causes: Any, new: Cluster) -> None:
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    tree: Json = {"name": "leaf", **policy, "podGroupTemplates": [template()]}
    for level in range(2):
        tree = {"name": f"n{level}", **policy, "compositePodGroupTemplates": [tree]}
    made = new.create(WORKLOADS, group({"compositePodGroupTemplates": [tree]}))
    assert made["spec"]["compositePodGroupTemplates"][0]["name"] == "n1"
    deeper = {"name": "n2", **policy, "compositePodGroupTemplates": [tree]}
    for spec, field in (
        ({"compositePodGroupTemplates": [deeper]}, "spec" + ".compositePodGroupTemplates[0]" * 3),
        ({"compositePodGroupTemplates": [tree], "podGroupTemplates": [template()]}, "spec"),
        ({}, "spec"),
    ):
        with pytest.raises(ApiError) as caught:
            new.create(WORKLOADS, group(spec, "h"))
        assert causes(caught.value)[0][0].startswith(field)


# --- pods -------------------------------------------------------------------------------------------------------------


def test_a_pod_names_its_group_once_and_for_all(causes: Any, old: Cluster, make_pod: Any) -> None:
    made = old.create("pods", make_pod("a", schedulingGroup={"podGroupName": "g"}))
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    for name in ("h", None):
        with pytest.raises(ApiError) as caught:
            old.change(
                "pods", "a", lambda obj, n=name: obj["spec"].update(schedulingGroup={"podGroupName": n} if n else None)
            )
        assert ("spec", "Forbidden") in causes(caught.value)
    for given, field in (({}, "spec.schedulingGroup"), ({"podGroupName": "A b"}, "spec.schedulingGroup.podGroupName")):
        with pytest.raises(ApiError) as caught:
            old.create("pods", make_pod("b", schedulingGroup=given))
        assert causes(caught.value) == [(field, "Invalid")]


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_no_object_crashes_either_release(release: str) -> None:
    cluster = Cluster(release)
    good = {PODGROUPS: group(GANG, "good"), WORKLOADS: group({"podGroupTemplates": [template()]}, "good")}
    for strategy in pod_group_strategies(release):
        rng, resource = Random(strategy.info.plural), strategy.info.resource
        cluster.create(resource, good[resource])
        for number in range(300):
            body = draw(rng, strategy.go_type, 0, 0.5)
            body["metadata"] = {"name": f"n{number}"}
            with contextlib.suppress(ApiError):
                cluster.create(resource, body)
            other = draw(rng, strategy.go_type, 0, 0.5)
            with contextlib.suppress(ApiError):
                cluster.change(resource, "good", lambda one, drawn=other: one.update(spec=drawn.get("spec") or {}))
        assert cluster.get(resource, "good") is not None
