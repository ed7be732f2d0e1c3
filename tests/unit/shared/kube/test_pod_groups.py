"""What pods are grouped by: every API's object becomes the same PodGroup, and what cannot be used says so itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.kube import objects as api
from shared.kube.pod_groups import (
    COMPLETION_INDEX,
    GROUP_LABEL,
    Job,
    PluginsPodGroup,
    PodGroupV1alpha2,
    PodGroupV1beta1,
    job_group,
    native_group,
    plugins_group,
)
from shared.kube.pods.convert import pod_from_api
from shared.model.devices import ClaimRef
from shared.model.units.pod_group import MAX_MEMBERS, GroupSource, GroupTopology, PodGroup, WhenGangBreaks

GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
META = {"name": "g", "namespace": "d", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}


def native(spec: dict[str, Any], type_: Any = PodGroupV1beta1, *, status: Any = None, **meta: Any) -> PodGroup:
    obj = {"metadata": {**META, **meta}, "spec": spec, "status": status or {}}
    return native_group(msgspec.convert(obj, type_))


def plugins(spec: dict[str, Any], **meta: Any) -> PodGroup:
    return plugins_group(msgspec.convert({"metadata": {**META, **meta}, "spec": spec}, PluginsPodGroup))


def job(
    annotations: dict[str, str] | None = None, *, mode: str = "Indexed", parallelism: int = 4, succeeded: int = 0,
    completions: int | None = 4, name: str = "j",
) -> Job:  # fmt: skip
    obj = {
        "metadata": {**META, "name": name, "annotations": annotations or {}},
        "spec": {"completionMode": mode, "parallelism": parallelism, "completions": completions},
        "status": {"succeeded": succeeded},
    }
    return msgspec.convert(obj, Job)


@pytest.mark.parametrize(
    ("type_", "version", "one", "whole", "condition"),
    [
        (PodGroupV1alpha2, "v1alpha2", "Pod", "PodGroup", "PodGroupScheduled"),
        (PodGroupV1beta1, "v1beta1", {"single": {}}, {"all": {}}, "PodGroupInitiallyScheduled"),
    ],
)
def test_both_native_versions_become_the_same_group(
    type_: Any, version: str, one: Any, whole: Any, condition: str
) -> None:
    status = {"conditions": [
        {"type": "Other", "status": "True"}, {"type": condition, "status": "False", "reason": "R", "message": "m"},
    ]}  # fmt: skip
    spec = {**GANG, "priority": 7, "schedulingConstraints": {"topology": [{"key": "rack"}]}, "disruptionMode": whole}
    group = native(spec, type_, status=status, labels={"a": "b"})
    assert group == PodGroup(
        key="podgroup:d/g", source=GroupSource.NATIVE, namespace="d", name="g", uid="u", resource_version="7",
        api_version=f"scheduling.k8s.io/{version}", gang=True, min_count=3, topology=GroupTopology("rack"), whole=True,
        priority=7, labels={"a": "b"}, created="2026-01-01T00:00:00Z", condition=(condition, "False", "R", "m"),
    )  # fmt: skip
    assert not native({**GANG, "disruptionMode": one}, type_).whole
    basic = native({"schedulingPolicy": {"basic": {}}}, type_)
    assert (basic.gang, basic.min_count, basic.problem, basic.condition[:2]) == (False, 1, "", (condition, ""))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount: 0 is below 1; give"),
        ({"schedulingPolicy": {"gang": {"minCount": MAX_MEMBERS + 1}}}, f"{MAX_MEMBERS + 1} is more than the"),
        ({"schedulingPolicy": {"race": {}}}, "spec.schedulingPolicy: names not exactly one of basic and gang"),
        ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, "set one"),
        ({**GANG, "disruptionMode": "Half"}, "spec.disruptionMode: 'Half' is not known here; give Pod or PodGroup"),
        ({**GANG, "disruptionMode": {"half": {}}}, "spec.disruptionMode: names not exactly one of single and all"),
        ({**GANG, "parentCompositePodGroupName": "c"}, "CompositePodGroup is not supported"),
        ({**GANG, "resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
        ({**GANG, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "one constraint"),
    ],
)
def test_a_native_group_that_cannot_be_used_names_field_and_remedy(spec: dict[str, Any], problem: str) -> None:
    group = native(spec)
    assert problem in group.problem
    assert group.min_count >= 1


def test_annotations_of_a_group_say_what_its_api_has_no_field_for() -> None:
    group = native(GANG, annotations={
        "conclave.io/gang-broken": "evict", "conclave.io/gang-topology-preferred": "zone",
    })  # fmt: skip
    assert (group.broken, group.topology, group.problem) == (
        WhenGangBreaks.EVICT,
        GroupTopology("zone", required=False),
        "",
    )
    assert plugins({"minMember": 2}, annotations={"conclave.io/gang-topology": "zone"}).topology == GroupTopology(
        "zone"
    )


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"conclave.io/gang-broken": "flee"}, "[conclave.io/gang-broken]: 'flee' is not known; give keep or evict"),
        ({"conclave.io/gang-topology": ""}, "names no node label"),
        (
            {"conclave.io/gang-topology": "my rack!"},
            "[conclave.io/gang-topology]: 'my rack!' is not the name of a node label",
        ),
        ({"conclave.io/gang-topology": "a", "conclave.io/gang-topology-preferred": "b"}, "one topology constraint"),
    ],
)
def test_a_malformed_annotation_is_told(annotations: dict[str, str], problem: str) -> None:
    assert problem in native(GANG, annotations=annotations).problem


def test_a_topology_of_the_spec_and_one_of_an_annotation_are_one_too_many() -> None:
    spec = {**GANG, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
    group = native(spec, annotations={"conclave.io/gang-topology-preferred": "zone"})
    assert "remove it or spec.schedulingConstraints.topology" in group.problem


def test_a_plugins_group_has_its_own_timeout_and_minimum_of_resources() -> None:
    group = plugins({"minMember": 4, "minResources": {"cpu": "2", "memory": "1Gi"}, "scheduleTimeoutSeconds": 20})
    assert (group.key, group.gang, group.min_count, group.timeout_s) == ("x-podgroup:d/g", True, 4, 20.0)
    assert group.min_resources == (("cpu", 2000), ("memory", 2**30))
    assert (group.problem, group.condition[0]) == ("", "")
    assert plugins({}).min_count == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"minMember": 0}, "spec.minMember: 0 is below 1; give 1 or more"),
        ({"minMember": 2, "minResources": {"cpu": "x"}}, "spec.minResources[cpu]"),
        ({"minMember": 2, "minResources": {"cpu": "-1"}}, "spec.minResources[cpu]"),
        ({"minMember": 2, "scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds: -1 is negative"),
    ],
)
def test_a_plugins_group_that_cannot_be_used_names_the_field(spec: dict[str, Any], problem: str) -> None:
    assert problem in plugins(spec).problem


# --- Jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "of_namespace", "gang"),
    [
        ({}, {}, False),
        ({"conclave.io/gang": "true"}, {}, True),
        ({}, {"conclave.io/gang": "true"}, True),
        ({"conclave.io/gang": "false"}, {"conclave.io/gang": "true"}, False),
    ],
)
def test_an_indexed_job_is_a_gang_where_it_or_its_namespace_asks(own: Any, of_namespace: Any, gang: bool) -> None:
    group = job_group(job(own), of_namespace)
    assert group is not None
    assert (group.key, group.gang, group.min_count, group.problem) == ("job:d/j", gang, 4 if gang else 1, "")


def test_the_minimum_of_a_job_is_what_can_still_run_at_once() -> None:
    ask = {"conclave.io/gang": "true"}
    assert job_group(job(ask, completions=10, succeeded=3)).min_count == 4  # type: ignore[union-attr]
    assert job_group(job(ask, completions=10, succeeded=9)).min_count == 1  # type: ignore[union-attr]
    assert job_group(job({**ask, "conclave.io/gang-min-count": "2"})).min_count == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"conclave.io/gang": "yes"}, 'metadata.annotations[conclave.io/gang]: \'yes\' is neither "true" nor "false"'),
        ({"conclave.io/gang": "true", "conclave.io/gang-min-count": "x"}, "'x' is no whole number; give 1 to 4"),
        ({"conclave.io/gang": "true", "conclave.io/gang-min-count": "5"}, "5 is not from 1 to 4, the Job's parallel"),
    ],
)
def test_a_job_that_asks_badly_is_told(asked: dict[str, str], problem: str) -> None:
    group = job_group(job(asked))
    assert group is not None
    assert problem in group.problem
    assert group.gang  # its pods wait, rather than be placed one by one


def test_a_job_that_is_not_indexed_is_no_group_and_is_told_so_if_it_asks() -> None:
    assert job_group(job(mode="NonIndexed"), {"conclave.io/gang": "true"}) is None
    asked = job_group(job({"conclave.io/gang": "true"}, mode="NonIndexed"))
    assert asked is not None
    assert not asked.gang
    assert "spec.completionMode: only a Job with completionMode Indexed can be a gang" in asked.problem


def test_a_jobs_progress_is_no_news_of_its_group() -> None:
    first = job_group(job({"conclave.io/gang": "true"}, completions=10))
    later = job({"conclave.io/gang": "true"}, completions=10, succeeded=2)
    moved = msgspec.structs.replace(later, metadata=msgspec.structs.replace(later.metadata, resource_version="9"))
    assert job_group(moved) == first


# --- pods -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "spec", "group"),
    [
        ({}, {}, ""),
        ({}, {"schedulingGroup": {"podGroupName": "g"}}, "podgroup:d/g"),
        ({"labels": {GROUP_LABEL: "x"}}, {}, "x-podgroup:d/x"),
        ({"labels": {GROUP_LABEL: ""}}, {}, ""),
        ({"labels": {GROUP_LABEL: "x"}}, {"schedulingGroup": {"podGroupName": "g"}}, "podgroup:d/g"),
        ({"job": True}, {}, ""),
        ({"job": True, "annotations": {COMPLETION_INDEX: "0"}}, {}, "job:d/j"),
        ({"job": True, "labels": {COMPLETION_INDEX: "0"}}, {"nodeName": "n"}, "job:d/j"),
        ({"job": True, "labels": {COMPLETION_INDEX: "0", GROUP_LABEL: "x"}}, {}, "x-podgroup:d/x"),
    ],
)
def test_a_pod_names_its_group(meta: dict[str, Any], spec: dict[str, Any], group: str) -> None:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]
    owned = meta.pop("job", False)
    body = {"metadata": {"name": "p", "namespace": "d", "ownerReferences": owners if owned else [], **meta}}
    assert pod_from_api(msgspec.convert({**body, "spec": spec}, api.KubePod)).group == group


@pytest.mark.parametrize("type_", [PodGroupV1alpha2, PodGroupV1beta1])
def test_a_native_groups_claims_are_by_name_or_by_template(type_: Any) -> None:
    named = [
        {"name": "one", "resourceClaimName": "c"},
        {"name": "made", "resourceClaimTemplateName": "t"},
    ]
    group = native({**GANG, "resourceClaims": named}, type_)
    assert (group.claims, group.problem) == ((ClaimRef("one", "c"), ClaimRef("made", None, "t")), "")
