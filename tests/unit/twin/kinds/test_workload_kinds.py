"""Workloads, storage, services, configuration, events: defaults and rules of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.event import EventStrategy
from twin.kinds.table import all_strategies
from twin.registry.status import ApiError

Json = dict[str, Any]
LABELS = {"app": "x"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
SPEC = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
DEPLOYMENTS, STATEFUL, DAEMONS = "deployments.apps", "statefulsets.apps", "daemonsets.apps"


def named(name: str, **fields: Any) -> Json:
    return {"metadata": {"name": name}, **fields}


def test_a_stateful_set_mounts_its_claim_templates(cluster: Any) -> None:
    """ValidatePodTemplateSpecForStatefulSet leaves the pod spec to the pods, or no claim could be mounted."""
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    template = {"metadata": {"labels": SPEC["selector"]["matchLabels"]}, "spec": {"containers": [container]}}
    access = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": access}]
    spec = {"selector": SPEC["selector"], "serviceName": "s", "template": template, "volumeClaimTemplates": claims}
    assert cluster.create(STATEFUL, named("s", spec=spec))["spec"]["volumeClaimTemplates"]


def test_a_deployment_is_filled_in(cluster: Any) -> None:
    obj = cluster.create(DEPLOYMENTS, named("d", spec=SPEC))
    spec = obj["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert "tolerations" not in spec["template"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert obj["status"] == {}


def test_the_other_workloads_are_filled_in(cluster: Any) -> None:
    stateful = cluster.create(STATEFUL, named("s", spec={**SPEC, "serviceName": "s"}))["spec"]
    assert stateful["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    daemon = cluster.create(DAEMONS, named("d", spec=SPEC))["spec"]
    assert daemon["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    controller = cluster.create("replicationcontrollers", named("r", spec={"template": TEMPLATE}))
    assert (controller["spec"]["selector"], controller["metadata"]["labels"]) == (LABELS, LABELS)


@pytest.mark.parametrize("resource", [DEPLOYMENTS, "replicasets.apps", STATEFUL, DAEMONS])
def test_the_selector_must_match_the_template(cluster: Any, causes: Any, resource: str) -> None:
    spec = {**SPEC, "selector": {"matchLabels": {"app": "y"}}}
    with pytest.raises(ApiError) as caught:
        cluster.create(resource, named("w", spec=spec))
    assert ("spec.template.metadata.labels", "Invalid") in causes(caught.value)


def test_a_selector_never_changes(cluster: Any, causes: Any) -> None:
    cluster.create(DEPLOYMENTS, named("d", spec=SPEC))

    def edit(obj: Json) -> None:
        obj["spec"]["selector"] = {"matchLabels": {"app": "y"}}
        obj["spec"]["template"]["metadata"]["labels"] = {"app": "y"}

    with pytest.raises(ApiError) as caught:
        cluster.change(DEPLOYMENTS, "d", edit)
    assert causes(caught.value) == [("spec.selector", "Invalid")]


def test_a_stateful_set_changes_only_named_fields(cluster: Any, causes: Any) -> None:
    cluster.create(STATEFUL, named("s", spec={**SPEC, "serviceName": "s"}))
    assert cluster.change(STATEFUL, "s", lambda obj: obj["spec"].update(replicas=2))["metadata"]["generation"] == 2
    with pytest.raises(ApiError) as caught:
        cluster.change(STATEFUL, "s", lambda obj: obj["spec"].update(serviceName="t"))
    assert causes(caught.value) == [("spec", "Forbidden")]


def test_a_job_selects_by_its_own_uid(cluster: Any, causes: Any) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    job = cluster.create("jobs.batch", named("j", spec={"template": template}))
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert job["metadata"]["labels"]["job-name"] == "j"
    assert (job["spec"]["parallelism"], job["spec"]["completions"], job["spec"]["backoffLimit"]) == (1, 1, 6)
    with pytest.raises(ApiError) as caught:
        cluster.create(
            "jobs.batch", named("k", spec={"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}})
        )
    assert causes(caught.value) == [("spec.template.spec.restartPolicy", "Required")]


def test_scale_reads_and_writes_replicas_with_a_generation(cluster: Any) -> None:
    cluster.create(DEPLOYMENTS, named("d", spec=SPEC))
    kind = cluster.registry.kind(DEPLOYMENTS)
    scale = kind.subresources["scale"]
    ctx = cluster.registry.context("update", kind, "ns", "d")
    body = scale.get(ctx, cluster.registry, "d", {}).body
    assert (body["spec"], body["status"]) == ({"replicas": 1}, {"replicas": 0, "selector": "app=x"})
    after = scale.update(ctx, cluster.registry, "d", {"metadata": body["metadata"], "spec": {"replicas": 4}}).body
    assert after["spec"] == {"replicas": 4}
    assert cluster.get(DEPLOYMENTS, "d")["metadata"]["generation"] == 2
    with pytest.raises(ApiError, match="the object has been modified"):
        scale.update(ctx, cluster.registry, "d", {"metadata": body["metadata"], "spec": {"replicas": 5}})
    with pytest.raises(ApiError, match="must be greater than or equal to 0"):
        scale.update(ctx, cluster.registry, "d", {"spec": {"replicas": -1}})


def test_services_get_addresses_and_ports(cluster: Any) -> None:
    first = cluster.create("services", named("a", spec={"selector": LABELS, "ports": [{"port": 80}]}))["spec"]
    second = cluster.create("services", named("b", spec={"type": "NodePort", "ports": [{"port": 80}]}))["spec"]
    headless = cluster.create("services", named("h", spec={"clusterIP": "None", "ports": [{"port": 80}]}))["spec"]
    assert first["clusterIP"] != second["clusterIP"]
    assert (first["ports"], second["ports"][0]["nodePort"]) == (
        [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        30000,
    )
    assert (headless["ipFamilies"], headless["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    with pytest.raises(ApiError, match="may not change once set"):
        cluster.change("services", "a", lambda obj: obj["spec"].update(clusterIP="10.9.9.9", clusterIPs=["10.9.9.9"]))


def test_volumes_and_claims_are_protected_and_pending(cluster: Any) -> None:
    cluster.create(
        "storageclasses.storage.k8s.io",
        {
            "metadata": {"name": "sc", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "x/y",
        },
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = cluster.create("persistentvolumeclaims", named("c", spec=spec))
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert (claim["spec"]["storageClassName"], claim["status"]) == ("sc", {"phase": "Pending"})
    volume_spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    volume = cluster.create("persistentvolumes", named("v", spec=volume_spec))
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    with pytest.raises(ApiError, match="spec is immutable after creation"):
        cluster.change("persistentvolumeclaims", "c", lambda obj: obj["spec"].update(accessModes=["ReadOnlyMany"]))


def test_frozen_configuration_stays_as_it_is(cluster: Any, causes: Any) -> None:
    cluster.create("configmaps", named("c", data={"a": "1"}, immutable=True))
    with pytest.raises(ApiError) as caught:
        cluster.change("configmaps", "c", lambda obj: obj["data"].update(a="2"))
    assert causes(caught.value) == [("data", "Forbidden")]
    secret = cluster.create("secrets", named("s", stringData={"a": "b"}))
    assert (secret["data"], secret["type"]) == ({"a": "Yg=="}, "Opaque")
    with pytest.raises(ApiError) as caught:
        cluster.create("secrets", named("t", type="kubernetes.io/tls"))
    assert causes(caught.value) == [("data[tls.crt]", "Required"), ("data[tls.key]", "Required")]


def test_an_event_is_one_object_in_two_views(cluster: Any) -> None:
    strategy = EventStrategy()
    new = {
        "metadata": {"name": "e", "namespace": "ns"},
        "regarding": {"kind": "Pod", "namespace": "ns", "name": "p"},
        "note": "assigned",
        "reportingController": "example.com/s",
        "reportingInstance": "h",
        "deprecatedSource": {},
    }
    stored = strategy.to_storage(dict(new))
    assert (stored["involvedObject"]["name"], stored["message"]) == ("p", "assigned")
    assert strategy.from_storage(stored) == new


def test_core_events_must_be_in_the_objects_namespace(cluster: Any, causes: Any) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("events", named("e", involvedObject={"kind": "Pod", "name": "p", "namespace": "other"}))
    assert causes(caught.value) == [("involvedObject.namespace", "Invalid")]


def test_a_definition_must_be_named_after_its_plural(cluster: Any, causes: Any) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    spec = {"group": "x.io", "scope": "Namespaced", "names": {"plural": "as", "kind": "A"}, "versions": [version]}
    resource = "customresourcedefinitions.apiextensions.k8s.io"
    with pytest.raises(ApiError) as caught:
        cluster.create(resource, named("wrong.x.io", spec=spec))
    assert causes(caught.value) == [("metadata.name", "Invalid")]
    names = cluster.create(resource, named("as.x.io", spec=spec))["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("a", "AList")


@pytest.mark.parametrize("strategy", all_strategies(), ids=lambda s: f"{s.info.api_version}/{s.info.plural}")
def test_discovery_data_is_complete(strategy: Any) -> None:
    info = strategy.info
    assert info.kind[0].isupper()
    assert info.plural == info.plural.lower()
    assert info.singular == info.kind.lower()
    for one in strategy.subresources:
        assert one.verbs
        assert one.prepare or one.create or one.get or one.update or one.name == "status"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"type": "NodePort", "clusterIP": "None", "ports": [{"port": 80}]}, "spec.clusterIPs[0]"),
        ({"type": "ExternalName"}, "spec.externalName"),
        ({"type": "Odd", "ports": [{"port": 80}]}, "spec.type"),
        ({"ports": []}, "spec.ports"),
        ({"ports": [{"port": 80}, {"port": 81}]}, "spec.ports[0].name"),
        ({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}, "spec.ports[1]"),
        ({"ports": [{"port": 80, "nodePort": 30000}]}, "spec.ports[0].nodePort"),
        ({"ports": [{"port": 80, "protocol": "X"}]}, "spec.ports[0].protocol"),
        ({"ports": [{"port": 80}], "sessionAffinity": "Odd"}, "spec.sessionAffinity"),
        ({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy"),
        ({"ports": [{"port": 80}], "externalIPs": ["x"]}, "spec.externalIPs[0]"),
    ],
)
def test_bad_services_are_refused(cluster: Any, causes: Any, spec: Json, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        cluster.create("services", named("s", spec=spec))
    assert field in [name for name, _ in causes(caught.value)]


def test_a_job_deleted_without_a_policy_warns_that_its_pods_stay(cluster: Any) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    cluster.create("jobs.batch", named("j", spec={"template": template}))
    kind = cluster.registry.kind("jobs.batch")
    ctx = cluster.registry.context("delete", kind, "ns", "j")
    cluster.registry.delete(ctx, "jobs.batch", "ns", "j", {})
    assert ctx.warnings[0].startswith("child pods are preserved by default")
    assert cluster.get("jobs.batch", "j")["metadata"]["finalizers"] == ["orphan"]


@pytest.mark.parametrize(
    ("resource", "name", "spec", "warning"),
    [
        (DEPLOYMENTS, "a.b", SPEC, "metadata.name: this is used in Pod names and hostnames"),
        (
            DEPLOYMENTS,
            "d",
            {**SPEC, "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "terminationGracePeriodSeconds": -1}}},
            "spec.template.spec.terminationGracePeriodSeconds: must be >= 0",
        ),
    ],
)
def test_workloads_are_warned_of(cluster: Any, resource: str, name: str, spec: Json, warning: str) -> None:
    cluster.create(resource, named(name, spec=spec))
    assert any(text.startswith(warning) for text in cluster.warnings)
