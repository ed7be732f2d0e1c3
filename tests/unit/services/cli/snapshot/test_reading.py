"""What a snapshot holds of a cluster that shows only half of itself, and how names are hidden in it."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from typing import Any, TypeVar

import msgspec
import pytest

from services.cli.explain.offline import answer, answer_from
from services.cli.snapshot.cluster import SnapshotCluster
from services.cli.snapshot.reading import document, read_objects
from shared.errors import ConfigError, KubeRejected
from shared.kube.cluster_objects import ObjectQuestion
from shared.kube.nodes.node_topology import NodeResourceTopology, topology_from_api
from shared.kube.pseudonyms import Pseudonyms
from shared.kube.reservations import reserve_pod_from_api
from shared.kube.resources import ObjectList, Resource
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.wire.packed import unpacked
from shared.wire.snapshot import FIELDS, KINDS, SnapshotInput, decode_snapshot, encode_snapshot
from tests.builders import make_node, make_pod

T = TypeVar("T")
Json = dict[str, Any]
AT = "2026-11-29T05:00:00.000+00:00"


class HalfShown:
    """An API server with these objects, that refuses some kinds."""

    def __init__(self, objects: dict[str, list[Json]], refused: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self._objects, self._refused = objects, refused

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:
        if resource.plural in self._refused:
            raise KubeRejected(f'{resource.plural} is forbidden: User "ann" cannot list it', status=403)
        found = [msgspec.convert(one, resource.type) for one in self._objects.get(resource.plural, ())]
        return ObjectList(tuple(found), "7")

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:
        raise AssertionError(f"nobody asks for {resource} {namespace}/{name} within {timeout_s} s")


def _cluster() -> dict[str, list[Json]]:
    pod = make_pod("web-0").cpu("1").json
    pod["spec"]["volumes"] = [{"name": "data", "ephemeral": {}}]
    pod["metadata"]["labels"] = {"app": "web", "pod-template-hash": "5d9f7"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f7", "uid": "r", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "node-a said no"}]
    claim = {"metadata": {"name": "web-0-data", "namespace": "default"}, "spec": {"storageClassName": "fast"}}
    return {
        "nodes": [make_node("node-a").allocatable(cpu="4", memory="8Gi", pods="9").json],
        "pods": [pod],
        "persistentvolumeclaims": [claim],
        "storageclasses": [{"metadata": {"name": "fast"}, "provisioner": "csi.example.com"}],
        "poddisruptionbudgets": [{"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {}}}],
    }


def _read(refused: set[str]) -> tuple[Json, list[str]]:
    return asyncio.run(read_objects(HalfShown(_cluster(), refused)))


def test_a_cluster_that_refuses_half_its_kinds_says_which_are_missing() -> None:
    refused = {"persistentvolumes", "storageclasses", "replicasets", "poddisruptionbudgets", "jobs", "queues"}
    objects, missing = _read(refused)
    assert {line.split(" ", 1)[0] for line in missing} == refused
    head, _ = document(objects, None, missing, hashed=True, at=AT, kubernetes="v1.36.2")
    snapshot = decode_snapshot(encode_snapshot(head), "file")
    assert snapshot.missing == missing
    assert sorted(missing)[:2] == ["jobs (403)", "persistentvolumes (403)"]
    assert "ann" not in json.dumps(head)
    (pod,) = list(snapshot.input.pods or ())
    found = asyncio.run(answer_from(SnapshotCluster(snapshot), "default", pod.metadata.name))
    assert {line.split(" ", 1)[0] for line in found["missing"]} >= refused - {"jobs", "queues"}


def test_room_that_reservations_keep_is_in_the_file_and_nothing_that_only_its_maker_needs() -> None:
    container = {"name": "c", "env": [{"name": "TOKEN", "value": "ann"}], "resources": {"requests": {"cpu": "1"}}}
    meta = {"labels": {"team": "ann"}, "annotations": {"ann": "ann"}}
    kept = {
        "metadata": {"name": "big-ann", "namespace": "shop", "uid": "0123abcd", "annotations": {"ann": "x"}},
        "spec": {
            "template": {"metadata": meta, "spec": {"containers": [container]}},
            "owners": [{"controller": {"kind": "Deployment", "name": "ann-web"}}, {"pod": "ann-1"}],
            "nodes": {"names": ["node-a"]},
            "ttlSeconds": 600,
        },
        "status": {"phase": "Available", "node": "node-a", "devices": "0,2"},
    }
    amounts = {**kept, "spec": {"resources": {"cpu": "2"}, "owners": [{"pod": "ann-1"}]}, "status": {}}
    over = {**kept, "status": {"phase": "Expired"}}
    broken = {**kept, "spec": 7}
    there = {**_cluster(), "reservations": [kept, amounts, over, broken]}
    objects, missing = asyncio.run(read_objects(HalfShown(there)))
    assert missing == []
    head, hidden = document(objects, None, missing, hashed=True, at=AT, kubernetes="v1.36.2")
    assert "ann" not in json.dumps(head)
    snapshot = decode_snapshot(encode_snapshot(head), "file")
    first, second, *_ = [reserve_pod_from_api(one) for one in snapshot.input.of(RESERVATION_KIND)]
    assert (first.node_name, first.devices) == (hidden["node-a"], (0, 2))
    assert first.reserves is not None
    assert [one.name for one in first.reserves.owners] == [hidden["ann-web"], ""]
    assert dict(second.pod_class.requests) == {"cpu": 2000}


def test_without_nodes_or_pods_there_is_no_snapshot() -> None:
    with pytest.raises(ConfigError, match="does not list nodes and pods: pods is forbidden"):
        _read({"pods"})


def test_names_that_kubernetes_derives_are_derived_again() -> None:
    objects, _ = _read(set())
    head, names = document(objects, None, [], hashed=True, at=AT, kubernetes="")
    assert names["web-0-data"] == f"{names['web-0']}-{names['data']}"
    assert names["web-5d9f7"] == f"{names['web']}-5d9f7"
    (pod,), (claim,) = head["input"]["pods"], head["input"]["persistentVolumeClaims"]
    assert claim["metadata"]["name"] == names["web-0-data"]
    assert pod["metadata"]["labels"] == {"app": names["web"], "pod-template-hash": "5d9f7"}
    assert '"node-a' not in json.dumps(head)
    assert head["input"]["storageClasses"][0]["provisioner"] == names["csi.example.com"]


def test_a_snapshot_is_a_line_of_explain_batch() -> None:
    objects, _ = _read(set())
    objects["pods"][0]["spec"].pop("volumes")
    head, _ = document(objects, None, [], hashed=True, at=AT, kubernetes="")
    line = unpacked(encode_snapshot(head), "file", writer="", again="")
    found = answer(msgspec.json.decode(line, type=ObjectQuestion))
    assert found == {"id": "snapshot", "bound": [objects["pods"][0]["metadata"]["name"]]}


def test_every_kind_that_is_watched_has_its_place_in_the_file() -> None:
    assert {kind.name for kind in KINDS} == FIELDS.keys()
    empty = SnapshotInput()
    assert all(empty.of(kind) == () for kind in KINDS)


def test_what_a_rule_reads_of_labels_and_devices_stays() -> None:
    node = make_node("n").label(**{
        "kubernetes.io/arch": "arm64", "nvidia.com/gpu.product": "A100", "topology.kubernetes.io/zone": "z",
        "node-role.kubernetes.io/payroll": "", "acme.example/size": "17",
    }).json  # fmt: skip
    volume: Json = {
        "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "z__y"}},
        "spec": {"csi": {"driver": "d.example.com", "volumeHandle": "vol-1"}, "capacity": {"storage": "1Gi"}},
    }
    device = {"name": "gpu-0", "attributes": {"model": {"string": "A100"}}}
    slice_ = {
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "pool": {"name": "n"}, "nodeName": "n", "devices": [device]},
    }
    hidden = Pseudonyms()
    for kind, item in (("nodes", node), ("persistentVolumes", volume), ("resourceSlices", slice_)):
        hidden.hide(kind, item)
    names = hidden.resolve()
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/arch"] == "arm64"
    assert labels["nvidia.com/gpu.product"] == "A100"
    assert labels["topology.kubernetes.io/zone"] == names["z"]
    assert labels[names["acme.example/size"]] == "17"
    assert not any("payroll" in key for key in labels)
    assert volume["metadata"]["labels"]["topology.kubernetes.io/zone"] == f"{names['z']}__{names['y']}"
    assert volume["spec"]["csi"] == {"driver": names["d.example.com"], "volumeHandle": names["vol-1"]}
    spec: Json = slice_["spec"]  # type: ignore[assignment]
    assert (spec["pool"], spec["nodeName"], spec["devices"]) == (
        {"name": names["n"]}, names["n"],
        [{"name": names["gpu-0"], "attributes": {"model": {"string": names["A100"]}}}],
    )  # fmt: skip


def test_how_a_kubelet_lets_pods_on_stays() -> None:
    """The twin's exporter says it twice; NFD's of today by attributes alone."""

    def zone(name: str, *resources: str) -> Json:
        amounts = {"capacity": "4", "allocatable": "4", "available": "2"}
        return {"name": name, "type": "Node", "resources": [{"name": one, **amounts} for one in resources]}

    shown: Json = {
        "metadata": {"name": "node-0"},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"},
        ],
        "zones": [zone("node-0", "cpu", "nvidia.com/gpu"), zone("node-1", "cpu", "memory")],
    }
    node = make_node("node-0").allocatable(**{"cpu": "8", "nvidia.com/gpu": "4"}).json
    hidden = Pseudonyms()
    copied = copy.deepcopy(shown)
    hidden.hide("nodeTopologies", copied)
    hidden.hide("nodes", node)
    names = hidden.resolve()
    read = [topology_from_api(msgspec.convert(one, NodeResourceTopology)) for one in (shown, copied)]
    assert read[1] == dataclasses.replace(read[0], node=names["node-0"])
    assert "nvidia.com/gpu" in node["status"]["allocatable"]


def test_pseudonyms_sort_as_the_names_do() -> None:
    hidden, items = Pseudonyms(), [{"metadata": {"name": name}} for name in ("b-2", "a", "b-10", "c")]
    for item in copy.deepcopy(items):
        hidden.hide("services", item)
    names = hidden.resolve()
    assert sorted(names, key=names.__getitem__) == sorted(names)
