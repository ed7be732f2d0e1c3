"""A cluster to begin with: nodes by the hundred, with devices, and what stands beside them, from one YAML file.

``nodes`` are written in short (``count: 500``), ``objects`` are any others as the API takes them. Everything goes
through the registry, so a file that a real server would refuse is refused here, by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shared.errors import ConfigError
from twin.model.devices import DEVICES_ANNOTATION, Driver, check_drivers, slice_specs
from twin.model.usage import TWIN_NODE_ANNOTATION
from twin.model.zones import ZONES_ANNOTATION, Zones, check_zones, definition
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError

Json = dict[str, Any]

MOST_NODES = 20_000
CLASSES, SLICES = "deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
PLAIN_DRIVER = "gpu.example.com"


class NodesOfFile(Struct, frozen=True, forbid_unknown_fields=True):
    """``count`` nodes that are alike. A ``{i}`` in the name or a label is the node's number among them."""

    count: int = 1
    name: str = "node-{i}"
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    resources: dict[str, str] = {}
    """Extended resources of a device plugin: ``nvidia.com/gpu: "8"``."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    devices: list[Driver] = []
    zones: Zones | None = None
    """NUMA nodes, among which all of it is dealt."""


class ClusterFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file. For each driver of the nodes there is a DeviceClass of its name, unless ``objects`` has it; where nodes
    have zones, the definition of NodeResourceTopology too."""

    nodes: list[NodesOfFile] = []
    objects: list[Json] = []


def plain_cluster(nodes: int, devices: int) -> ClusterFile:
    """So many nodes, each with so many devices of one driver, or none."""
    capacity = {"memory": "80Gi"}
    attributes = {"model": "H100", "index": "{i}"}
    drivers = [Driver(PLAIN_DRIVER, devices, attributes=dict(attributes), capacity=capacity)] if devices else []
    check_drivers(drivers, "--devices")
    return ClusterFile([NodesOfFile(nodes, devices=drivers)])


def read_cluster(path: Path) -> ClusterFile:
    """The file at ``path``. Raises ``ConfigError`` that names the field."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"--cluster: cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        detail = " ".join(str(error).split())
        raise ConfigError(f"--cluster: {path} is no YAML: {detail}") from None
    try:
        cluster = msgspec.convert(found or {}, ClusterFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--cluster: {path}: {error}; docs/devices.md shows such a file") from None
    total = 0
    for index, nodes in enumerate(cluster.nodes):
        where = f"--cluster: {path}: nodes[{index}]"
        if nodes.count < 0 or (total := total + nodes.count) > MOST_NODES:
            raise ConfigError(f"{where}.count: {nodes.count} is below 0, or more than {MOST_NODES} nodes together")
        if nodes.count > 1 and "{i}" not in nodes.name:
            raise ConfigError(f"{where}.name: {nodes.name} would be there {nodes.count} times; write {{i}} into it")
        check_drivers(nodes.devices, f"{where}.devices")
        if nodes.zones is not None:
            check_zones(nodes.zones, f"{where}.zones")
    return cluster


def populate(registry: TwinRegistry, cluster: ClusterFile) -> None:
    """Create everything. Raises ``ConfigError`` with the server's words."""
    for index, obj in enumerate(cluster.objects):
        _create(registry, _resource(registry, obj, index), obj)
    for kind in dict.fromkeys(nodes.zones.resource for nodes in cluster.nodes if nodes.zones is not None):
        if registry.get(DEFINITIONS, "", kind) is None:
            _create(registry, DEFINITIONS, definition(kind))
    drivers = {driver.driver: driver for nodes in cluster.nodes for driver in nodes.devices}
    for name in drivers:
        if registry.get(CLASSES, "", name) is None:
            selector = {"cel": {"expression": f"device.driver == '{name}'"}}
            _create(registry, CLASSES, {"metadata": {"name": name}, "spec": {"selectors": [selector]}})
    for nodes in cluster.nodes:
        for spec in (one for driver in nodes.devices for one in slice_specs(_numbered(nodes.name, 0), driver, 1)):
            _create(registry, SLICES, {"metadata": {"generateName": "devices-"}, "spec": spec}, dry_run=True)
        for number in range(nodes.count):
            _create(registry, "nodes", node_of(nodes, number))


def node_of(nodes: NodesOfFile, number: int) -> Json:
    """One node, played by the twin's kubelet."""
    capacity = {"cpu": nodes.cpu, "memory": nodes.memory, "pods": str(nodes.pods), **nodes.resources}
    annotations = {TWIN_NODE_ANNOTATION: "true", **nodes.annotations}
    if nodes.devices:
        annotations[DEVICES_ANNOTATION] = msgspec.json.encode(_sparse(nodes.devices)).decode()
    if nodes.zones is not None:
        annotations[ZONES_ANNOTATION] = msgspec.json.encode(nodes.zones).decode()
    name = _numbered(nodes.name, number)
    labels = {key: _numbered(value, number) for key, value in nodes.labels.items()}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **labels},
            "annotations": annotations,
        },
        "status": {"capacity": capacity, "allocatable": dict(capacity)},
    }


def _sparse(drivers: list[Driver]) -> list[Json]:
    """Without what is as it would be anyway."""
    every: list[Json] = msgspec.to_builtins(drivers)
    return [{key: value for key, value in one.items() if value not in ([], {}, False)} for one in every]


def _numbered(text: str, number: int) -> str:
    return text.replace("{i}", str(number))


def _resource(registry: TwinRegistry, obj: Json, index: int) -> str:
    version, kind = obj.get("apiVersion"), obj.get("kind")
    for one in registry.stored_kinds():
        if (one.info.api_version, one.info.kind) == (version, kind):
            return one.resource
    raise ConfigError(f"--cluster: objects[{index}]: no kind {kind} in apiVersion {version}; correct or drop it")


def _create(registry: TwinRegistry, resource: str, obj: Json, *, dry_run: bool = False) -> None:
    obj = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    meta = obj.get("metadata") or {}
    kind = registry.kind(resource)
    namespace = (meta.get("namespace") or "default") if kind.namespaced else ""
    ctx = registry.context("create", kind, namespace, meta.get("name", ""), dry_run=dry_run)
    try:
        registry.create(ctx, resource, namespace, {**obj, "metadata": dict(meta)})
    except ApiError as error:
        raise ConfigError(f"--cluster: {error}") from None
