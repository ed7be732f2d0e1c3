"""The file with which a twin begins."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from shared.errors import ConfigError
from twin.__main__ import cluster_of
from twin.bootstrap import make_registry
from twin.cluster_file import CLASSES, SLICES, plain_cluster, populate, read_cluster
from twin.registry.registry import TwinRegistry

FILE = """
nodes:
  - count: 2
    name: gpu-{i}
    cpu: "8"
    labels: {zone: "z{i}"}
    resources: {example.com/fpga: "2"}
    devices:
      - {driver: gpu.example.com, count: 8, attributes: {index: "{i}"}}
  - {name: plain}
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: team}}
  - {apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: one, namespace: team},
     spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}}}
"""


@pytest.fixture
def registry() -> TwinRegistry:
    return make_registry(clock=time.time, rng=Random(1))


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_nodes_come_by_the_hundred_with_a_class_for_each_driver(registry: TwinRegistry, tmp_path: Path) -> None:
    populate(registry, read_cluster(write(tmp_path / "c.yaml", FILE)))
    nodes = {one["metadata"]["name"]: one for one in registry.list("nodes")}
    assert sorted(nodes) == ["gpu-0", "gpu-1", "plain"]
    assert nodes["gpu-1"]["metadata"]["labels"]["zone"] == "z1"
    assert nodes["gpu-1"]["status"]["allocatable"]["example.com/fpga"] == "2"
    assert [one["metadata"]["name"] for one in registry.list(CLASSES)] == ["gpu.example.com"]
    assert registry.get("resourceclaimtemplates.resource.k8s.io", "team", "one") is not None
    assert not list(registry.list(SLICES))  # those are the drivers' own business


def test_a_cluster_of_like_nodes_needs_no_file(registry: TwinRegistry) -> None:
    populate(registry, plain_cluster(3, 0))
    assert len(list(registry.list("nodes"))) == 3
    assert not list(registry.list(CLASSES))
    with pytest.raises(ConfigError, match=r"--devices\[0\]\.count: 2000 devices"):
        plain_cluster(1, 2000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: {", "is no YAML"),
        ("nodes: 3", r"Expected `array`, got `int` - at `\$\.nodes`"),
        ("node: []", "unknown field `node`"),
        ("nodes: [{count: 2, name: a}]", r"nodes\[0\]\.name: a would be there 2 times; write \{i\} into it"),
        ("nodes: [{count: -1}]", r"nodes\[0\]\.count: -1 is below 0"),
        ("nodes: [{count: 20001}]", r"nodes\[0\]\.count: 20001 is below 0, or more than 20000"),
        ("nodes: [{devices: [{driver: d, count: 1, failed: [4]}]}]", r"nodes\[0\]\.devices\[0\]\.failed: there is no"),
        ("nodes: [{name: A}]", 'Node "A" is invalid: metadata.name'),
        ("nodes: [{cpu: many}]", "quantities must match"),
        ("nodes: [{devices: [{driver: D_d, count: 1}]}]", "DeviceClass.resource.k8s.io .* is invalid"),
        ("nodes: [{devices: [{driver: d, count: 1, attributes: {a-b: 1}}]}]", "a valid C identifier"),
        ("objects: [{apiVersion: v1, kind: Nothing}]", r"objects\[0\]: no kind Nothing in apiVersion v1"),
        ("objects: [{apiVersion: v1, kind: Namespace, metadata: {name: A}}]", 'Namespace "A" is invalid'),
    ],
)
def test_a_bad_file_gets_one_line(registry: TwinRegistry, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        populate(registry, read_cluster(write(tmp_path / "c.yaml", text)))
    assert str(caught.value).startswith("--cluster")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "nodes", "devices", "simulate", "why"),
    [
        (None, 5, None, False, "--nodes needs --simulate"),
        (Path("c.yaml"), None, None, False, "--cluster needs --simulate"),
        (None, None, 8, True, "--devices needs --nodes"),
        (Path("c.yaml"), 5, None, True, "--cluster and --nodes: the file says how many"),
        (Path("/nowhere/c.yaml"), None, None, True, "--cluster: cannot read /nowhere/c.yaml: No such file"),
    ],
)
def test_flags_that_do_not_go_together_are_named(
    path: Path | None, nodes: int | None, devices: int | None, simulate: bool, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        cluster_of(path, nodes, devices, simulate=simulate)


def test_without_flags_there_is_nothing() -> None:
    assert cluster_of(None, None, None, simulate=False).nodes[0].count == 0
