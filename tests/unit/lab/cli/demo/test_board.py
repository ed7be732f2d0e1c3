"""The demo's own count of its pods."""

from __future__ import annotations

from lab.cli.demo.board import BOUND, FINISHED, PENDING, RUNNING, UNSCHEDULABLE, PodBoard
from shared.kube import objects as api


def pod(name: str = "a", node: str = "", phase: str = "Pending", unschedulable: bool = False) -> api.KubePod:
    conditions = (
        [api.PodCondition(type="PodScheduled", status="False", reason="Unschedulable")] if unschedulable else None
    )
    return api.KubePod(
        metadata=api.ObjectMeta(name=name),
        spec=api.PodSpec(node_name=node or None),
        status=api.PodStatus(phase=phase, conditions=conditions),
    )


def test_a_pod_goes_through_its_states_and_is_bound_once():
    board = PodBoard()
    board.submitted("a", 1.0)
    assert board.count(PENDING) == 1
    assert board.seen(pod(unschedulable=True), 2.0) is None
    assert board.count(UNSCHEDULABLE) == 1
    bound = board.seen(pod(node="n1"), 3.0)
    assert bound is not None
    assert (bound.submitted_s, bound.seen_s, bound.node) == (1.0, 3.0, "n1")
    assert board.seen(pod(node="n1"), 3.5) is None
    assert board.seen(pod(node="n1", phase="Running"), 4.0) is None
    assert board.count(RUNNING) == 1
    board.seen(pod(node="n1", phase="Succeeded"), 5.0)
    assert (board.count(FINISHED), board.placed, board.total) == (1, 1, 1)


def test_the_watch_may_be_faster_than_the_answer_to_the_post():
    board = PodBoard()
    board.seen(pod(node="n1"), 1.0)
    board.submitted("a", 1.1)
    assert (board.count(BOUND), board.count(PENDING), board.total) == (1, 0, 1)


def test_an_unchanged_pod_is_no_movement():
    board = PodBoard()
    board.seen(pod(), 1.0)
    board.seen(pod(), 9.0)
    assert board.changed_s == 1.0


def test_the_rate_forgets():
    board = PodBoard()
    for i in range(30):
        board.submitted(f"p{i}", 0.0)
        board.seen(pod(f"p{i}", node="n1"), 10.0)
    assert board.rate(10.5) == 10.0
    assert board.rate(20.0) == 0.0
