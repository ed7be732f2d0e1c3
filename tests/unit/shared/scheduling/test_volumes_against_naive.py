"""Volume rules against the same rules said plainly for one node and one claim after the other, on random clusters."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from shared.kube.cluster_objects import ClusterDump
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.whatif import what_if
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster

Json = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
CLASSES: dict[str, Json] = {
    "local": {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
    "fast": {"provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"},
    "zonal": {
        "provisioner": "csi.x",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["x"]}]}],
    },
    "now": {"provisioner": "csi.x", "volumeBindingMode": "Immediate"},
}


def some_volumes(rng: random.Random) -> Json:
    nodes = []
    for number in range(rng.randint(1, 5)):
        labels = {HOST: f"n{number}"}
        if rng.random() < 0.8:
            labels[ZONE] = rng.choice("xyz")
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "20"}
        nodes.append({"metadata": {"name": f"n{number}", "labels": labels}, "status": {"allocatable": allocatable}})
    claims, volumes = [], []
    for number in range(rng.randint(1, 3)):
        mode = rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
        meta: Json = {"name": f"c{number}", "namespace": "default", "annotations": {}}
        name = rng.choice(("local", "local", "fast", "zonal", "now", "unknown"))
        spec: Json = {"accessModes": [mode], "resources": {"requests": {"storage": f"{rng.randint(1, 3)}Gi"}}}
        spec["storageClassName"] = name
        if rng.random() < (0.9 if name in ("now", "unknown") else 0.4):
            spec["volumeName"] = f"bound{number}" if rng.random() < 0.9 else "gone"
            if rng.random() < 0.9:
                meta["annotations"] |= BOUND
            volumes.append(some_volume(rng, f"bound{number}", {"namespace": "default", "name": f"c{number}"}))
        elif rng.random() < 0.2:
            meta["annotations"]["volume.kubernetes.io/selected-node"] = f"n{rng.randrange(5)}"
        claims.append({"metadata": meta, "spec": spec})
    for number in range(rng.randint(0, 6)):
        ref = {"namespace": "default", "name": f"c{rng.randrange(3)}"} if rng.random() < 0.15 else None
        volumes.append(some_volume(rng, f"free{number}", ref))
    used = [f"c{rng.randrange(len(claims) + (rng.random() < 0.1))}" for _ in range(rng.randint(1, 2))]
    return {
        "nodes": nodes,
        "persistentVolumes": volumes,
        "persistentVolumeClaims": claims,
        "storageClasses": [{"metadata": {"name": name}, **body} for name, body in CLASSES.items()],
        "pod": some_user("new", sorted(set(used)), ""),
        "pods": [some_user("old", ["c0"], "n0")] if rng.random() < 0.3 else [],
    }


def some_volume(rng: random.Random, name: str, ref: Json | None) -> Json:
    spec: Json = {
        "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"][: rng.randint(1, 2)],
        "capacity": {"storage": f"{rng.randint(1, 3)}Gi"},
        "storageClassName": rng.choice(("local", "local", "fast")),
    }
    if ref is not None:
        spec["claimRef"] = ref
    if rng.random() < 0.7:
        key, values = rng.choice(((HOST, [f"n{i}" for i in range(5)]), (ZONE, list("xyz"))))
        expression = {"key": key, "operator": rng.choice(("In", "In", "NotIn")), "values": rng.sample(values, 2)}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    labels = {ZONE: rng.choice(("x", "y", "x__z"))} if rng.random() < 0.2 else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Available"}}


def some_user(name: str, claims: list[str], node: str) -> Json:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    spec: Json = {"containers": [{"name": "c"}], "volumes": volumes}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": {"phase": "Running" if node else "Pending"},
    }


def gibi(text: str) -> int:
    return int(text.removesuffix("Gi"))


def reaches(volume: Json, node: Json) -> bool:
    for term in volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", []):
        for e in term["matchExpressions"]:
            inside = node["metadata"]["labels"].get(e["key"]) in e["values"]
            if inside != (e["operator"] == "In"):
                return False
    return True


def makeable(claim: Json, node: Json) -> bool:
    name = claim["spec"]["storageClassName"]
    return name == "fast" or (name == "zonal" and node["metadata"]["labels"].get(ZONE) == "x")


def early_verdict(json: Json, claims: list[Json | None]) -> tuple[str, str] | None:
    """(plugin, start of the text) of what rejects the pod whatever the node."""
    for claim, use in zip(claims, json["pod"]["spec"]["volumes"], strict=True):
        if claim is None:
            return "VolumeRestrictions", f'persistentvolumeclaim "{use["name"]}" not found'
    for claim in claims:
        assert claim is not None
        bound = claim["spec"].get("volumeName") and claim["metadata"]["annotations"].keys() & BOUND.keys()
        waits = claim["spec"]["storageClassName"] in ("local", "fast", "zonal") and "volumeName" not in claim["spec"]
        if not bound and not waits:
            return "VolumeBinding", "pod has unbound immediate PersistentVolumeClaims"
    names = {volume["metadata"]["name"] for volume in json["persistentVolumes"]}
    for claim in claims:
        assert claim is not None
        wanted = claim["spec"].get("volumeName")
        if wanted and wanted not in names:
            return "VolumeZone", f'persistentvolume "{wanted}" not found'
    return None


def found_everything(json: Json, waiting: list[Json], node: Json) -> bool:
    """Whether each waiting claim gets a volume on the node: reserved, or the smallest free one, or a new one."""
    taken: set[str] = set()
    for claim in sorted(waiting, key=lambda c: gibi(c["spec"]["resources"]["requests"]["storage"])):
        selected = claim["metadata"]["annotations"].get("volume.kubernetes.io/selected-node")
        if selected is not None:
            if selected != node["metadata"]["name"] or not makeable(claim, node):
                return False
            continue
        name, size = claim["metadata"]["name"], gibi(claim["spec"]["resources"]["requests"]["storage"])
        best: Json | None = None
        for volume in sorted(json["persistentVolumes"], key=lambda v: v["metadata"]["name"]):
            spec, ref = volume["spec"], volume["spec"].get("claimRef")
            if (
                spec["storageClassName"] != claim["spec"]["storageClassName"]
                or gibi(spec["capacity"]["storage"]) < size
            ):
                continue
            if volume["metadata"]["name"] in taken or (ref is not None and ref["name"] != name):
                continue
            if ref is not None:
                best = volume if reaches(volume, node) else None
                break
            fits = reaches(volume, node) and set(claim["spec"]["accessModes"]) <= set(spec["accessModes"])
            if fits and (best is None or gibi(spec["capacity"]["storage"]) < gibi(best["spec"]["capacity"]["storage"])):
                best = volume
        if best is not None:
            taken.add(best["metadata"]["name"])
        elif not makeable(claim, node):
            return False
    return True


def verdict(json: Json, claims: list[Json], node: Json) -> tuple[str, set[str]] | None:
    """(plugin, reasons) for one node, when no claim rejected the pod before."""
    users = {use["name"] for pod in json["pods"] for use in pod["spec"]["volumes"]}
    once = {c["metadata"]["name"] for c in claims if "ReadWriteOncePod" in c["spec"]["accessModes"]}
    if users & once:
        text = (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod"
        )
        return "VolumeRestrictions", {text}
    volumes = {volume["metadata"]["name"]: volume for volume in json["persistentVolumes"]}
    bound = [volumes[c["spec"]["volumeName"]] for c in claims if "volumeName" in c["spec"]]
    waiting = [c for c in claims if "volumeName" not in c["spec"]]
    reasons = set()
    if not all(reaches(volume, node) for volume in bound):
        reasons.add("node(s) didn't match PersistentVolume's node affinity")
    if not found_everything(json, waiting, node):
        reasons.add("node(s) didn't find available persistent volumes to bind")
    if reasons:
        return "VolumeBinding", reasons
    zone = node["metadata"]["labels"].get(ZONE)
    for volume in bound:
        wanted = volume["metadata"]["labels"].get(ZONE)
        if zone is not None and wanted is not None and zone not in wanted.split("__"):
            return "VolumeZone", {"node(s) had no available volume zone"}
    return None


@pytest.mark.parametrize("block", range(3))
def test_verdicts_of_the_volume_rules_are_those_said_plainly(block: int) -> None:
    seen: set[str] = set()
    for seed in range(block, 900, 3):
        json = some_volumes(random.Random(seed))
        dump = msgspec.convert(json, ClusterDump)
        state = load_cluster(dump)
        outcome = what_if(state, FeasibilityCache(state.table), incoming_pod(dump.pod))
        by_name = {claim["metadata"]["name"]: claim for claim in json["persistentVolumeClaims"]}
        asked = [by_name.get(use["name"]) for use in json["pod"]["spec"]["volumes"]]
        early = early_verdict(json, asked)
        claims = [claim for claim in asked if claim is not None]
        for node in json["nodes"]:
            mine = outcome.infeasible.get(node["metadata"]["name"])
            told = None if mine is None else (mine.rejection.plugin, set(mine.rejection.reasons))
            expected = (early[0], {early[1]}) if early is not None else verdict(json, claims, node)
            assert told == expected, (seed, node["metadata"]["name"])
            seen |= expected[1] if expected is not None else {""}
    assert len({text for text in seen if '"' not in text}) == 6, "every reason, and none, has occurred"
