"""What a mesh decides, a snapshot of it decides again, with names and without."""

from __future__ import annotations

import copy
import gzip
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from lab.cli.replay import replay as command
from lab.mesh.replayed import Changes, DecidingPolicy, Replayed, deciding, replay
from lab.mesh.world import Agents, MeshWorld
from services.cli.snapshot.reading import document
from shared.errors import ConfigError
from shared.kube import pseudonyms
from shared.kube.objects import KubeNode, KubePod
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.cluster_events import ObjectChanged
from shared.policy.registry import make_policy, ref_of
from shared.policy.weights import shipped_bytes
from shared.wire.snapshot import Snapshot, decode_snapshot, encode_snapshot
from tests.builders import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
AT = "2026-11-29T05:00:00.000+00:00"
Json = dict[str, Any]


def nodes() -> list[Json]:
    """Unlike nodes in three zones, some for a team of its own."""
    found = []
    for number in range(9):
        labels = {
            ZONE: f"paris-{number % 3}",
            "acme.example/team": ("crimson", "azure")[number % 2],
            "rack": str(number),
        }
        made = make_node(f"machine-{8 - number}").allocatable(
            cpu=f"{4000 + 377 * number}m", memory=f"{8000 + 1100 * (number * 5 % 9)}Mi", pods="20"
        )
        made = made.label(**{"kubernetes.io/hostname": f"machine-{8 - number}"}, **labels)
        if number == 4:
            made = made.taint("acme.example/secret", "NoSchedule", "project-x")
        made.json["metadata"]["uid"] = f"{number:08x}"
        found.append(made.json)
    return found


def pod(number: int, rng: Random) -> Json:
    """Pods with selectors, affinity, spread and tolerations, all by names of users' own."""
    kind = rng.randrange(6)
    made = make_pod(f"shop-{number}").cpu(f"{250 * (1 + kind)}m").memory(f"{256 * (1 + kind * 3 % 5)}Mi")
    made = made.set(labels={"app": f"shop-{kind}", "acme.example/tier": "gold"})
    made.json["metadata"]["annotations"] = {"example.com/token": "secret-of-acme"}
    spec = made.json["spec"]
    spec["schedulerName"] = "conclave"
    selector = {"matchLabels": {"app": f"shop-{kind}"}}
    if kind == 1:
        spec["nodeSelector"] = {"acme.example/team": "blue"}
    if kind == 2:
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        spec["topologySpreadConstraints"] = [spread]
    if kind == 3:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        spec["affinity"] = {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "podAffinityTerm": term}]
            }
        }
    if kind == 4:
        spec["tolerations"] = [{"key": "acme.example/secret", "operator": "Equal", "value": "project-x"}]
        term = {"key": "rack", "operator": "Gt", "values": ["3"]}
        wanted = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}
    made.json["metadata"]["uid"] = f"{number:016x}"
    made.json["spec"]["priority"] = 100 * (kind == 5)
    return made.json


class Scene:
    """A mesh that has placed some pods, and what it places next."""

    def __init__(self, policy: str, *, seed: int = 7, before: int = 24, after: int = 16, agents: str = "1") -> None:
        rng = Random(seed)
        self.nodes = nodes()
        self.pods = [pod(number, rng) for number in range(before + after)]
        self.budget = {
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "shop-1"}}},
        }
        models = [node_from_api(_node(one)) for one in self.nodes]
        self.world = MeshWorld(
            models,
            Agents.parse(agents),
            lambda: make_policy(policy),
            ref_of(policy),
            seed=3,
            first=[ObjectChanged("namespaces", "default", {"kubernetes.io/metadata.name": "default"})],
        )
        for raw in self.pods[:before]:
            self.world.add([pod_from_api(_pod(raw))])
            self.world.rest()
        for raw in self.pods[:before]:
            raw["spec"]["nodeName"] = self.world.node_of(raw["metadata"]["uid"])
            if not raw["spec"]["nodeName"]:
                del raw["spec"]["nodeName"]
        recent = self.world.core.state.recent
        self.decisions = [
            {
                "time": AT,
                "namespace": one.namespace,
                "name": one.name,
                "uid": one.uid,
                "node": one.node,
                "policy": f"{policy}@1",
                "considered": list(msgspec.to_builtins(one.considered)),
            }
            for one in reversed(recent.newest(len(recent)))
        ]

    def snapshot(self, *, hashed: bool = True, **mesh: Any) -> tuple[Snapshot, dict[str, str]]:
        """As ``conclave snapshot`` writes and reads it back."""
        objects = copy.deepcopy({"nodes": self.nodes, "pods": self.pods, "pdbs": [self.budget]})
        facts = {
            "settings": {"seed": 3}, "agents": [{"node": ""}], "policy": "kube-default",
            "decisions": copy.deepcopy(self.decisions), "queue": [], "measured": [], "drained": [], **mesh,
        }  # fmt: skip
        head, names = document(objects, facts, [], hashed=hashed, at=AT, kubernetes="v1.36.2")
        self.file = encode_snapshot(head)
        return decode_snapshot(self.file, "file"), names


