"""k8s/chart comes to what the overlays come to, is what `make chart` makes, and refuses values that mean nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from release.chart import generate
from release.chart.values import OVERLAYS as PRESETS
from release.chart.variants import unhashed
from tests.manifests.chart_rendering import Rendering
from tests.manifests.rendering import NAMESPACE, OVERLAYS, ROOT, Json, needs_kubectl, rendered

CHART = ROOT / "k8s" / "chart"
ON = {"enabled": True}
EVERYTHING: Json = {
    **PRESETS["prod"], "highAvailability": {"enabled": False}, "secondShard": ON, "autoscaler": ON, "jobs": ON,
    "learner": ON, "podGroups": {"install": True}, "monitoring": ON,
}  # fmt: skip
BUILDS: Mapping[str, Json] = {
    **PRESETS,
    "partition-agents+lending": {**PRESETS["partition-agents"], "lending": ON},
    "daemonset-agents+openshift": {**PRESETS["daemonset-agents"], "secrets": {"create": True}, "openshift": ON},
    "prod+autoscaler+jobs+learner+shard+openshift": {**EVERYTHING, "openshift": ON},
    "prod+rebalancer+monitoring": {
        **PRESETS["prod"],
        "highAvailability": {"enabled": False},
        "rebalancer": ON,
        "monitoring": ON,
    },
    "partition-agents+profiles": {
        **PRESETS["partition-agents"],
        **yaml.safe_load((ROOT / "k8s/components/profiles/profiles.yaml").read_text()),
    },
}
"""Builds of ``rendering.py``, and the values that say the same."""


def merged(defaults: Json, given: Mapping[str, Any]) -> Json:
    """As Helm does it: maps are joined, a null takes its key out, all else is replaced."""
    found = dict(defaults)
    for key, value in given.items():
        there = found.get(key)
        found[key] = merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
        if value is None:
            del found[key]
    return found


@cache
def default_values() -> Json:
    loaded: Json = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def objects(given: Mapping[str, Any], namespace: str = NAMESPACE) -> dict[tuple[str, str], Json]:
    """What `helm template` would print, by kind and name."""
    documents = Rendering(CHART, merged(default_values(), given), namespace).documents()
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents)
    return found


def as_an_overlay(one: Json) -> Json:
    """Without what the chart alone has: Jobs by revision, a sum of the settings, definitions that Helm keeps."""
    one["metadata"]["name"] = (
        one["metadata"]["name"].removesuffix("-1") if one["kind"] == "Job" else one["metadata"]["name"]
    )
    holders = (
        [one["metadata"], one["spec"]["template"]["metadata"]]
        if "template" in one.get("spec", {})
        else [one["metadata"]]
    )
    for metadata in holders:
        kept = {
            key: value
            for key, value in metadata.get("annotations", {}).items()
            if key not in ("checksum/settings", "helm.sh/resource-policy")
        }
        metadata.pop("annotations", None)
        if kept:
            metadata["annotations"] = kept
    if one["metadata"]["name"] == "conclave-profiles":
        one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}
    return one


@needs_kubectl
@pytest.mark.parametrize("build", BUILDS)
def test_the_chart_comes_to_what_the_overlay_comes_to(build: str) -> None:
    ours = [as_an_overlay(one) for one in objects(BUILDS[build]).values()]
    theirs = [as_an_overlay(json.loads(unhashed(json.dumps(one)))) for one in rendered(build)]
    theirs = [one for one in theirs if one["kind"] != "Namespace"]  # Helm makes it or finds it there

    def named(documents: list[Json]) -> dict[str, Json]:
        return {f"{one['kind']} {one['metadata']['name']}": one for one in documents}

    assert named(ours) == named(theirs)


def test_every_overlay_has_its_preset() -> None:
    assert sorted(PRESETS) == OVERLAYS
    for name, values in PRESETS.items():
        assert yaml.safe_load((CHART / "presets" / f"{name}.yaml").read_text()) == values


def test_the_chart_is_what_make_chart_makes() -> None:
    assert json.loads((CHART / generate.DIGESTS).read_text()) == generate.digests(), "say `make chart`"
    assert (CHART / "values.yaml").read_text() == generate.values_yaml()
    assert json.loads((CHART / "values.schema.json").read_text()) == generate.SCHEMA


def test_an_edited_chart_and_a_changed_source_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    before = generate.digests(copy)
    (copy / "templates" / "binder.yaml").write_text("")
    assert generate.digests(copy)["chart"] != before["chart"]
    fewer = [one for one in generate.sources() if one.name != "coordinator.yaml"]
    monkeypatch.setattr(generate, "sources", lambda: fewer)
    assert generate.digests(copy)["sources"] != before["sources"]


def wrong(given: Mapping[str, Any]) -> list[str]:
    """Where Helm would say that a value is wrong."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(merged(default_values(), given)))
    found = [inner for error in errors for inner in (error.context or [error])]
    return sorted({"/".join(str(part) for part in error.absolute_path) for error in found})


