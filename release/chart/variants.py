"""The chart's switches, which components of k8s/ each one brings, and what kustomize makes of a choice of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import yaml

Json = dict[str, Any]
Choice = dict[str, str]
"""A value for each switch; "" and "on" of those that are on or off."""

ROOT = Path(__file__).parents[2]
NAMESPACE = "conclave-system"
SWITCHES: dict[str, tuple[str, ...]] = {
    "agents.kind": ("Deployment", "DaemonSet"),
    "etcd.mode": ("single", "internal", "external"),
    "etcd.users": ("", "on"),
    "certManager.enabled": ("", "on"),
    "secrets.create": ("", "on"),
    "mutualTLS.enabled": ("", "on"),
    "sensors.enabled": ("", "on"),
    "sensors.host": ("", "on"),
    "jobs.enabled": ("", "on"),
    "rebalancer.enabled": ("", "on"),
    "autoscaler.enabled": ("", "on"),
    "learner.enabled": ("", "on"),
    "lending.enabled": ("", "on"),
    "podGroups.install": ("", "on"),
    "secondShard.enabled": ("", "on"),
    "highAvailability.enabled": ("", "on"),
    "monitoring.enabled": ("", "on"),
    "profiles": ("", "on"),
    "openshift.enabled": ("", "on"),
}
LEAST: Choice = {path: values[0] for path, values in SWITCHES.items()}
RANDOM = 40
"""Variants that are drawn beside those that differ from the least and from the most by one switch."""
EXTERNAL = "https://etcd.example.com:2379"
"""Stands for a person's endpoints."""
HASHED = re.compile(r"\b(conclave-(?:settings|profiles|make-peer-secret))-[0-9a-z]{10}\b")


def components(choice: Mapping[str, str]) -> list[str]:
    """What an overlay would list, in the order in which components want to stand."""
    agents = "agents-daemonset" if choice["agents.kind"] == "DaemonSet" else "agents-deployment"
    ordered = [
        ("binder-shard", choice["secondShard.enabled"]),
        (agents, "on"),
        ("sensors", choice["sensors.enabled"]),
        ("sensors-host", choice["sensors.host"]),
        ("lending", choice["lending.enabled"]),
        ("autoscaler", choice["autoscaler.enabled"]),
        ("jobs", choice["jobs.enabled"]),
        ("rebalancer", choice["rebalancer.enabled"]),
        ("learner", choice["learner.enabled"]),
        ("plugins-pod-groups", choice["podGroups.install"]),
        (f"etcd-{choice['etcd.mode']}", "on"),
        ("certs-cert-manager", choice["certManager.enabled"]),
        ("peer-secret", choice["secrets.create"]),
        ("etcd-roles", choice["etcd.users"]),
        ("peer-mtls", choice["mutualTLS.enabled"]),
        ("high-availability", choice["highAvailability.enabled"]),
        ("profiles", choice["profiles"]),
        ("monitoring", choice["monitoring.enabled"]),
        ("monitoring-mtls", choice["monitoring.enabled"] and choice["mutualTLS.enabled"]),
        ("openshift", choice["openshift.enabled"]),
    ]
    return [name for name, wanted in ordered if wanted]


def goes_together(choice: Mapping[str, str]) -> bool:
    """Whether the schema lets this through: what a switch rests on is there."""
    users = choice["etcd.mode"] == "internal" or not choice["etcd.users"]
    host = choice["sensors.enabled"] or not choice["sensors.host"]
    return bool(users and host and not (choice["openshift.enabled"] and choice["sensors.host"]))


def sampled(seed: int = 1) -> list[Choice]:
    """The variants that the chart is made of: the least and the most, those that differ by one switch, and others."""
    rng = Random(seed)
    most = {path: values[-1] for path, values in SWITCHES.items()}
    corners = [
        LEAST,
        *({**most, "etcd.mode": mode, "agents.kind": agents, "etcd.users": "on" if mode == "internal" else "",
           "openshift.enabled": shift, "sensors.host": "" if shift else "on"}
          for mode in SWITCHES["etcd.mode"] for agents in SWITCHES["agents.kind"] for shift in ("", "on")),
    ]  # fmt: skip
    near = [{**corner, path: value} for corner in corners[:5] for path, values in SWITCHES.items() for value in values]
    drawn = [{path: rng.choice(values) for path, values in SWITCHES.items()} for _ in range(4 * RANDOM)]
    found: list[Choice] = []
    for one in (*corners, *near, *[choice for choice in drawn if goes_together(choice)][:RANDOM]):
        if goes_together(one) and one not in found:
            found.append(one)
    return found


def unhashed(text: str) -> str:
    """ConfigMaps without the hash that kustomize ends their names with: the chart restarts pods by an annotation."""
    return HASHED.sub(r"\1", text)


def rendered(choices: list[Choice]) -> list[list[Json]]:
    """The objects of each choice, by ``kubectl kustomize``."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise SystemExit("kubectl is not on PATH; the chart is made by its kustomize")
    with tempfile.TemporaryDirectory(prefix="conclave-chart-") as folder:
        tree = Path(folder) / "k8s"
        shutil.copytree(ROOT / "k8s", tree, ignore=shutil.ignore_patterns("certs", "chart"))

        def one(numbered: tuple[int, Choice]) -> list[Json]:
            number, choice = numbered
            mine = tree / "overlays" / f"chart-{number}"
            mine.mkdir()
            kustomization: Json = {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "namespace": NAMESPACE,
                "resources": ["../../base"],
                "components": [f"../../components/{name}" for name in components(choice)],
            }
            if choice["etcd.mode"] == "external":
                endpoints = {
                    "name": "conclave-settings",
                    "behavior": "merge",
                    "literals": [f"CONCLAVE_ETCD={EXTERNAL}"],
                }
                kustomization["configMapGenerator"] = [endpoints]
            (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
            output = subprocess.run([str(kubectl), "kustomize", str(mine)], check=True, capture_output=True, text=True)
            return list(yaml.load_all(unhashed(output.stdout), Loader=_LOADER))

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, enumerate(choices)))


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
