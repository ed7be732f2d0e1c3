"""Service graphs from files: what is taken, in which order, and which one line refuses the rest."""

from __future__ import annotations

import pytest

from lab.worlds.services.topology import default_topology, parse_topology, pod_class_of
from shared.errors import ConfigError

GOOD = """
name: two
nodes: [{name: n, cpu: "4", memory: 8Gi}]
entries: {web: 1}
services:
  db: {throughput: 50, replicas: {minimum: 1, maximum: 4}, requests: {cpu: 500m, memory: 1Gi}}
  web: {throughput: 100, replicas: {minimum: 1, maximum: 2}, requests: {cpu: 250m}, calls: {db: 2}}
"""


def test_karmas_chain_is_the_default():
    chain = default_topology()
    assert chain.order == ("a", "b", "c", "d")
    assert [chain.services[name].throughput for name in chain.order] == [100, 80, 150, 300]
    assert [chain.bounds(name).maximum for name in chain.order] == [5, 3, 4, 6]
    asked = [dict(pod_class_of(chain.services[name]).requests) for name in chain.order]
    assert [one["cpu"] for one in asked] == [500, 400, 600, 700]
    assert [one["memory"] >> 20 for one in asked] == [256, 512, 512, 1024]


def test_callers_come_first_and_calls_multiply():
    graph = parse_topology(GOOD)
    assert graph.order == ("web", "db")
    assert graph.visits() == {"web": 1.0, "db": 2.0}
    assert graph.capacity() == 100.0  # four times 50 calls, two for each request


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(
            "calls: {db: 2}", "calls: {mail: 1}", r"services\.web\.calls\.mail: no such service", id="unknown"
        ),
        pytest.param("requests: {cpu: 500m, memory: 1Gi}", "calls: {web: 1}", r"a loop among db, web", id="loop"),
        pytest.param("throughput: 50", "throughput: .nan", r"services\.db\.throughput: nan", id="nan"),
        pytest.param("throughput: 50", "throughput: -5", r"services\.db\.throughput: -5", id="negative"),
        pytest.param("maximum: 4", "maximum: 0", r"services\.db\.replicas\.maximum: 0", id="no replica"),
        pytest.param("minimum: 1, maximum: 4", "minimum: 5, maximum: 4", "5 is above maximum 4; exchange", id="bounds"),
        pytest.param("maximum: 4", "maximum: 4, start: 9", r"replicas\.start: 9 is not within 1 to 4", id="start"),
        pytest.param("cpu: 500m", "cpu: 500x", r"services\.db\.requests\.cpu: '500x' is not a quantity", id="quantity"),
        pytest.param("cpu: 500m", "gpu: 1", r"services\.db\.requests\.gpu: the twin counts cpu and memory", id="gpu"),
        pytest.param("cpu: 500m", "cpu: 40", "no node is that large", id="too large"),
        pytest.param("{web: 1}", "{mail: 1}", r"entries\.mail: no such service", id="entry"),
        pytest.param("throughput: 50", "throughput: fast", r"Expected `float`", id="type"),
        pytest.param("throughput: 50", "speed: 50", r"unknown field `speed`|missing required field", id="field"),
        pytest.param(
            "name: two", "replica_budget: 1", "replica_budget: 1 is below the sum of all minimums, 2", id="budget"
        ),
        pytest.param("name: two", "name: [", "line", id="no yaml"),
        pytest.param("name: two", "name: a\nname: b", "'name' is given twice", id="twice"),
        pytest.param("name: two", "x: &a [1]\ny: *a", "aliases are not read", id="alias"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_the_field(old, new, told):
    assert old in GOOD
    with pytest.raises(ConfigError, match=told) as refused:
        parse_topology(GOOD.replace(old, new, 1), "graph.yaml")
    assert str(refused.value).startswith("graph.yaml")
    assert "\n" not in str(refused.value)
