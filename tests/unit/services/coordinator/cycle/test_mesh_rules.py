"""Rules that span nodes, in a whole mesh without I/O: two agents' rankers, the coordinator's guidance, the merge."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.coordinator.core.instructions import PatchCondition
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.assign import GuidedSeats
from services.coordinator.cycle.constraints import Constraints
from shared.kube.cluster_objects import ClusterDump
from shared.kube.pods.convert import node_from_api
from shared.kube.pods.convert_relations import node_images
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.unit import Unit
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster
from shared.scheduling.state.releases import Release
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

SHARED = Path(os.environ.get("CONCLAVE_SHARED", Path(__file__).parents[5].parent / "shared"))
CASES = SHARED / "oracle" / "cases.jsonl"
EVERY = 6
"""Of the corpus every so manieth case: the whole of it is judged in ``tests/contract/test_oracle.py``."""

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def zoned(nodes: int, *, zones: int = 3, agents: int = 2, settings: CoreSettings | None = None) -> Scene:
    scene = Scene(agents=agents, settings=settings)
    for number in range(nodes):
        node = make_node(f"n{number}").label(**{HOSTNAME: f"n{number}", ZONE: f"z{number % zones}"})
        scene.add_node(node.node())
    scene.begin()
    scene.run()
    return scene


def apart(name: str, key: str = HOSTNAME, app: str = "web") -> PodBuilder:
    pod = make_pod(name).cpu("100m").set(labels={"app": app})
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    pod.json["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


def spread(name: str, key: str = ZONE, skew: int = 1) -> PodBuilder:
    pod = make_pod(name).cpu("100m").set(labels={"app": "web"})
    constraint = {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    pod.json["spec"]["topologySpreadConstraints"] = [constraint]
    return pod


def per_zone(scene: Scene) -> list[int]:
    counts = [0, 0, 0]
    for _, node in scene.bindings:
        counts[int(node[1:]) % 3] += 1
    return counts


def test_pods_that_keep_apart_never_share_a_node_however_many_are_in_flight() -> None:
    scene = zoned(10)
    for number in range(10):
        scene.add_pod(apart(f"p{number}").pod())
    scene.run(batch=12)
    assert len({node for _, node in scene.bindings}) == len(scene.bindings) == 10
    assert not check_bound_once(scene)


def test_answers_taken_by_the_rules_of_the_offer_alone_break_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of judging each unit anew."""
    take = GuidedSeats.take

    def by_the_offer(seats: GuidedSeats, unit: Unit, only: str = "") -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Constraints, "judge", lambda self, pod: seats._offered)
            return take(seats, unit, only)

    monkeypatch.setattr(GuidedSeats, "take", by_the_offer)
    scene = zoned(10)
    for number in range(20):
        scene.add_pod(apart(f"p{number}").pod())
    scene.run(batch=30)
    assert len({node for _, node in scene.bindings}) < len(scene.bindings)


def test_a_pod_without_demands_is_kept_away_from_those_that_demand_it() -> None:
    scene = zoned(3)
    for number in range(2):
        scene.add_pod(apart(f"p{number}").pod())
    for number in range(6):
        scene.add_pod(make_pod(f"plain{number}").cpu("100m").set(labels={"app": "web"}).pod())
    scene.run(batch=20)
    placed = dict(scene.bindings)
    kept = {placed["uid-p0"], placed["uid-p1"]}
    assert len(placed) == 8
    assert all(placed[f"uid-plain{number}"] not in kept for number in range(6))


def test_a_node_that_is_being_deleted_takes_nobody_and_is_named_as_the_reason() -> None:
    scene = Scene()
    scene.add_node(msgspec.structs.replace(make_node("n0").label(**{HOSTNAME: "n0"}).node(), deleting=True))
    scene.begin()
    scene.add_pod(apart("a").pod())
    scene.run(until_s=30)
    assert scene.core.place_of("uid-a") == ["unschedulable"]
    assert scene.of(PatchCondition)[-1].message.startswith("0/1 nodes are available: 1 node(s) were unschedulable.")


def test_one_too_many_waits_with_kube_schedulers_words_and_goes_when_another_leaves() -> None:
    scene = zoned(3)
    for number in range(4):
        scene.add_pod(apart(f"p{number}").pod())
    scene.run(batch=9, until_s=3)
    assert len(scene.bindings) == 3
    (patch,) = scene.of(PatchCondition)
    assert patch.message.startswith("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.")
    scene.delete_pod(scene.bindings[0][0])
    scene.run(until_s=15)
    assert len(scene.bindings) == 4
    assert not check_places(scene)


