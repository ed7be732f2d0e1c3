"""``conclave explain NAMESPACE/POD``: what people read, and what is said when there is nobody to ask."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.explain.command import named_pod
from services.cli.explain.text import lines_of, seconds

PENDING: dict[str, Any] = {
    "pod": "default/big", "uid": "u", "state": "pending", "summary": "0/3 nodes are available: 3 Insufficient cpu.",
    "priority": 5, "node": None, "nominated_node": None, "policy": None, "decision": None,
    "queue": {
        "place": "backoff", "ahead": None, "attempts": 3, "waiting_s": 12.2, "in_place_s": 1.0, "next_retry_s": 3.5,
        "rejected_by": ["NodeResourcesFit"],
    },
    "nodes": {
        "nodes": 3, "feasible": 1, "unowned": 1, "agents": 2,
        "groups": [
            {
                "plugin": "NodeResourcesFit", "code": "Unschedulable", "stage": "Filter", "count": 2,
                "reasons": ["Insufficient cpu"], "change": "n0 is the nearest: free 0.5 more cpu",
                "nodes": [{
                    "name": "n0",
                    "shortages": [
                        {"resource": "cpu", "requested": 3000, "allocatable": 4000, "free": 2500, "short_by": 500}
                    ],
                }],
            }
        ],
        "candidates": [{"name": "n2", "total": 310, "scores": {"NodeResourcesFit": 10, "TaintToleration": 300}}],
    },
}  # fmt: skip


def test_a_pending_pod_is_told_with_numbers_place_and_remedy() -> None:
    assert list(lines_of(PENDING)) == [
        "default/big: pending, 0/3 nodes are available: 3 Insufficient cpu.",
        "  queue: backoff; priority 5, 3 failed attempts, pending for 12 s; tried again in 3.5 s",
        "  refused by: NodeResourcesFit",
        "  now 1 of 3 nodes take it; 2 agents decide",
        "  1 node has no agent",
        "  2 x NodeResourcesFit: Insufficient cpu",
        "      n0: cpu: asked 3, free 2.5 of 4, short by 0.5",
        "      and 1 more",
        "  n2 takes it: 310 (NodeResourcesFit 10, TaintToleration 300)",
    ]
    nowhere = PENDING | {"nodes": PENDING["nodes"] | {"feasible": 0, "candidates": []}}
    assert "      would help: n0 is the nearest: free 0.5 more cpu" in list(lines_of(nowhere))


def test_who_places_in_the_stead_of_the_policy_is_told_with_the_reason() -> None:
    said = {"policy": "frag@2", "sha256": "a" * 64, "places": "fgd", "told": "since it wins"}
    assert "  fgd places for frag@2 now: since it wins" in list(lines_of(PENDING | {"rehearsed": said}))


def test_one_is_not_told_as_many() -> None:
    one = PENDING | {"queue": PENDING["queue"] | {"attempts": 1}, "nodes": PENDING["nodes"] | {"agents": 1}}
    text = "\n".join(lines_of(one))
    assert "1 failed attempt, " in text
    assert "take it; 1 agent decides" in text


def test_a_bound_pod_is_told_with_the_scores_of_the_time() -> None:
    considered = [
        {"node": "n1", "score": 320, "accepted": True},
        {"node": "n0", "score": 300.5, "accepted": False},
    ]
    decision = {
        "ago_s": 300.0, "unit": 1, "node": "n1", "policy": "kube-default", "policy_version": 1,
        "candidates": considered,
    }  # fmt: skip
    bound = {
        "pod": "a/b", "state": "bound", "summary": "on n1", "policy": "kube-default@1", "decision": decision,
        "queue": None, "nodes": None,
    }  # fmt: skip
    assert list(lines_of(bound)) == [
        "a/b: bound, on n1",
        "  placed by policy kube-default@1 (its annotation)",
        "  decided 5 min ago for n1 by kube-default@1; considered:",
        "      n1: 320",
        "      n0: 300.5, its policy advised against it",
    ]
    assert "does not remember" in list(lines_of({**bound, "decision": None}))[-1]


PREEMPTION: dict[str, Any] = {
    "helps": True, "summary": "would evict default/low from n0",
    "nodes": 70, "curable": 70, "tried": 64, "protected": 1,
    "candidates": [
        {
            "node": "n0", "count": 7, "violations": 1, "allowed": False,
            "victims": [
                {"pod": f"default/low-{n}", "priority": 1, "breaks_budget": n == 0} for n in range(7)
            ],
        }
    ],
}  # fmt: skip


def test_what_preemption_would_do_is_told_with_victims_budgets_and_what_was_not_tried() -> None:
    answer = {**PENDING, "queue": None, "nodes": None, "preemption": PREEMPTION, "missing": ["csinodes (403)"]}
    others = ", ".join(f"default/low-{n} (priority 1)" for n in range(1, 5))
    victims = f"default/low-0 (priority 1, breaks its budget), {others} and 2 more"
    assert list(lines_of(answer))[1:] == [
        "  preemption would evict default/low from n0",
        "      tried on 64 of 70 nodes that evicting may open",
        f"      n0: {victims}; not done, budgets are strict",
        '      1 pods of lower priority are annotated conclave.io/preemptible: "false"',
        "  not looked at: csinodes (403)",
    ]
    told = {"helps": False, "summary": "not eligible due to preemptionPolicy=Never.", "candidates": []}
    told |= {"curable": 0, "tried": 0, "protected": 0}
    assert list(lines_of({**answer, "preemption": told, "missing": []}))[1:] == [
        "  preemption: not eligible due to preemptionPolicy=Never."
    ]


def test_numbers_of_a_rule_are_told_per_node() -> None:
    node = {"name": "n0", "shortages": [], "numbers": [{"text": "taint a:NoSchedule", "values": {}}, {"text": "b"}]}
    group = {**PENDING["nodes"]["groups"][0], "nodes": [node, {**node, "name": "n1", "numbers": []}]}
    lines = list(lines_of({**PENDING, "nodes": {**PENDING["nodes"], "groups": [group]}}))
    assert "      n0: taint a:NoSchedule; b" in lines
    assert "      n1" in lines


def test_durations_are_written_for_people() -> None:
    assert [seconds(value) for value in (0.44, 12.2, 119, 300)] == ["0.4 s", "12 s", "119 s", "5 min"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give either NAMESPACE/POD, to ask the mesh, or --batch FILE"),
        (["a/b", "--batch", "-"], "give either NAMESPACE/POD"),
        (["/web-0"], "'/web-0' is not NAMESPACE/POD"),
        (["a/web-0", "-n", "b"], "names the namespace a already"),
        (["a/b/c"], "is not NAMESPACE/POD"),
        (["a/b", "-o", "name"], "'name' is none of table, json and yaml"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pod", "namespace", "found"),
    [
        ("web-0", "", ("default", "web-0")),
        ("a/web-0", "", ("a", "web-0")),
        ("web-0", "a", ("a", "web-0")),
        ("pod/web-0", "a", ("a", "web-0")),
        ("a/web-0", "a", ("a", "web-0")),
        ("pod/web-0", "", ("default", "web-0")),
        ("pod/web-0", "pod", ("pod", "web-0")),
    ],
)
def test_a_pod_is_named_as_kubectl_names_it(pod: str, namespace: str, found: tuple[str, str]) -> None:
    assert named_pod(pod, namespace) == found


@pytest.mark.parametrize(("gang", "told"), [(True, ", at least 3 or none"), (False, "")])
def test_only_a_gang_has_a_minimum(gang: bool, told: str) -> None:
    group = {"unit": "d/g", "phase": "waiting", "bound": 0, "members": 2, "min_count": 3, "gang": gang}
    answer = {"pod": "d/p", "state": "pending", "summary": "s", "group": group}
    assert list(lines_of(answer))[1] == f"  member of pod group d/g: waiting, 0 of 2 bound{told}"


def test_a_pod_that_its_queue_or_group_holds_is_told_what_helps_there() -> None:
    queue = {
        "place": "gated",
        "attempts": 0,
        "waiting_s": 3.0,
        "reason": "QueueQuota",
        "means": "m",
        "page": "u",
        "remedy": "raise it",
    }
    lines = list(lines_of({"pod": "d/p", "state": "pending", "summary": "s", "queue": queue}))
    assert lines[-1] == "      would help: raise it"


def test_nodes_that_several_rules_refuse_each_get_no_advice_that_opens_none() -> None:
    group = {
        "plugin": "NodeUnschedulable",
        "stage": "Filter",
        "reasons": ["r"],
        "count": 1,
        "nodes": [],
        "change": "",
        "also": ["NodeAffinity"],
    }
    nodes = {"nodes": 1, "feasible": 0, "groups": [group], "candidates": []}
    lines = list(lines_of({"pod": "d/p", "state": "pending", "summary": "s", "nodes": nodes}))
    assert lines[-1] == "      each is refused by another rule too: NodeAffinity"
