"""Where a person's value takes the place of what kustomize made: images, replicas, resources, settings, names.

Each rule answers for the value at a path of one object (``merging.Parameter``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from release.chart.merging import END, Parameter, Path
from release.chart.variants import EXTERNAL, NAMESPACE

Json = dict[str, Any]
LONG = 30
"""Lines of a string from which on it is a file of the chart's own."""
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet"}
GUARDS = {
    "NetworkPolicy": ".Values.networkPolicies.enabled",
    "PodDisruptionBudget": ".Values.podDisruptionBudgets.enabled",
    "CustomResourceDefinition": ".Values.definitions.install",
}
"""What switches every object of a kind off."""
IMAGE = re.compile(r"conclave-([a-z]+):.+")


def braces(text: str) -> str:
    """A string of an object as a template's text: its own braces are kept, and it lies in the release's namespace."""
    return text.replace("{{", '{{ "{{" }}').replace(NAMESPACE, "{{ .Release.Namespace }}")


def service_of(name: str) -> str:
    """The service that a workload runs: the binders of a second shard are binders."""
    return name.removeprefix("conclave-").removesuffix("-1")


def reads_settings(document: Json) -> bool:
    """Whether a change of settings or profiles counts for a workload from its next start on: etcd is not restarted."""
    return '"conclave-settings"' in json.dumps(document["spec"]["template"]["spec"])  # whole, or a key of it


def parameters_of(document: Json) -> Parameter:
    """The rules for one object."""
    kind, name = document["kind"], document["metadata"]["name"]

    def rule(path: Path, value: Any) -> list[str] | None:
        found = _pods(kind, name, path, value) if kind in {*WORKLOADS, "Job"} else None
        if path == ("spec", "template", "metadata", END) and kind in WORKLOADS and reads_settings(document):
            read = '{{ include (print $.Template.BasePath "/settings.yaml") . | sha256sum }}'
            found = ["annotations:", f"  checksum/settings: {read}"]
        if found is None and kind == "ConfigMap":
            found = _settings(name, path, value)
        return found if found is not None else _others(document, path, value)

    return rule


def _pods(kind: str, name: str, path: Path, value: Any) -> list[str] | None:
    match path:
        case (*_, "image") if IMAGE.fullmatch(str(value)):
            return [f"image: {_image(str(value))}"]
        case (*_, "image"):
            return ['image: "{{ .Values.etcd.image }}"']
        case ("spec", "replicas") if name != "conclave-etcd":
            return [f"replicas: {{{{ .Values.replicas.{service_of(name)} | default {value} }}}}"]
        case ("spec", "template", "spec", "containers", _, "resources"):
            return _or_own("resources", f"resources.{service_of(name)}", value) if kind in WORKLOADS else None
        case ("spec", "template", "spec", part) if part == END:
            return _present("image.pullSecrets", "imagePullSecrets: {{ toJson .Values.image.pullSecrets }}")
        case (*_, "storage"):
            return [f"storage: {{{{ .Values.etcd.storage | default {json.dumps(value)} | toJson }}}}"]
        case ("spec", "volumeClaimTemplates", _, "spec", part) if part == END:
            return _present("etcd.storageClassName", "storageClassName: {{ toJson .Values.etcd.storageClassName }}")
        case ("metadata", "name") if kind == "Job":  # what a Job runs cannot be changed
            return [f'name: "{name}-{{{{ .Release.Revision }}}}"']
        case (*_, "args", _) if str(value).startswith("--target-egress="):  # it opens one of the policies
            guard = f"{{{{- if {GUARDS['NetworkPolicy']} }}}}"
            return [guard, f"- {braces(json.dumps(value))}", "{{- end }}"]
    return None


def _image(image: str) -> str:
    (service,) = IMAGE.findall(image)
    digest = f".Values.image.digests.{service}"
    tag = ".Values.image.tag | default .Chart.AppVersion"
    end = f"{{{{ if {digest} }}}}@{{{{ {digest} }}}}{{{{ else }}}}:{{{{ {tag} }}}}{{{{ end }}}}"
    return f'"{{{{ .Values.image.registry }}}}conclave-{service}{end}"'


def _settings(name: str, path: Path, value: Any) -> list[str] | None:
    match path:
        case ("data", part) if part == END and name == "conclave-settings":
            return ["{{- range $key, $value := .Values.settings }}", "{{ $key }}: {{ toJson $value }}", "{{- end }}"]
        case ("data", key) if name == "conclave-settings":
            shown = _setting(key, value)
            return [f'{{{{- if not (hasKey .Values.settings "{key}") }}}}', f"{key}: {shown}", "{{- end }}"]
        case ("data", "profiles.yaml"):
            return ['profiles.yaml: {{ dict "profiles" .Values.profiles | toYaml | toJson }}']
        case ("data", key) if isinstance(value, str) and value.count("\n") > LONG:
            return [f'{key}: {{{{ .Files.Get "files/{key}" | toJson }}}}']
    return None


def _setting(key: str, value: str) -> str:
    if key.endswith("_SCHEDULER_NAME"):
        return "{{ toJson .Values.schedulerName }}"
    if value == EXTERNAL:
        return '{{ join "," .Values.etcd.endpoints | toJson }}'
    return braces(json.dumps(value))


def _others(document: Json, path: Path, value: Any) -> list[str] | None:
    match document["kind"], path:
        case "ClusterRole", (*_, "resourceNames") if value == ["conclave.conclave"]:
            return ["resourceNames:", '- "conclave.{{ .Values.schedulerName }}"']
        case "ClusterRole", (*_, "resourceNames") if "conclave.web" in value:
            entry = ["{{- range .Values.profiles }}", '- "conclave.{{ .schedulerName }}"', "{{- end }}"]
            return ["resourceNames:", *entry]
        case "CustomResourceDefinition", ("metadata", "annotations", part) if part == END:
            return [_KEEP]
        case "CustomResourceDefinition", ("metadata", part) if part == END:
            return None if "annotations" in document["metadata"] else ["annotations:", f"  {_KEEP}"]
    return None


_KEEP = "helm.sh/resource-policy: keep"
"""Who removes the chart keeps what people made of these kinds."""


def _or_own(key: str, setting: str, value: Any) -> list[str]:
    own = f"{key}: {{{{ toJson .Values.{setting} }}}}"
    return [f"{{{{- if .Values.{setting} }}}}", own, "{{- else }}", f"{key}: {json.dumps(value)}", "{{- end }}"]


def _present(setting: str, line: str) -> list[str]:
    return [f"{{{{- if .Values.{setting} }}}}", line, "{{- end }}"]


def long_files(documents: Sequence[Json]) -> dict[str, str]:
    """The strings that are files of the chart, by name."""
    return {
        key: value
        for one in documents
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] not in ("conclave-settings", "conclave-profiles")
        for key, value in one["data"].items()
        if value.count("\n") > LONG
    }
