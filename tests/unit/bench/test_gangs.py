"""The bench of gangs: its shapes are upstream's, and what it tells of gangs in part is what the watch showed."""

from __future__ import annotations

from random import Random

import pytest

from bench.gangs import core_run
from bench.gangs.load import LARGEST, SHAPES, SMALLEST, GangShape, group, members, node
from bench.gangs.run import PartialGangs
from bench.stand.cluster import SeenPods

NAMES = {"a": ["a-0", "a-1"], "b": ["b-0", "b-1"]}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_shape_has_three_thousand_pods_or_upstreams_number(shape):
    assert sum(shape.sizes(Random(1))) == (4800 if shape.name == "300x16" else 3000)


def test_the_mixed_load_has_gangs_of_8_to_64():
    for seed in range(20):
        sizes = GangShape("mixed", 3000, 0).sizes(Random(seed))
        assert sum(sizes) == 3000
        assert all(SMALLEST <= size < LARGEST + SMALLEST for size in sizes)


def test_a_shape_in_small_keeps_gangs():
    for shape in SHAPES:
        small = shape.scaled(0.01)
        assert sum(small.sizes(Random(1))) <= 0.02 * sum(shape.sizes(Random(1)))
        assert (small.size == 1) == (shape.size == 1)


def test_members_name_their_group_and_lone_pods_none():
    made = list(members(GangShape("x", 2, 3), [3, 3]))
    assert [body["spec"]["schedulingGroup"]["podGroupName"] for _, body in made] == ["x-0000"] * 3 + ["x-0001"] * 3
    assert all("schedulingGroup" not in body["spec"] for _, body in members(GangShape("lone", 2, 1), [1, 1]))


def test_a_group_in_racks_asks_for_one():
    made = group("g", 4, racks=True, api_version="scheduling.k8s.io/v1beta1", namespace="n")
    key = made["spec"]["schedulingConstraints"]["topology"][0]["key"]
    assert node(51)["metadata"]["labels"][key] == "rack-01"


def test_gangs_in_part_are_counted_while_they_are():
    parts = PartialGangs(NAMES, kill_after=2)
    for pod in ("a-0", "b-0", "a-1"):
        parts.bound(pod)
    assert (parts.most, parts.partial()) == (2, 1)
    assert parts.in_the_middle.is_set()
    parts.bound("b-1")
    assert parts.partial() == 0


def test_spans_are_of_whole_gangs_and_racks_are_counted():
    seen = SeenPods(bound={"a-0": 1.0, "a-1": 3.5, "b-0": 2.0}, node={"a-0": "node-00001", "a-1": "node-00002"})
    parts = PartialGangs(NAMES, kill_after=9)
    assert parts.spans(seen) == [2.5]
    assert parts.scattered(seen, racks=50) == 1
    assert parts.scattered(seen, racks=1) == 0


@pytest.fixture
def untouched_garbage(monkeypatch):
    """The collector of this process stays as it is."""
    monkeypatch.setattr(core_run, "keep_pauses_short", lambda: None)


@pytest.mark.usefixtures("untouched_garbage")
def test_the_cores_alone_bind_every_gang_and_tell_what_their_turns_took():
    options = core_run.parser().parse_args(["--nodes", "20", "--racks", "2", "--rate", "0"])
    for racks in (False, True):
        found = core_run.place(options, GangShape("x", 2, 3, racks=racks))
        assert (found["pods"], found["bound"], found["patches"]) == (6, 6, 0)
        assert min(found[core]["turn_cpu_ms"]["max"] for core in ("coordinator", "binder")) > 0


@pytest.mark.usefixtures("untouched_garbage")
def test_the_cores_alone_evict_one_for_each_member_that_preempts():
    options = core_run.parser().parse_args(["--gangs", "2", "--members", "4"])
    found = core_run.preempt(options)
    assert (found["nodes"], found["bound"], found["evicted"]) == (2, 8, 8)
