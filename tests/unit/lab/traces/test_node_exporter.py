"""Whose a series is, and how its samples fall onto the capture's steps."""

from __future__ import annotations

import pytest

from lab.traces.node_exporter import node_of, on_grid, query

NODES = {"n1": ("10.0.0.1", "host-1"), "n2": ("10.0.0.2", "fd00::2")}


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"instance": "elsewhere:9100", "node": "n1"}, "n1"),
        ({"instance": "10.0.0.2:9100"}, "n2"),
        ({"instance": "[fd00::2]:9100"}, "n2"),
        ({"instance": "n1"}, "n1"),
        ({"instance": "pod-ip:9100"}, "n2"),
        ({"instance": "10.0.0.9:9100", "node": "n9"}, ""),
        ({}, ""),
    ],
)
def test_a_series_belongs_to_the_node_that_its_labels_name(labels: dict[str, str], node: str) -> None:
    assert node_of(labels, nodes=NODES, host_names={"pod-ip:9100": "n2"}) == node


def test_samples_fall_on_steps_and_gaps_stay_open() -> None:
    samples = [(100.0, 1.0), (130.2, 3.0), (145.0, float("nan")), (900.0, 5.0), (70.0, 5.0), (160.0, -1.0)]
    assert on_grid(samples, start_s=100, step_s=15, steps=5) == [1.0, None, 3.0, None, None]


def test_a_rate_looks_back_over_several_scrapes() -> None:
    assert "[60s]" in query("cpu", 15)
    assert "[240s]" in query("network", 60)
    assert "$w" not in query("disk", 60)
