"""Latency comes from annotations of nodes and pods; what is no latency spoils its own object and is named."""

from __future__ import annotations

import pytest

from shared.model.node import UNKNOWN_LATENCY
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod


def node(latency: str):
    builder = make_node("n")
    builder.json["metadata"]["annotations"] = {"conclave.io/latency-ms": latency}
    return builder.node()


@pytest.mark.parametrize(("text", "latency_us"), [("12", 12_000), ("12.5", 12_500), (" 7 ", 7_000), ("0", 1)])
def test_a_node_tells_its_latency_in_milliseconds(text, latency_us):
    assert node(text).latency_us == latency_us
    assert node(text).invalid == ""


def test_a_node_that_tells_none_has_an_unknown_latency():
    assert make_node("n").node().latency_us == UNKNOWN_LATENCY


@pytest.mark.parametrize("text", ["", "fast", "-3", "12ms", "nan", "99999999", "3600001"])
def test_what_is_no_latency_is_named_and_counts_as_unknown(text):
    found = node(text)
    assert found.latency_us == UNKNOWN_LATENCY
    assert "latency-ms" in found.invalid


def test_a_pod_names_soft_and_hard_limits_and_they_make_its_class():
    annotations = {"latencySoftConstraint": "20", "latencyHardConstraint": "30"}
    found = make_pod().cpu("250m").set(annotations=annotations).pod().pod_class
    assert (found.latency_soft_us, found.latency_hard_us) == (20_000, 30_000)
    assert found != make_pod().cpu("250m").pod().pod_class


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"latencySoftConstraint": "soon"}, "latencySoftConstraint"),
        ({"latencyHardConstraint": "-1"}, "latencyHardConstraint"),
        ({"latencySoftConstraint": "31", "latencyHardConstraint": "30"}, "above latencyHardConstraint"),
    ],
)
def test_limits_that_cannot_be_meant_make_the_pod_invalid_by_name(annotations, named):
    assert named in make_pod().set(annotations=annotations).pod().invalid


def test_the_node_table_follows_a_nodes_latency():
    table = NodeTable(1)
    row = table.upsert(node("12"))
    table.upsert(make_node("other").node())  # grows the table
    assert table.latency_us[: table.rows].tolist() == [12_000, UNKNOWN_LATENCY]
    before = table.clock
    table.upsert(node("25"))
    assert table.latency_us[row] == 25_000
    assert table.changed_since(before).tolist() == [row]
    table.remove("n")
    assert table.latency_us[row] == UNKNOWN_LATENCY


def pod(**annotations):
    return make_pod().cpu("250m").set(annotations=annotations).pod()


def test_a_pod_says_whether_it_rather_waits_than_goes_beyond_its_hard_limit():
    limited = {"latencyHardConstraint": "30"}
    assert pod(**limited, **{"conclave.io/latency-limit": "strict"}).pod_class.latency_strict
    assert not pod(**limited, **{"conclave.io/latency-limit": "preferred"}).pod_class.latency_strict
    assert not pod(**limited).pod_class.latency_strict
    assert pod(**limited, **{"conclave.io/latency-limit": "preferred"}).pod_class == pod(**limited).pod_class


@pytest.mark.parametrize("text", ["", "Strict", "strict ", "true", "30", "hard" * 100])
def test_another_word_for_a_limit_makes_the_pod_invalid_in_one_line(text):
    found = pod(latencyHardConstraint="30", **{"conclave.io/latency-limit": text}).invalid
    assert "conclave.io/latency-limit" in found
    assert "neither strict nor preferred; give one of them" in found
    assert len(found) < 300
    assert "\n" not in found


def test_a_strict_limit_needs_a_hard_one():
    found = pod(latencySoftConstraint="20", **{"conclave.io/latency-limit": "strict"}).invalid
    assert "strict needs latencyHardConstraint; give the milliseconds that it bears" in found


@pytest.mark.parametrize(
    "annotations",
    [{"conclave.io/latency-limit": "x"}, {"latencyHardConstraint": "soon"}, {"conclave.io/latency-target": "A B"}],
)
def test_what_a_pod_that_runs_holds_counts_whatever_it_says_of_latency_by_now(annotations):
    there = make_pod().cpu("250m").set(annotations=annotations).on("n0").pod()
    assert there.invalid == ""
    assert dict(there.pod_class.requests)["cpu"] == 250
    assert not there.pod_class.latency_hard_us
