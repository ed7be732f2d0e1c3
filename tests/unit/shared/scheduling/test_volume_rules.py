"""Volume rules that the oracle's cases do not pin: each text, code and choice once."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.kube import objects as api
from shared.kube.cluster_objects import ClusterDump
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.whatif import WhatIfOutcome, what_if
from shared.scheduling.filters import volume_limits
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster

Json = dict[str, Any]
LATER = {"metadata": {"name": "later"}, "provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"}
LOCAL = {**LATER, "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
AT_ONCE = {**LATER, "metadata": {"name": "at-once"}, "volumeBindingMode": "Immediate"}


def node(name: str, **labels: str) -> Json:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    labels = {"kubernetes.io/hostname": name, **{key.replace("_", "/"): value for key, value in labels.items()}}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def pod(name: str, *volumes: Json, on: str = "", priority: int = 0, namespace: str = "default") -> Json:
    spec: Json = {"containers": [{"name": "c"}], "volumes": list(volumes), "priority": priority}
    if on:
        spec["nodeName"] = on
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"} if on else {"phase": "Pending"}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": started}


def uses(claim: str) -> Json:
    return {"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}}


def claim(name: str, *, volume: str = "", storage_class: str = "later", size: str = "1Gi", mode: str = "ReadWriteOnce",
          annotations: Json | None = None, **meta: Any) -> Json:  # fmt: skip
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    spec: Json = {
        "accessModes": [mode],
        "resources": {"requests": {"storage": size}},
        "storageClassName": storage_class,
    }
    if volume:
        spec["volumeName"] = volume
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": notes | (annotations or {}), **meta},
        "spec": spec,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, *, on: str = "", storage_class: str = "local", size: str = "1Gi", claimed: str = "",
           handle: str = "", **labels: str) -> Json:  # fmt: skip
    spec: Json = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": storage_class}
    if on:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": on.split(",")}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if claimed:
        spec["claimRef"] = {"namespace": "default", "name": claimed}
    if handle:
        spec["csi"] = {"driver": "csi.x", "volumeHandle": handle}
    labels = {key.replace("_", "/"): value for key, value in labels.items()}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"}}


def ask(incoming: Json, *, nodes: list[Json], **objects: list[Json]) -> WhatIfOutcome:
    objects.setdefault("storageClasses", [LATER, LOCAL, AT_ONCE])
    dump = msgspec.convert({"pod": incoming, "nodes": nodes, **objects}, ClusterDump)
    state = load_cluster(dump)
    return what_if(state, FeasibilityCache(state.table), incoming_pod(dump.pod))


def reasons(outcome: WhatIfOutcome) -> dict[str, tuple[str, str, str, tuple[str, ...]]]:
    return {
        name: (found.stage, found.rejection.plugin, found.rejection.code.value, found.rejection.reasons)
        for name, found in outcome.infeasible.items()
    }


UNRESOLVABLE = "UnschedulableAndUnresolvable"


def test_a_claim_of_one_pod_only_is_refused_while_used_and_preemption_frees_it() -> None:
    claims = [claim("c", volume="pv", mode="ReadWriteOncePod")]
    objects = {"persistentVolumeClaims": claims, "persistentVolumes": [volume("pv", claimed="c")]}
    found = ask(
        pod("new", uses("c"), priority=5), nodes=[node("a"), node("b")], pods=[pod("old", uses("c"), on="a")], **objects
    )
    text = (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod"
    )
    expected = ("Filter", "VolumeRestrictions", "Unschedulable", (text,))
    assert reasons(found) == {"a": expected, "b": expected}
    assert found.preemption is not None
    assert [(c.node_name, [v.name for v in c.victims]) for c in found.preemption.best] == [("a", ["old"])]
    stranger = pod("old", uses("c"), on="a", namespace="other")
    assert ask(pod("new", uses("c")), nodes=[node("a")], pods=[stranger], **objects).feasible == ("a",)


def test_a_disk_is_used_by_one_pod_per_node_unless_all_only_read() -> None:
    def disk(read_only: bool) -> Json:
        return {"name": "d", "gcePersistentDisk": {"pdName": "x", "readOnly": read_only}}

    nodes = [node("a"), node("b")]
    writer = ask(pod("new", disk(False)), nodes=nodes, pods=[pod("old", disk(True), on="a")])
    assert writer.feasible == ("b",)
    assert reasons(writer)["a"] == ("Filter", "VolumeRestrictions", "Unschedulable", ("node(s) had no available disk",))
    assert ask(pod("new", disk(True)), nodes=nodes, pods=[pod("old", disk(True), on="a")]).feasible == ("a", "b")
    ebs = {"name": "d", "awsElasticBlockStore": {"volumeID": "x"}}
    assert ask(pod("new", ebs), nodes=nodes, pods=[pod("old", ebs, on="b")]).feasible == ("a",)

    def rbd(monitor: str) -> Json:
        return {"name": "d", "rbd": {"monitors": [monitor], "image": "i"}}

    assert ask(pod("new", rbd("m")), nodes=nodes, pods=[pod("old", rbd("m"), on="a")]).feasible == ("b",)
    assert ask(pod("new", rbd("m")), nodes=nodes, pods=[pod("old", rbd("n"), on="a")]).feasible == ("a", "b")


def test_a_node_attaches_only_as_many_volumes_as_its_driver_allows() -> None:
    limited = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "csi.x", "allocatable": {"count": 1}}]}}
    objects = {
        "persistentVolumeClaims": [claim("c", volume="pv-c"), claim("d", volume="pv-d"), claim("e")],
        "persistentVolumes": [
            volume("pv-c", storage_class="later", claimed="c", handle="hc"),
            volume("pv-d", storage_class="later", claimed="d", handle="hd"),
        ],
        "csiNodes": [limited],
    }
    nodes, old = [node("a"), node("b")], [pod("old", uses("c"), on="a")]
    full = ask(pod("new", uses("d"), priority=1), nodes=nodes, pods=old, **objects)
    text = "node(s) exceed max volume count"
    assert reasons(full) == {"a": ("Filter", "NodeVolumeLimits", "Unschedulable", (text,))}
    assert ask(pod("new", uses("c")), nodes=nodes, pods=old, **objects).feasible == ("a", "b"), "attached already"
    assert ask(pod("new", uses("e")), nodes=nodes, pods=old, **objects).feasible == ("b",), "to be provisioned"
    alone = ask(pod("new", uses("d"), priority=1), nodes=[node("a")], pods=old, **objects)
    assert alone.preemption is not None
    assert [c.node_name for c in alone.preemption.best] == ["a"]


def test_claims_that_cannot_be_used_reject_the_pod_before_any_node() -> None:
    cases = {
        'persistentvolumeclaim "c" not found': ("VolumeRestrictions", []),
        'persistentvolumeclaim "c" is being deleted': (
            "VolumeBinding", [claim("c", volume="pv", deletionTimestamp="2026-01-01T00:00:00Z")],
        ),
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "pv"': (
            "VolumeBinding", [claim("c", volume="pv") | {"status": {"phase": "Lost"}}],
        ),
        "pod has unbound immediate PersistentVolumeClaims": ("VolumeBinding", [claim("c", storage_class="at-once")]),
        'persistentvolume "pv" not found': ("VolumeZone", [claim("c", volume="pv")]),
    }  # fmt: skip
    for text, (plugin, claims) in cases.items():
        found = ask(pod("new", uses("c")), nodes=[node("a")], persistentVolumeClaims=claims)
        assert reasons(found) == {"a": ("PreFilter", plugin, UNRESOLVABLE, (text,))}
    unknown = ask(pod("new", uses("c")), nodes=[node("a")], persistentVolumeClaims=[claim("c", storage_class="none")])
    assert reasons(unknown)["a"][3] == ("pod has unbound immediate PersistentVolumeClaims",)


def test_an_ephemeral_claim_is_named_after_pod_and_volume_and_must_be_the_pods_own() -> None:
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    waiting = ask(pod("new", scratch), nodes=[node("a")])
    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "new-scratch"'
    assert reasons(waiting)["a"] == ("PreFilter", "VolumeBinding", UNRESOLVABLE, (text,))
    foreign = ask(pod("new", scratch), nodes=[node("a")], persistentVolumeClaims=[claim("new-scratch")])
    assert "was not created for pod" in reasons(foreign)["a"][3][0]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "new", "uid": "u", "controller": True}
    own = claim("new-scratch", ownerReferences=[owner])
    assert ask(pod("new", scratch), nodes=[node("a")], persistentVolumeClaims=[own]).feasible == ("a",)
    gone = claim("new-scratch", volume="pv", ownerReferences=[owner])
    missing = ask(pod("new", scratch), nodes=[node("a")], persistentVolumeClaims=[gone])
    text = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert reasons(missing)["a"] == ("Filter", "VolumeBinding", UNRESOLVABLE, (text,))


def test_a_local_volume_goes_to_one_claim_and_the_smallest_that_suffices_is_taken() -> None:
    claims = [claim("c", storage_class="local", size="1Gi"), claim("d", storage_class="local", size="2Gi")]
    both = pod("new", uses("c"), uses("d"))
    nodes = [node("a"), node("b"), node("c")]
    volumes = [
        volume("a1", on="a", size="2Gi"),
        volume("b1", on="b", size="1Gi"), volume("b2", on="b", size="3Gi"),
        volume("c1", on="c", size="1Gi"), volume("c2", on="c", size="1Gi"),
    ]  # fmt: skip
    found = ask(both, nodes=nodes, persistentVolumeClaims=claims, persistentVolumes=volumes)
    assert found.feasible == ("b",)
    text = "node(s) didn't find available persistent volumes to bind"
    assert reasons(found)["a"] == ("Filter", "VolumeBinding", UNRESOLVABLE, (text,))


def test_a_volume_reserved_for_the_claim_is_the_only_one_it_gets() -> None:
    volumes = [volume("mine", on="b", claimed="c"), volume("other", on="a")]
    asked = pod("new", uses("c"))
    found = ask(
        asked, nodes=[node("a"), node("b")], persistentVolumeClaims=[claim("c", storage_class="local")],
        persistentVolumes=volumes,
    )  # fmt: skip
    assert found.feasible == ("b",)


def test_a_claim_being_provisioned_ties_the_pod_to_the_selected_node() -> None:
    selected = claim("c", annotations={"volume.kubernetes.io/selected-node": "b"})
    found = ask(pod("new", uses("c")), nodes=[node("a"), node("b")], persistentVolumeClaims=[selected])
    assert found.feasible == ("b",)


def test_the_zone_label_of_a_volume_may_be_old_and_name_several_zones() -> None:
    labels = {"failure-domain.beta.kubernetes.io_zone": "x__y"}
    bound = volume("pv", claimed="c")
    bound["metadata"]["labels"] = {key.replace("_zone", "/zone"): value for key, value in labels.items()}
    nodes = [
        node("new", **{"topology.kubernetes.io_zone": "x"}),
        node("old", **{"failure-domain.beta.kubernetes.io_zone": "y"}),
        node("far", **{"topology.kubernetes.io_zone": "z"}),
        node("plain"),
    ]
    found = ask(
        pod("p", uses("c")), nodes=nodes, persistentVolumeClaims=[claim("c", volume="pv")], persistentVolumes=[bound]
    )
    assert found.feasible == ("new", "old", "plain")
    assert reasons(found)["far"] == (
        "Filter", "VolumeZone", UNRESOLVABLE, ("node(s) had no available volume zone",),
    )  # fmt: skip


def test_a_pod_that_a_dry_run_adds_counts_against_the_limit_of_its_node() -> None:
    limited = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "csi.x", "allocatable": {"count": 1}}]}}
    names = ("mine", "other")
    dump: Json = {
        "pod": pod("mine", uses("mine")),
        "nodes": [node("a"), node("b")],
        "csiNodes": [limited],
        "persistentVolumes": [volume(name, handle=name, storage_class="later") for name in names],
        "persistentVolumeClaims": [claim(name, volume=name) for name in names],
    }
    given = msgspec.convert(dump, ClusterDump)
    state = load_cluster(given)
    other = incoming_pod(msgspec.convert(pod("other", uses("other")), api.KubePod))
    rule = volume_limits.prepare(state, incoming_pod(given.pod))
    assert rule is not None
    row = state.table.row_of["a"]
    assert rule.mask().all()
    rule.adjust(other, row, 1)
    assert rule.mask().tolist() == [at != row for at in range(state.table.rows)]
    rule.adjust(other, row, -1)
    assert rule.mask().all()