def test_hard_spread_holds_at_every_moment_and_every_pod_is_placed() -> None:
    scene = zoned(9)
    for number in range(30):
        scene.add_pod(spread(f"p{number}").pod())
    seen = 0
    for _ in range(10_000):
        if not scene.step(7):
            break
        if len(scene.bindings) != seen:
            seen = len(scene.bindings)
            counts = per_zone(scene)
            assert max(counts) - min(counts) <= 1
    assert per_zone(scene) == [10, 10, 10]
    assert not scene.of(PatchCondition), "who waits for others on their way is not told that it does not fit"


def test_required_affinity_brings_pods_together() -> None:
    scene = zoned(9)
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
    scene.add_pod(make_pod("db").set(labels={"app": "db"}).cpu("1").pod())
    scene.run()
    for number in range(8):
        pod = make_pod(f"p{number}").cpu("1")
        pod.json["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        scene.add_pod(pod.pod())
    scene.run(batch=9)
    zone = int(dict(scene.bindings)["uid-db"][1:]) % 3
    assert [count > 0 for count in per_zone(scene)] == [number == zone for number in range(3)]
    assert len(scene.bindings) == 9
    assert not check_overcommit(scene)


def test_a_claim_that_does_not_exist_parks_the_pod_and_its_coming_wakes_it() -> None:
    scene = zoned(3)
    pod = make_pod("a").cpu("1")
    pod.json["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    scene.add_pod(pod.pod())
    scene.add_pod(make_pod("b").cpu("1").pod())
    scene.run(until_s=5)
    assert [uid for uid, _ in scene.bindings] == ["uid-b"]
    (patch,) = scene.of(PatchCondition)
    assert patch.message.startswith('0/3 nodes are available: persistentvolumeclaim "data" not found.')
    from shared.model.cluster_objects import PersistentVolume, VolumeClaim

    volume = PersistentVolume("pv", claim=("default/data", ""))
    scene.inbox.append(ObjectChanged("persistentvolumes", "pv", volume))
    claim = VolumeClaim("default/data", volume_name="pv", bind_completed=True)
    scene.inbox.append(ObjectChanged("persistentvolumeclaims", "default/data", claim))
    scene.run(until_s=15)
    assert [uid for uid, _ in scene.bindings] == ["uid-b", "uid-a"]


def test_pods_of_a_service_prefer_other_nodes_by_default() -> None:
    from shared.model.cluster_objects import Workload
    from shared.model.terms.labels import selector_of_labels

    scene = zoned(6)
    service = Workload("v1", "Service", "default", "web", selector_of_labels({"app": "web"}))
    scene.inbox.append(ObjectChanged("services", "default/web", service))
    for number in range(6):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").set(labels={"app": "web"}).pod())
    scene.run(batch=9)
    assert len({node for _, node in scene.bindings}) == 6


# --- the oracle through the mesh --------------------------------------------------------------------------------


def sample() -> list[dict[str, Any]]:
    if not CASES.exists():
        return []
    with CASES.open() as lines:
        cases = [json.loads(line) for line in lines]
    ask = [case for case in cases if case["expect"].get("best") and not case["expect"].get("preEnqueue")]
    return ask[::EVERY]


def mesh_choice(case: dict[str, Any]) -> str | None:
    """Where two agents and the coordinator put the pod."""
    dump = msgspec.convert(case["input"], ClusterDump)
    known = load_cluster(dump, Release.V1_36)
    scene = Scene(agents=2, seed=1)
    cluster = scene.core.state.cluster
    cluster.release = known.release
    cluster.namespaces, cluster.storage, cluster.workloads = known.namespaces, known.storage, known.workloads
    for raw in dump.nodes or ():
        scene.add_node(node_from_api(raw))
        cluster.images.set(raw.metadata.name, node_images(raw))
    for standing in _standing(dump):
        scene.add_pod(standing)
    scene.begin()
    scene.run()
    pod = msgspec.structs.replace(incoming_pod(dump.pod), scheduler_name="conclave", uid="incoming")
    scene.add_pod(pod)
    scene.run()
    return {p.uid: p.node for plan in scene.plans for p in plan.placements}.get("incoming")


def _standing(dump: ClusterDump) -> list[Pod]:
    from shared.kube.pods.convert import pod_from_api

    pods = []
    for raw in dump.pods or ():
        pod = pod_from_api(raw)
        pods.append(msgspec.structs.replace(pod, uid=pod.uid or pod.key, scheduler_name="other"))
    return pods


@pytest.mark.skipif(not CASES.exists(), reason=f"the oracle's cases are not at {CASES}")
def test_the_mesh_chooses_a_node_that_kube_scheduler_calls_best() -> None:
    cases = sample()
    assert len(cases) > 100
    for case in cases:
        assert mesh_choice(case) in case["expect"]["best"], case["id"]
