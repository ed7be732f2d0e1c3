"""Clusters from documents, in the long and the short form."""

from __future__ import annotations

import pytest

from lab.jobs.clusters import POLLUX, mixed, parse_cluster
from shared.errors import ConfigError


def test_the_short_form_is_nodes_of_one_kind():
    assert parse_cluster({"nodes": 16, "gpus_per_node": 4}, "c.yaml").nodes == POLLUX.nodes
    assert (POLLUX.gpus, POLLUX.nodes[0].name) == (64, "node-00")


def test_kinds_of_nodes_have_types_and_speeds():
    kinds = [{"count": 2, "gpus": 4, "gpu_type": "t4"}, {"gpus": 8, "gpu_type": "a100", "speed": 3.5, "name": "big"}]
    cluster = parse_cluster({"nodes": kinds}, "c.yaml")
    assert [(node.name, node.gpus, node.gpu_type) for node in cluster.nodes] == [
        ("t4-0-0", 4, "t4"),
        ("t4-0-1", 4, "t4"),
        ("big", 8, "a100"),
    ]
    assert cluster.gpu_types == {"a100": 3.5}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(None, "Expected `object`", id="empty"),
        pytest.param({"nodes": 4}, "gpus_per_node is missing", id="no GPUs"),
        pytest.param({"nodes": []}, "1 to 10000 nodes are needed", id="no nodes"),
        pytest.param({"nodes": [{"gpus": 0}]}, r"nodes\[0\]: 1 nodes of 0 GPUs", id="no GPUs on it"),
        pytest.param({"nodes": [{"gpus": 4, "gpu": 1}]}, "unknown field `gpu`", id="unknown field"),
        pytest.param({"nodes": [{"gpus": 4, "speed": -1}]}, "speed: -1.0; give a number above 0", id="speed"),
        pytest.param({"nodes": [{"gpus": 4, "name": "a"}] * 2}, "names must differ", id="twice"),
        pytest.param({"nodes": [{"gpus": 4}], "gpus_per_node": 4}, "leave it out", id="both forms"),
    ],
)
def test_what_is_no_cluster_is_named(document, words):
    with pytest.raises(ConfigError, match=words):
        parse_cluster(document, "c.yaml")


def test_the_mixed_cluster_has_64_gpus_of_three_types():
    nodes = mixed().nodes
    assert sum(node.gpus for node in nodes) == 64
    assert {kind: sum(node.gpu_type == kind for node in nodes) for kind in ("t4", "v100", "p100")} == {
        "t4": 6, "v100": 2, "p100": 3,
    }  # fmt: skip