def _node(raw: Json) -> KubeNode:
    return msgspec.convert(raw, KubeNode)


def _pod(raw: Json) -> KubePod:
    return msgspec.convert(raw, KubePod)


def _by(policy: str) -> DecidingPolicy:
    return DecidingPolicy(lambda: make_policy(policy), ref_of(policy))


def _placed(found: Replayed, names: dict[str, str]) -> dict[str, str]:
    """By their own names; "" for no node."""
    own = {hidden: name for name, hidden in names.items()}
    places = {**found.placed, **dict.fromkeys(found.waiting, "")}
    return {own.get(pod.partition("/")[2], pod.partition("/")[2]): own.get(node, node) for pod, node in places.items()}


@pytest.mark.parametrize("policy", ["kube-default", "marl-dqn", "ee", "lb"])
def test_a_snapshot_decides_alike_with_names_and_without(policy: str) -> None:
    scene = Scene(policy)
    hidden, names = scene.snapshot()
    kept, _ = scene.snapshot(hashed=False)
    found = _placed(replay(hidden, _by(policy)), names)
    assert found == _placed(replay(kept, _by(policy)), {})
    assert sum(bool(node) for node in found.values()) >= 10


@pytest.mark.parametrize("policy", ["kube-default", "marl-dqn", "frag", "ee", "lb"])
def test_the_last_decisions_come_out_again_as_they_were_recorded(policy: str) -> None:
    snapshot, _ = Scene(policy, after=0).snapshot(
        hashed=policy != "frag"
    )  # which orders equals by their names' checksums
    found = replay(snapshot, _by(policy), again=20)
    assert len(found.compared) == 20
    assert all(one.same or one.tied for one in found.compared), found.compared
    assert sum(one.same for one in found.compared) >= 5


def test_no_name_of_a_user_is_in_the_file() -> None:
    scene = Scene("kube-default", before=8, after=4)
    _, names = scene.snapshot()
    text = gzip.decompress(scene.file).decode()
    for word in ("machine", "shop", "paris", "acme", "gold", "crimson", "azure", "project", "secret"):
        assert word not in text, word
    assert {"machine-3", "shop-0", "paris-1", "acme.example/team", "project-x"} <= names.keys()
    assert '"rack"' not in text
    assert "topology.kubernetes.io/zone" in text