@pytest.mark.parametrize("preset", [*BUILDS, "none"])
def test_good_values_are_let_through(preset: str) -> None:
    assert wrong(BUILDS.get(preset, {})) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"replicas": {"binder": "2"}}, "replicas/binder"),
        ({"replicas": {"binder": 0}}, "replicas/binder"),
        ({"jbos": ON}, ""),
        ({"jobs": {"enabled": "yes"}}, "jobs/enabled"),
        ({"etcd": {"mode": "own"}}, "etcd/mode"),
        ({"etcd": {"mode": "external"}}, "etcd/endpoints"),
        ({"etcd": {"mode": "external", "endpoints": ["http://etcd:2379"]}}, "etcd/endpoints/0"),
        ({"etcd": {"endpoints": ["https://etcd:2379"]}}, "etcd/endpoints"),
        ({"etcd": {"users": True}}, "etcd/mode"),
        ({"sensors": {"enabled": False, "host": True}}, "sensors/enabled"),
        ({"sensors": {"host": True}, "openshift": ON}, "sensors/host"),
        ({"image": {"registry": "registry.example.com"}}, "image/registry"),
        ({"image": {"digests": {"agent": "latest"}}}, "image/digests/agent"),
        ({"settings": {"LOG_LEVEL": "info"}}, "settings"),
        ({"settings": {"CONCLAVE_HOLD": 3}}, "settings/CONCLAVE_HOLD"),
        ({"profiles": [{"policy": "ee"}]}, "profiles/0"),
        ({"profiles": [{"schedulerName": "Web"}]}, "profiles/0/schedulerName"),
        ({"profiles": [{"schedulerName": f"p{number}"} for number in range(33)]}, "profiles"),
        ({"profiles": [{"schedulerName": "a", "filters": {"disabled": ["Nope"]}}]}, "profiles/0/filters/disabled/0"),
        ({"profiles": [{"schedulerName": "a", "scores": {"X": 200000}}]}, "profiles/0/scores/X"),
        ({"settings": {"CONCLAVE_JOBS_SCHEDULER_NAME": "gpu"}}, "settings"),
        ({"settings": None}, ""),
        ({"jobs": None}, ""),
        ({"etcd": {"mode": None}}, "etcd"),
        ({"image": {"tag": 'v1"\n        tty: "x'}}, "image/tag"),
        ({"image": {"registry": 'r"/'}}, "image/registry"),
        ({"etcd": {"image": 'e"'}}, "etcd/image"),
        ({"etcd": {"storage": "two"}}, "etcd/storage"),
        ({"resources": {"agent": {"limits": {"memory": "lots"}}}}, "resources/agent/limits/memory"),
        ({"etcd": {"mode": "external", "endpoints": ["https://etcd:12379"]}}, "etcd/endpoints/0"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_name(given: Json, field: str) -> None:
    assert field in wrong(given)


def test_policies_and_budgets_can_be_left_out_whole() -> None:
    found = objects({"networkPolicies": {"enabled": False}, "podDisruptionBudgets": {"enabled": False}})
    assert not {kind for kind, _ in found} & {"NetworkPolicy", "PodDisruptionBudget"}
    (coordinator,) = found["Deployment", "conclave-coordinator"]["spec"]["template"]["spec"]["containers"]
    assert not [one for one in coordinator["args"] if "egress" in one], "it would patch a policy that is not there"
    kinds = {kind for kind, _ in objects({"definitions": {"install": False}})}
    assert kinds & {"CustomResourceDefinition", "NetworkPolicy"} == {"NetworkPolicy"}


def test_names_images_and_sizes_are_a_persons() -> None:
    digest = "sha256:" + "a" * 64
    found = objects(
        {
            "schedulerName": "gpu", "profiles": [{"schedulerName": "web"}, {"schedulerName": "batch"}],
            "image": {"registry": "r.example/x/", "digests": {"binder": digest}, "pullSecrets": [{"name": "r"}]},
            "replicas": {"coordinator": 5}, "resources": {"agent": {"limits": {"memory": "1Gi"}}},
            "settings": {"CONCLAVE_LOG_LEVEL": "warning", "CONCLAVE_HOLD": "1"},
            "etcd": {"storage": "9Gi", "storageClassName": "fast"},
        },
        "elsewhere",
    )  # fmt: skip
    rules = found["ClusterRole", "conclave-coordinator"]["rules"]
    leases = [name for rule in rules if rule["resources"] == ["leases"] for name in rule.get("resourceNames", ())]
    assert leases == ["conclave.gpu", "conclave.web", "conclave.batch"]
    coordinator = found["Deployment", "conclave-coordinator"]["spec"]
    (container,) = coordinator["template"]["spec"]["containers"]
    assert (coordinator["replicas"], container["image"]) == (5, "r.example/x/conclave-coordinator:0.1.0")
    (binder,) = found["Deployment", "conclave-binder"]["spec"]["template"]["spec"]["containers"]
    assert binder["image"] == f"r.example/x/conclave-binder@{digest}"
    assert coordinator["template"]["spec"]["imagePullSecrets"] == [{"name": "r"}]
    (agent,) = found["Deployment", "conclave-agent"]["spec"]["template"]["spec"]["containers"]
    assert agent["resources"] == {"limits": {"memory": "1Gi"}}
    settings = found["ConfigMap", "conclave-settings"]["data"]
    named = {key.removeprefix("CONCLAVE_"): name for key, name in settings.items() if key.endswith("_SCHEDULER_NAME")}
    services = ("COORDINATOR", "BINDER", "JOBS", "REBALANCER")
    assert named == {f"{service}_SCHEDULER_NAME": "gpu" for service in services}
    assert (settings["CONCLAVE_LOG_LEVEL"], settings["CONCLAVE_HOLD"]) == ("warning", "1")
    assert ".elsewhere.svc" in settings["CONCLAVE_ETCD"]
    (claim,) = found["StatefulSet", "conclave-etcd"]["spec"]["volumeClaimTemplates"]
    assert (claim["spec"]["storageClassName"], claim["spec"]["resources"]["requests"]["storage"]) == ("fast", "9Gi")
    assert {one["metadata"].get("namespace", "elsewhere") for one in found.values()} == {"elsewhere"}
    assert NAMESPACE not in json.dumps(list(found.values()))


def test_a_change_of_settings_restarts_the_pods_that_read_them() -> None:
    def sums(given: Json) -> dict[str, str]:
        pods = {
            name: one["spec"]["template"]
            for (kind, name), one in objects(given).items()
            if kind in ("Deployment", "DaemonSet", "StatefulSet")
        }
        told = {name: one["metadata"].get("annotations", {}).get("checksum/settings", "") for name, one in pods.items()}
        reads = {name for name, one in pods.items() if "conclave-settings" in json.dumps(one["spec"])}
        assert {name for name, total in told.items() if total} == reads
        assert pods.keys() - reads >= {"conclave-etcd"}, "a store is not restarted for a log level"
        return {name: total for name, total in told.items() if total}

    before, after = sums(EVERYTHING), sums({**EVERYTHING, "settings": {"CONCLAVE_LOG_LEVEL": "debug"}})
    assert all(before[name] != after[name] for name in before)


def test_another_mode_of_etcd_does_not_start_on_the_data_of_the_one_before() -> None:
    def folder(mode: str) -> str:
        store = objects({"etcd": {"mode": mode}})["StatefulSet", "conclave-etcd"]
        (etcd,) = store["spec"]["template"]["spec"]["containers"]
        (found,) = [one for one in etcd["args"] if one.startswith("--data-dir=")]
        return str(found)

    assert folder("single") != folder("internal")
