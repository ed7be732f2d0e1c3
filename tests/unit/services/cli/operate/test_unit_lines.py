"""``conclave units``: a row per unit, and one group with its members, why it waits and whom it displaces."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.operate.units import UNITS, named_unit, unit_lines
from shared.errors import ConfigError

AT = "2026-11-22T02:00:00.000Z"
LONE: dict[str, Any] = {
    "key": "uid-1", "source": "pod", "namespace": "d", "name": "web", "phase": "placing", "state": "planned",
    "min_member": 1, "members": 1, "bound": 0, "queue": "", "position": None, "reason": "", "message": "",
    "waiting_s": 0.2, "since": AT, "pods": [{"namespace": "d", "name": "web", "uid": "uid-1", "node": "n0"}],
}  # fmt: skip
GANG = LONE | {
    "key": "podgroup:d/train", "source": "podgroup", "name": "train", "phase": "waiting", "state": "", "min_member": 4,
    "members": 5, "queue": "vision", "position": 2, "reason": "NodeResourcesFit", "waiting_s": 75.0, "priority": 10,
    "message": "3 of at least 4 members fit", "gang": True, "api_version": "scheduling.k8s.io/v1beta1",
    "missing": 0, "states": {"unschedulable": 4, "bound": 1}, "on_broken": "keep", "whole": True, "timeout_s": 300.0,
    "topology": {"key": "rack", "required": True, "domain": "r7"},
    "condition": {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
    "victims": [{"pod": f"d/low-{n}", "node": "n1", "priority": 0, "outcome": "", "ago_s": 1.0} for n in range(7)],
    "listed": [
        {"name": "train-0", "uid": "u", "state": "unschedulable", "node": "", "nominated_node": "n1", "priority": 10,
         "attempts": 2, "waiting_s": 75.0, "message": "0/3 nodes are available"},
    ],
}  # fmt: skip


def test_a_row_tells_phase_members_queue_and_why() -> None:
    header, lone, gang = UNITS.lines([LONE, GANG])
    titles = ["NAMESPACE", "UNIT", "SOURCE", "PHASE", "BOUND", "MIN", "QUEUE", "POSITION", "WAITING", "REASON"]
    assert header.split() == titles
    assert lone.split() == ["d", "web", "pod", "placing", "0/1", "1", "-", "-", "0.2s", "-"]
    assert gang.split() == ["d", "train", "podgroup", "waiting", "0/5", "4", "vision", "2", "75s", "NodeResourcesFit"]
    wide = UNITS.lines([LONE], wide=True)[1]
    assert "web -> n0" in wide
    assert "planned" in wide


def test_one_group_is_told_with_everything_that_decides_about_it() -> None:
    lines = unit_lines(GANG)
    assert lines[:4] == [
        "d/train: waiting",
        "  why        NodeResourcesFit: 3 of at least 4 members fit",
        "  source     PodGroup scheduling.k8s.io/v1beta1, gang",
        "  members    5, at least 4 or none; 4 unschedulable, 1 bound",
    ]
    assert "  queue      vision, place 2; priority 10" in lines
    assert "  topology   one value of rack, required: r7" in lines
    assert "  if broken  keep; capacity is held for 5m; preempted whole" in lines
    assert "  condition  PodGroupScheduled=False Unschedulable: no room" in lines
    assert any(line.startswith("  victims    7 pods were asked to leave for it: d/low-0 on n1") for line in lines)
    assert any("and 2 more" in line for line in lines)
    assert lines[-1].split()[:6] == ["train-0", "unschedulable", "-", "n1", "10", "2"]


def test_what_is_missing_is_said_in_numbers() -> None:
    short = GANG | {"members": 2, "missing": 2, "victims": [], "topology": None, "condition": None, "queue": ""}
    lines = unit_lines(short)
    assert "  missing    2 more must be created before it is tried" in lines
    assert not [line for line in lines if line.startswith(("  queue", "  topology", "  condition", "  victims"))]


def test_a_group_without_a_minimum_speaks_of_none() -> None:
    basic = GANG | {"gang": False, "min_member": 1}
    assert "  members    5; 4 unschedulable, 1 bound" in unit_lines(basic)


def test_a_group_that_has_a_phase_alone_shows_it() -> None:
    plugins = GANG | {"condition": {"type": "", "status": "Pending", "reason": "", "message": ""}}
    assert "  phase      Pending, says the object" in unit_lines(plugins)


def test_an_older_leader_is_shown_as_far_as_it_tells() -> None:
    older = {"key": "u", "pods": [{"namespace": "d", "name": "p", "node": ""}], "min_member": 1, "state": "offered"}
    assert UNITS.lines([older])[1].split()[:2] == ["-", "u"]


@pytest.mark.parametrize(
    ("unit", "namespace", "expected"),
    [
        ("train", "", ("default", "train")), ("train", "a", ("a", "train")), ("a/train", "", ("a", "train")),
        ("podgroup/train", "a", ("a", "train")), ("podgroup/train", "", ("default", "train")),
    ],
)  # fmt: skip
def test_a_unit_is_named_as_kubectl_names_it(unit: str, namespace: str, expected: tuple[str, str]) -> None:
    assert named_unit(unit, namespace) == expected


@pytest.mark.parametrize(("unit", "namespace"), [("a/b/c", ""), ("/train", ""), ("a/", ""), ("a/train", "b")])
def test_a_unit_named_in_no_way_is_refused(unit: str, namespace: str) -> None:
    with pytest.raises(ConfigError, match=r"train|NAMESPACE"):
        named_unit(unit, namespace)
