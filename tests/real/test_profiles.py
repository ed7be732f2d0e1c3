"""The same profiles given to kube-scheduler and, imported, to a mesh: both go where the imported profile says.

Pods of two schedulers come in turns, one at a time, onto the same nodes. Before each, the nodes are ranked by the
imported profile over the cluster as it is read back: kube-scheduler's choice must be among the best, which says that
the import is right; the mesh's too, which says that its agents go by it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

from services.cli.imports.kube_scheduler import import_config
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.cluster_objects import Workload
from shared.model.terms.labels import selector_of_labels
from shared.runtime.process.profiles_file import parse_profiles
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.profiles import Profiles
from shared.scheduling.state.cluster_state import ClusterState
from tests.real.conftest import RunningPlane, mesh_of, plane_of
from tests.real.plane import missing
from tests.real.scene import SLOT, Scene

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
PODS = 14
"""Of each scheduler."""

CONFIG = Path(__file__).with_name("kube-scheduler.yaml")


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    fields = yaml.safe_load(CONFIG.read_text())
    fields = {name: said for name, said in fields.items() if name in ("profiles", "percentageOfNodesToScore")}
    folder = tmp_path_factory.mktemp("plane")
    config = folder.with_suffix(".yaml")
    config.write_text(yaml.safe_dump(fields))
    with plane_of(folder, "--nodes", "0", "--kube-scheduler", "--scheduler-config", str(config)) as found:
        yield found


@pytest.fixture(scope="module", params=["0", "4"])
def served(
    own_plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Json]:
    """The profiles that a mesh of so many agents serves, under names of its own."""
    made = import_config(yaml.safe_load(CONFIG.read_text())).profiles
    for one in made:
        one["schedulerName"] = f"mesh-{one['schedulerName']}"
    file = tmp_path_factory.mktemp("profiles") / "profiles.yaml"
    file.write_text(yaml.safe_dump({"profiles": made}))
    with mesh_of(own_plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param, "--profiles", str(file)):
        yield {"profiles": made, "agents": request.param}


def best(dump: Json, names: set[str], pod: Json, profiles: Profiles) -> set[str]:
    """The nodes that the pod's profile likes best as the cluster stands."""
    state = ClusterState()
    state.index.weigh_required()
    for node in msgspec.convert(dump["nodes"], list[api.KubeNode]):
        if node.metadata.name in names:
            state.upsert_node(node_from_api(node))
    for service in dump["services"]:
        meta, selector = service["metadata"], selector_of_labels(service["spec"].get("selector") or {})
        state.workloads.add(Workload("v1", "Service", meta["namespace"], meta["name"], selector))
    for standing in msgspec.convert(dump["pods"], list[api.KubePod]):
        if standing.spec.node_name:
            state.observe(pod_from_api(standing))
    waiting = profiles.applied(pod_from_api(msgspec.convert(pod, api.KubePod)))
    feasibility = FeasibilityCache(state.table, profile=UNMEASURED)
    rows = np.flatnonzero(run_filters(state, feasibility, prefilter(state, waiting)).mask)
    totals = np.sum(list(score_nodes(state, waiting, rows).values()), axis=0)
    return {state.table.names[row] for row in rows[totals == totals.max()].tolist()}


def asked(rng: random.Random, scene: Scene) -> Json:
    """Requests, labels, and at times affinity, of a pod."""
    room = {"cpu": f"{rng.randrange(1, 9) * 100}m", "memory": f"{rng.randrange(1, 20) * 100}Mi"}
    if rng.random() < 0.6:
        room[SLOT] = str(rng.randrange(1, 3))
    limits = {SLOT: room[SLOT]} if SLOT in room else {}
    spec: Json = {"containers": [{"name": "c", "image": "x", "resources": {"requests": room, "limits": limits}}]}
    term = {"labelSelector": {"matchLabels": {"app": rng.choice("ab")}}, "topologyKey": ZONE}
    if rng.random() < 0.3:
        preferred = [{"weight": rng.randrange(1, 100), "podAffinityTerm": term}]
        kind = rng.choice(("podAffinity", "podAntiAffinity"))
        spec["affinity"] = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    elif rng.random() < 0.3 and any(pod["metadata"]["labels"] == {"app": "a"} for pod in scene.pods.values()):
        term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return spec


async def test_kube_scheduler_and_the_mesh_go_where_one_profile_says(own_plane: RunningPlane, served: Json) -> None:
    rng, profiles = random.Random(35), Profiles.of(parse_profiles({"profiles": served["profiles"]}, "made"))
    agents = served["agents"]
    async with Scene(own_plane, f"profiles-{agents}") as scene:
        names = set()
        for number in range(7):
            labels = {ZONE: f"z{number % 3}"}
            names.add(await scene.node(f"n{number}", slots=6 + number, labels=labels, unschedulable=number == 6))
        for app in "ab":
            port = [{"port": 80}]
            body = {"metadata": {"name": app}, "spec": {"selector": {"app": app}, "ports": port}}
            await scene.call("POST", f"{scene.path}/services", body)
        went: dict[str, set[str]] = {}
        for number, profile in enumerate(rng.choices(["packed", "apart", "walled"], k=2 * PODS)):
            name, of_mesh = f"p{number}", number % 2 == 1
            scene.scheduler = f"mesh-{profile}" if of_mesh else profile
            before = {
                kind: (await scene.call("GET", f"{path}"))["items"]
                for kind, path in (
                    ("nodes", "/api/v1/nodes"), ("pods", "/api/v1/pods"), ("services", f"{scene.path}/services")
                )
            }  # fmt: skip
            await scene.pod(name, labels={"app": rng.choice("ab")}, **asked(rng, scene))
            await scene.until_bound(name)
            waiting = scene.pods[name]
            waiting = {**waiting, "spec": {**waiting["spec"], "nodeName": "", "schedulerName": f"mesh-{profile}"}}
            allowed = best(before, names, waiting, profiles)
            assert scene.node_of(name) in allowed, (name, scene.scheduler, waiting["spec"])
            went.setdefault(scene.scheduler, set()).add(scene.node_of(name))
        walled = went["walled"] | went["mesh-walled"]
        assert not walled & {f"profiles-{agents}-n2", f"profiles-{agents}-n5"}