def test_pseudonyms_that_lose_the_names_order_decide_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off: rules break ties by name, and a policy that ranks equal nodes sees another first."""
    scene = Scene("kube-default")
    kept, _ = scene.snapshot(hashed=False)
    monkeypatch.setattr(pseudonyms, "in_order", lambda texts: sorted(texts, reverse=True))
    turned, names = scene.snapshot()
    assert _placed(replay(turned, _by("kube-default")), names) != _placed(replay(kept, _by("kube-default")), {})


def test_a_decision_that_another_policy_would_make_otherwise_is_told() -> None:
    scene = Scene("kube-default")
    snapshot, _ = scene.snapshot()
    found = replay(snapshot, _by("most-allocated"), again=20)
    assert not all(one.same or one.tied for one in found.compared)


def test_what_if_answers_come_from_the_same_cores() -> None:
    scene = Scene("kube-default", after=1)
    big = scene.pods[-1]
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6900m"
    big["spec"] = {name: big["spec"][name] for name in ("containers", "schedulerName")}
    snapshot, names = scene.snapshot()
    pod_name, node = f"{'default'}/{names['shop-24']}", names["machine-0"]
    waits = replay(snapshot, _by("kube-default"))
    assert "Insufficient cpu" in waits.waiting[pod_name]
    added = replay(snapshot, _by("kube-default"), changes=Changes(added=[(node, 1)]))
    assert added.placed == {pod_name: f"{node}-like-1"}
    first = replay(snapshot, _by("kube-default"), changes=Changes(priorities={pod_name: 10_000}))
    assert first.placed[pod_name]
    assert first.evicted


def test_a_cordoned_node_takes_nobody_and_a_removed_ones_pods_wait_again() -> None:
    scene = Scene("kube-default", after=8)
    for raw in scene.pods:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "r", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
    snapshot, names = scene.snapshot()
    node = next(iter(replay(snapshot, _by("kube-default")).placed.values()))
    own = next(name for name, hidden in names.items() if hidden == node)
    assert node not in replay(snapshot, _by("kube-default"), changes=Changes(cordoned=[node])).placed.values()
    stood = sum(raw["spec"].get("nodeName") == own for raw in scene.pods)
    waited = sum("nodeName" not in raw["spec"] for raw in scene.pods)
    gone = replay(snapshot, _by("kube-default"), changes=Changes(removed=[node]))
    assert stood
    assert len(gone.placed) + len(gone.waiting) == waited + stood
    assert node not in gone.placed.values()


def test_a_change_of_what_is_not_there_is_one_line_that_names_it() -> None:
    snapshot, _ = Scene("kube-default", before=2, after=1).snapshot()
    with pytest.raises(ConfigError, match="--cordon: the snapshot has no node machine-3; its nodes are n00"):
        replay(snapshot, _by("kube-default"), changes=Changes(cordoned=["machine-3"]))
    with pytest.raises(ConfigError, match="--priority: the snapshot has no pod a/b"):
        replay(snapshot, _by("kube-default"), changes=Changes(priorities={"a/b": 1}))


def test_weights_of_another_digest_are_not_taken_for_the_snapshots_policy() -> None:
    ref = {"name": "ee", "version": 3, "sha256": "0" * 64}
    snapshot, _ = Scene("kube-default", before=2, after=1).snapshot(pointer={"active": ref, "number": 4})
    with pytest.raises(
        ConfigError, match=r"the snapshot's policy is ee@3 \(000000000000\), whose weights are not in it"
    ):
        deciding(snapshot, "", None)


def test_settings_that_this_version_does_not_know_are_refused_in_one_line() -> None:
    snapshot, _ = Scene("kube-default", before=2, after=1).snapshot(settings={"plugins": ["gone"]})
    with pytest.raises(ConfigError, match="plugins: 'gone' is not installed here"):
        replay(snapshot, _by("kube-default"))


def test_several_agents_and_a_drained_node_are_replayed_as_they_were() -> None:
    scene = Scene("kube-default", agents="3")
    snapshot, names = scene.snapshot(agents=[{"node": ""}] * 3, drained=["machine-1"])
    found = replay(snapshot, _by("kube-default"))
    assert found.placed
    assert names["machine-1"] not in found.placed.values()


def test_pods_of_the_snapshot_that_stand_are_counted() -> None:
    scene = Scene("kube-default")
    snapshot, _ = scene.snapshot(hashed=False)
    found = replay(snapshot, _by("kube-default"))
    assert set(found.placed) | set(found.waiting) == {
        f"default/{raw['metadata']['name']}" for raw in scene.pods if "nodeName" not in raw["spec"]
    }


def test_what_a_canary_decided_is_counted_and_not_compared() -> None:
    scene = Scene("kube-default", before=8, after=0)
    for one in scene.decisions[:3]:
        one["policy"] = "lb@1"
    pointer = {
        "active": {"name": "kube-default", "version": 1}, "candidate": {"name": "lb", "version": 1}, "number": 4,
        "stage": "canary", "percent": 40, "reason": "payroll got slow", "by": "ann@acme.corp",
    }  # fmt: skip
    snapshot, _ = scene.snapshot(pointer=pointer)
    found = replay(snapshot, _by("kube-default"), again=8)
    assert (found.of_others, len(found.compared)) == (3, len(scene.decisions) - 3)
    assert not {"payroll", "ann@acme"} & set(gzip.decompress(scene.file).decode().replace('"', " ").split())
    assert "payroll" not in gzip.decompress(scene.file).decode()


def test_decisions_about_pods_that_are_gone_are_counted() -> None:
    scene = Scene("kube-default", before=8, after=0)
    gone = {one["uid"] for one in scene.decisions[:3]}
    scene.pods = [raw for raw in scene.pods if raw["metadata"]["uid"] not in gone]
    snapshot, _ = scene.snapshot()
    found = replay(snapshot, _by("kube-default"), again=8)
    assert (found.gone, len(found.compared)) == (3, len(scene.decisions) - 3)


def test_where_hidden_names_decide_ties_it_is_said() -> None:
    scene = Scene("best-fit", before=2, after=0)
    for hashed in (True, False):
        snapshot, _ = scene.snapshot(hashed=hashed)
        told = replay(snapshot, _by("best-fit"), again=2).told
        assert any("take the snapshot with --names" in line for line in told) is hashed
    snapshot, _ = scene.snapshot(agents=[{"node": ""}] * 3)
    assert any("which of several agents" in line for line in replay(snapshot, _by("lb")).told)


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"dispatch": "nonsense"}, "dispatch"), ({"batch_units": "x"}, "batch_units"), ({"batch_units": 0}, "batch_units"),
     ({"workload_speed": -5}, "workload_speed")],
)  # fmt: skip
def test_settings_of_another_kind_are_one_line(settings: Json, why: str) -> None:
    snapshot, _ = Scene("kube-default", before=1, after=0).snapshot(settings=settings)
    with pytest.raises(ConfigError, match=why):
        replay(snapshot, _by("kube-default"))


def test_a_setting_that_does_not_decide_is_not_taken_from_a_file() -> None:
    snapshot, _ = Scene("kube-default", before=1, after=0).snapshot()
    assert snapshot.mesh is not None
    snapshot.mesh.settings["power_curves"] = "/nowhere"
    assert not replay(snapshot, _by("kube-default")).waiting


def test_changes_that_contradict_each_other_are_refused_and_the_same_twice_is_once() -> None:
    snapshot, names = Scene("kube-default", before=2, after=1).snapshot()
    node = names["machine-3"]
    with pytest.raises(ConfigError, match=f"--cordon, --uncordon: both name {node}"):
        replay(snapshot, _by("kube-default"), changes=Changes(cordoned=[node], uncordoned=[node]))
    assert replay(snapshot, _by("kube-default"), changes=Changes(removed=[node, node])).placed


def test_weights_are_of_the_policy_that_decides() -> None:
    snapshot, _ = Scene("kube-default", before=1, after=0).snapshot()
    data = shipped_bytes("ee")
    with pytest.raises(ConfigError, match="--weights: are of ee, not of lb"):
        deciding(snapshot, "lb", data)
    with pytest.raises(ConfigError, match="--weights: the snapshot's policy kube-default has none; say --policy ee"):
        deciding(snapshot, "", data)


def test_the_pages_example_is_what_the_commands_say(tmp_path: Path) -> None:
    scene = Scene("kube-default", after=1)
    big = scene.pods[-1]
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6900m"
    big["spec"] = {name: big["spec"][name] for name in ("containers", "schedulerName")}
    big["metadata"]["name"] = "report-7"
    _, names = scene.snapshot()
    file, page = tmp_path / "shop.snap", (Path(__file__).parents[4] / "docs/snapshot.md").read_text()
    file.write_bytes(scene.file)
    assert f"9 nodes, 25 pods, {len(names)} names replaced" in page
    assert f'"report-7": "{names["report-7"]}"' in page
    for flags in (f"--explain default/{names['report-7']}", "--again 20", f"--add {names['machine-0']}=2"):
        assert f"$ conclave replay shop.snap {flags}\n" in page
        told = CliRunner().invoke(command, [str(file), *flags.split()])
        assert told.exception is None
        shown = page.partition(f"shop.snap {flags}\n")[2].partition("\n$ ")[0].partition("\n```")[0].splitlines()
        assert set(shown) - {"..."} <= set(told.output.splitlines())


def test_a_change_beside_explain_is_refused_for_it_would_be_ignored(tmp_path: Path) -> None:
    scene = Scene("kube-default", before=1, after=0)
    scene.snapshot()
    file = tmp_path / "shop.snap"
    file.write_bytes(scene.file)
    told = CliRunner().invoke(command, [str(file), "--explain", "a/b", "--cordon", "nosuch", "--add", "zzz=9999"])
    assert str(told.exception) == "--cordon, --add: --explain tells of the file as it is; leave one of them out"
