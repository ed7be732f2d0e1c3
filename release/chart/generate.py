"""`python -m release.chart.generate`: write k8s/chart, and what it was made of.

.digests: sha256 of each file of k8s/, of this package, and of the chart; a test holds all three against what is there
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from release.chart.conditions import literals
from release.chart.merging import Merger, bits
from release.chart.parameters import GUARDS, braces, long_files, parameters_of
from release.chart.values import OVERLAYS, SCHEMA, values_yaml
from release.chart.variants import ROOT, SWITCHES, rendered, sampled
from shared.version import CONCLAVE_VERSION

Json = dict[str, Any]
CHART = ROOT / "k8s" / "chart"
DIGESTS = ".digests"
TEMPLATES = {
    "NetworkPolicy": "network-policies", "CustomResourceDefinition": "definitions", "Certificate": "certificates",
    "Issuer": "certificates", "ServiceMonitor": "monitoring", "PrometheusRule": "monitoring",
    "PriorityClass": "priority-classes", "ServiceAccount": "rbac", "ClusterRole": "rbac", "ClusterRoleBinding": "rbac",
    "Role": "rbac", "RoleBinding": "rbac",
}  # fmt: skip
"""The file of each kind; the others' are named after what they belong to."""
NOTES = """Conclave {{ .Chart.AppVersion }} is in namespace {{ .Release.Namespace }}.
Give pods schedulerName: {{ .Values.schedulerName }}.
{{- if eq .Values.etcd.mode "single" }}

etcd has one member, without TLS: for trying things out. For a cluster that matters give presets/prod.yaml
(it wants cert-manager).
{{- end }}
{{- if not .Values.secrets.create }}

Pods wait for the Secrets conclave-peer-token and conclave-admin-token (docs/operations/kubernetes.md).
{{- end }}

kubectl -n {{ .Release.Namespace }} rollout status deployment/conclave-coordinator
"""


def chart() -> dict[str, str]:
    """Every file of the chart, by its path there."""
    choices = sampled()
    variants = rendered(choices)
    asked = literals(SWITCHES, choices)
    within = (1 << len(choices)) - 1
    objects: dict[tuple[str, str], dict[int, Json]] = defaultdict(dict)
    for number, documents in enumerate(variants):
        for one in documents:
            if one["kind"] == "Namespace":  # Helm keeps the release in it, so it is there before
                continue
            objects[one["kind"], one["metadata"]["name"]][number] = one
    templates: dict[str, list[str]] = defaultdict(list)
    for (kind, name), values in sorted(objects.items()):
        merger = Merger(asked, braces, parameters_of(next(iter(values.values()))))
        guards = [GUARDS[kind]] if kind in GUARDS else []
        templates[template_of(kind, name)] += merger.document(values, within, guards)
    assert all(bits(values) for values in objects.values())
    files = {f"templates/{name}.yaml": "\n".join(lines) + "\n" for name, lines in templates.items()}
    every = [one for documents in variants for one in documents]
    files |= {f"files/{name}": text for name, text in long_files(every).items()}
    files |= {f"presets/{name}.yaml": yaml.safe_dump(values, sort_keys=False) for name, values in OVERLAYS.items()}
    files["templates/NOTES.txt"] = NOTES
    files["values.yaml"] = values_yaml()
    files["values.schema.json"] = json.dumps(SCHEMA, indent=2) + "\n"
    files["Chart.yaml"] = yaml.safe_dump(manifest(), sort_keys=False, width=120)
    files[".helmignore"] = f"{DIGESTS}\n"
    return files


def manifest() -> Json:
    """Chart.yaml."""
    return {
        "apiVersion": "v2",
        "name": "conclave",
        "description": "A learned, highly available scheduler for Kubernetes. Made by `make chart`; do not edit.",
        "type": "application",
        "version": CONCLAVE_VERSION,
        "appVersion": CONCLAVE_VERSION,
        "kubeVersion": ">=1.34.0-0",
        "keywords": ["scheduler", "gang-scheduling", "gpu", "reinforcement-learning"],
    }


def template_of(kind: str, name: str) -> str:
    """The file that an object stands in."""
    if kind == "ConfigMap" and name in ("conclave-settings", "conclave-profiles"):
        return "settings"
    if kind == "ConfigMap" and name == "conclave-dashboards":
        return "monitoring"
    return TEMPLATES.get(kind) or {"admin": "coordinator", "jobs-reports": "jobs", "binder-1": "binder"}.get(
        name.removeprefix("conclave-"), name.removeprefix("conclave-")
    )


def sources() -> list[Path]:
    """What the chart is made of: k8s/ but for itself and certificates, this package, the version."""
    tree = [path for path in (ROOT / "k8s").rglob("*") if not {"chart", "certs", "overlays"} & {*path.parts}]
    return sorted([*tree, *Path(__file__).parent.glob("*.py"), ROOT / "shared" / "version.py"])


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """One sha256 of names and contents."""
    total = hashlib.sha256()
    for name, data in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return total.hexdigest()


def digests(folder: Path = CHART) -> dict[str, str]:
    """Of the sources as they are, and of the chart as it is."""
    there = [path for path in folder.rglob("*") if path.is_file() and path.name != DIGESTS]
    return {
        "sources": digest_of((str(one.relative_to(ROOT)), one.read_bytes()) for one in sources() if one.is_file()),
        "chart": digest_of((str(one.relative_to(folder)), one.read_bytes()) for one in there),
    }


def write(files: dict[str, str], folder: Path) -> None:
    """The chart in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / DIGESTS).write_text(json.dumps(digests(folder), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(chart(), CHART)
    sys.stdout.write(f"{CHART.relative_to(ROOT)}: {sum(1 for _ in CHART.rglob('*.yaml'))} files\n")
