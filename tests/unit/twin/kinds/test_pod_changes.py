"""What may change in a pod, and what its status may say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twin.registry import updating
from twin.registry.status import ApiError

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def setting(**fields: Any) -> Callable[[Json], None]:
    """An edit of the spec."""
    return lambda pod: pod["spec"].update(fields)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (setting(schedulerName="x"), "spec"),
        (setting(nodeName="n1"), "spec"),
        (setting(priority=5), "spec"),
        (setting(nodeSelector={"a": "b"}), "spec"),
        (setting(restartPolicy="Never"), "spec"),
        (setting(tolerations=[{"key": "other", "operator": "Exists"}]), "spec.tolerations"),
        (setting(containers=[]), "spec.containers"),
        (setting(activeDeadlineSeconds=90), "spec.activeDeadlineSeconds"),
        (lambda pod: pod["spec"].pop("activeDeadlineSeconds"), "spec.activeDeadlineSeconds"),
        (lambda pod: pod["spec"]["containers"][0].update(resources={"requests": {"cpu": "2"}}), "spec"),
    ],
)
def test_the_spec_is_immutable(cluster: Any, make_pod: Any, causes: Any, edit: Any, field: str) -> None:
    cluster.create("pods", make_pod(activeDeadlineSeconds=60, tolerations=[{"key": "mine", "operator": "Exists"}]))
    with pytest.raises(ApiError) as caught:
        cluster.change("pods", "a", edit)
    assert field in [name for name, _ in causes(caught.value)]


@pytest.mark.parametrize(
    "edit",
    [
        lambda pod: pod["spec"]["containers"][0].update(image="other:1"),
        setting(activeDeadlineSeconds=30),
        lambda pod: pod["spec"]["tolerations"].append({"key": "k", "operator": "Exists"}),
        lambda pod: pod["spec"]["tolerations"][0].update(tolerationSeconds=1),
    ],
)
def test_what_may_change_counts_in_the_generation(cluster: Any, make_pod: Any, edit: Any) -> None:
    cluster.create("pods", make_pod())
    assert cluster.change("pods", "a", edit)["metadata"]["generation"] == 2


def test_labels_and_status_do_not_count_in_the_generation(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    cluster.change("pods", "a", lambda pod: pod["metadata"].update(labels={"x": "y"}))
    pod = cluster.change_status("pods", "a", lambda pod: pod["status"].update(phase="Running"))
    assert (pod["metadata"]["generation"], pod["status"]["phase"]) == (1, "Running")


def test_a_removed_default_toleration_comes_back_at_the_end(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    pod = cluster.change("pods", "a", lambda pod: pod["spec"]["tolerations"].pop(0))
    keys = [one["key"] for one in pod["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"]


def test_a_put_may_leave_defaulted_and_admitted_fields_out(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    minimal = make_pod(meta={"labels": {"z": "1"}})

    def replace(pod: Json) -> None:
        pod["spec"], pod["metadata"]["labels"] = minimal["spec"], minimal["metadata"]["labels"]

    pod = cluster.change("pods", "a", replace)
    assert (pod["metadata"]["generation"], pod["metadata"]["labels"]) == (1, {"z": "1"})


def terms(*keys: str) -> Json:
    expressions = [{"key": key, "operator": "Exists"} for key in keys]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (setting(nodeSelector={"disk": "ssd", "zone": "a"}), ""),
        (setting(nodeSelector={"disk": "hdd"}), "spec.nodeSelector"),
        (setting(nodeSelector={}), "spec.nodeSelector"),
        (setting(affinity=terms("p", "q")), ""),
        (setting(affinity=terms("q")), f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"),
        (setting(affinity={}), f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"),
        (setting(schedulingGates=[]), ""),
        (setting(schedulingGates=[{"name": "x"}, {"name": "new"}]), "spec.schedulingGates[1].name"),
    ],
)
def test_a_gated_pod_may_be_tightened_only(cluster: Any, make_pod: Any, causes: Any, edit: Any, field: str) -> None:
    gated = make_pod(schedulingGates=[{"name": "x"}], nodeSelector={"disk": "ssd"}, affinity=terms("p"))
    cluster.create("pods", gated)
    if not field:
        assert cluster.change("pods", "a", edit)["metadata"]["generation"] == 2
        return
    with pytest.raises(ApiError) as caught:
        cluster.change("pods", "a", edit)
    assert causes(caught.value)[0][0] == field


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"qosClass": "Guaranteed"}, "status.qosClass"),
        ({"nominatedNodeName": "n9"}, "status.nominatedNodeName"),
        ({"podIPs": [{"ip": "x"}]}, "status.podIPs[0]"),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}, "status.podIPs"),
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}, "status.hostIPs[0].ip"),
    ],
)
def test_a_bad_status_of_a_bound_pod_is_refused(
    cluster: Any, make_pod: Any, causes: Any, status: Json, field: str
) -> None:
    cluster.create("pods", make_pod(nodeName="n1"))
    with pytest.raises(ApiError) as caught:
        cluster.change_status("pods", "a", lambda pod: pod["status"].update(status))
    assert causes(caught.value)[0][0] == field


def test_an_ended_container_does_not_run_again(cluster: Any, make_pod: Any, causes: Any) -> None:
    cluster.create("pods", make_pod(restartPolicy="Never"))
    status = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    ended, running = {"terminated": {"exitCode": 0}}, {"running": {}}

    def state(value: Json) -> Callable[[Json], None]:
        return lambda pod: pod["status"].update(containerStatuses=[{**status, "state": value}])

    cluster.change_status("pods", "a", state(ended))
    with pytest.raises(ApiError) as caught:
        cluster.change_status("pods", "a", state(running))
    assert causes(caught.value) == [("status.containerStatuses[0].state", "Forbidden")]


def test_status_writes_leave_spec_and_owners_alone(cluster: Any, make_pod: Any) -> None:
    owner = {"apiVersion": "v1", "kind": "X", "name": "o", "uid": "u"}
    cluster.create("pods", make_pod(meta={"ownerReferences": [owner]}))

    def edit(pod: Json) -> None:
        pod["spec"]["nodeName"] = "n1"
        pod["metadata"]["ownerReferences"] = []
        pod["metadata"]["labels"] = {"from": "status"}
        pod["status"]["observedGeneration"] = 1

    pod = cluster.change_status("pods", "a", edit)
    assert "nodeName" not in pod["spec"]
    assert pod["metadata"]["ownerReferences"] == [owner]
    assert pod["metadata"]["labels"] == {"from": "status"}
    pod = cluster.change_status("pods", "a", lambda pod: pod["status"].pop("observedGeneration"))
    assert pod["status"]["observedGeneration"] == 1


def test_one_pod_ip_is_also_the_list(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod(nodeName="n1"))
    pod = cluster.change_status("pods", "a", lambda pod: pod["status"].update(podIP="10.0.0.1"))
    assert pod["status"]["podIPs"] == [{"ip": "10.0.0.1"}]


@pytest.mark.parametrize(
    ("spec", "phase", "options", "grace_s"),
    [
        ({"nodeName": "n"}, "Running", {}, 30),
        ({"nodeName": "n"}, "Running", {"gracePeriodSeconds": 5}, 5),
        ({"nodeName": "n"}, "Running", {"gracePeriodSeconds": -1}, 1),
    ],
)
def test_an_assigned_pod_gets_its_grace_period(
    cluster: Any, make_pod: Any, spec: Json, phase: str, options: Json, grace_s: int
) -> None:
    cluster.create("pods", make_pod(**spec))
    cluster.change_status("pods", "a", lambda pod: pod["status"].update(phase=phase))
    cluster.delete("pods", "a", options)
    assert cluster.get("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == grace_s


@pytest.mark.parametrize(("spec", "phase"), [({}, "Pending"), ({"nodeName": "n"}, "Succeeded"), ({}, "Failed")])
def test_unassigned_and_finished_pods_go_at_once(cluster: Any, make_pod: Any, spec: Json, phase: str) -> None:
    cluster.create("pods", make_pod(**spec))
    cluster.change_status("pods", "a", lambda pod: pod["status"].update(phase=phase))
    cluster.delete("pods", "a")
    assert cluster.get("pods", "a") is None


def resize(cluster: Any, edit: Callable[[Json], None]) -> Json:
    kind = cluster.registry.kind("pods")
    old = cluster.registry.stored(kind, "ns", "a")
    obj = old.fresh()
    edit(obj)
    ctx = cluster.registry.context("update", kind, "ns", "a")
    ctx.subresource = "resize"
    stored = updating.update(cluster.registry, ctx, kind, old, obj, subresource=kind.subresources["resize"])
    resized: Json = stored.obj
    return resized


def test_a_resize_takes_resources_and_nothing_else(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod(nodeName="n", container={"resources": {"requests": {"cpu": "1"}}}))

    def edit(pod: Json) -> None:
        pod["spec"]["containers"][0].update(image="other", resources={"requests": {"cpu": "2"}})
        pod["spec"]["schedulerName"] = "other"

    pod = resize(cluster, edit)
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    assert pod["spec"]["containers"][0]["image"] == "registry.k8s.io/pause:3.10"
    assert (pod["spec"]["schedulerName"], pod["metadata"]["generation"]) == ("default-scheduler", 2)


def test_a_resize_that_may_change_nothing_is_still_an_update(cluster: Any, make_pod: Any) -> None:
    """What was sent is owned though it is dropped, so there is a new resourceVersion; the generation stays."""
    before = cluster.create("pods", make_pod(container={"resources": {"requests": {"cpu": "1"}}}))

    def edit(pod: Json) -> None:
        pod["spec"]["containers"][0]["image"] = "other"
        pod["metadata"]["labels"] = {"new": "label"}

    after = resize(cluster, edit)
    assert {**after, "metadata": {}} == {**before, "metadata": {}}
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert "labels" not in after["metadata"]
    assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert resize(cluster, lambda pod: None)["metadata"] == after["metadata"]


def test_a_resize_of_the_whole_pod_changes_its_resources(cluster: Any, make_pod: Any, causes: Any) -> None:
    cluster.create("pods", make_pod(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}))
    pod = resize(cluster, lambda pod: pod["spec"]["resources"]["requests"].update(cpu="1"))
    assert (pod["spec"]["resources"]["requests"]["cpu"], pod["metadata"]["generation"]) == ("1", 2)
    with pytest.raises(ApiError) as caught:
        resize(cluster, lambda pod: pod["spec"].pop("resources"))
    assert ("spec.resources", "Forbidden") in causes(caught.value)


def test_a_resize_keeps_number_and_order_of_containers(cluster: Any, make_pod: Any, causes: Any) -> None:
    cluster.create("pods", make_pod())
    for edit, field in (
        (lambda pod: pod["spec"]["containers"][0].update(name="d"), "spec.containers[0].name"),
        (lambda pod: pod["spec"]["containers"].append({"name": "d", "image": "x"}), "spec.containers"),
    ):
        with pytest.raises(ApiError) as caught:
            resize(cluster, edit)
        assert (field, "Forbidden") in causes(caught.value)


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({}, "spec.containers[0].resources.requests"),
        ({"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}, "spec"),
    ],
)
def test_a_resize_removes_nothing_and_adds_no_devices(
    cluster: Any, make_pod: Any, causes: Any, resources: Json, field: str
) -> None:
    cluster.create("pods", make_pod(container={"resources": {"requests": {"cpu": "1"}}}))
    with pytest.raises(ApiError) as caught:
        resize(cluster, lambda pod: pod["spec"]["containers"][0].update(resources=resources))
    assert (field, "Forbidden") in causes(caught.value)


def test_ephemeral_containers_are_added_and_stay(cluster: Any, make_pod: Any, causes: Any) -> None:
    cluster.create("pods", make_pod())
    kind = cluster.registry.kind("pods")
    ctx = cluster.registry.context("update", kind, "ns", "a")
    ctx.subresource = "ephemeralcontainers"
    view = kind.subresources["ephemeralcontainers"]

    def write(containers: list[Json]) -> Json:
        old = cluster.registry.stored(kind, "ns", "a")
        obj = old.fresh()
        obj["spec"]["ephemeralContainers"] = containers
        obj["metadata"]["labels"] = {"not": "taken"}
        changed: Json = updating.update(cluster.registry, ctx, kind, old, obj, subresource=view).obj
        return changed

    pod = write([{"name": "dbg", "image": "busybox"}])
    assert pod["spec"]["ephemeralContainers"][0]["imagePullPolicy"] == "Always"
    assert "labels" not in pod["metadata"]
    with pytest.raises(ApiError) as caught:
        write([])
    assert causes(caught.value) == [("spec.ephemeralContainers", "Forbidden")]
