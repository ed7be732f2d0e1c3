"""A table fits a terminal: its sentences are shortened, its names and numbers never, and -o wide has all."""

from __future__ import annotations

from services.cli.context import CONTEXTS
from services.cli.listing.kinds import WIDTH
from services.cli.operate.changes import CHANGES
from services.cli.operate.decisions import DECISIONS
from services.cli.operate.pending import PENDING_GROUPS
from services.cli.operate.queues import IN_QUEUE, QUEUES
from services.cli.operate.settings import SETTINGS_CHANGES
from services.cli.operate.units import UNITS

NODES = ", ".join(f"node-{number}.example.com" for number in range(9))
LONG = f"tolerate dedicated=gpu:NoSchedule, or take it from {NODES}"
GROUP = {
    "reason": "NodeResourcesFit+NodeUnschedulable+TaintToleration", "namespace": "team-of-a-long-name", "priority": 100,
    "class": "9f3a1c02", "pods": 500, "oldest_s": 606.2, "oldest_pod": "x",
    "helps": [{"kind": "remove_taint", "text": LONG, "lets_in": 2, "of": 5}],
}  # fmt: skip


def test_a_table_fits_and_keeps_its_names_and_numbers() -> None:
    lines = PENDING_GROUPS.lines([GROUP])
    assert max(map(len, lines)) <= WIDTH == 160
    assert "team-of-a-long-name" in lines[1]
    assert lines[1].split()[-1] == "2"
    assert LONG in PENDING_GROUPS.lines([GROUP], wide=True)[1]


def test_what_waits_in_a_queue_and_its_problem_fit_too() -> None:
    unit = {
        "position": 1, "namespace": "vision", "name": "train", "place": "gated", "source": "podgroup", "members": 8,
        "priority": 5, "waiting_s": 3.0, "reason": "", "blocked": f"queue vision: {LONG}",
    }  # fmt: skip
    rules = "+".join(["NodeResourcesFit"] * 9)
    assert max(map(len, IN_QUEUE.lines([unit]))) <= WIDTH
    assert max(map(len, QUEUES.lines([{"name": "vision", "problem": LONG}]))) <= WIDTH
    assert max(map(len, UNITS.lines([{"namespace": "d", "name": "g", "reason": rules}]))) <= WIDTH


def test_what_people_wrote_and_what_was_considered_fit_too() -> None:
    node = "ip-10-0-121-174.ec2.internal"
    considered = [{"node": f"{node}-{number}", "score": 385.0} for number in range(4)]
    placed = {"time": "2026-11-28T08:00:00.000Z", "namespace": "team-of-a-long-name", "name": "web-7d9f8c6b5-x2x4z"}
    decision = placed | {"node": node, "policy": "kube-default@1", "attempt": 1, "considered": considered}
    change = placed | {"number": 12, "by": "ann", "role": "operator", "route": "POST /v1/pause", "reason": LONG}
    settings = {"number": 3, "time": placed["time"], "by": "ann", "values": {"gang_patience_s": 60}, "reason": LONG}
    context = {"name": "prod", "server": ",".join(f"https://coordinator-{n}.example.com:8701" for n in range(5))}
    for kind, item in ((DECISIONS, decision), (CHANGES, change), (SETTINGS_CHANGES, settings), (CONTEXTS, context)):
        (_, line) = kind.lines([item])
        assert len(line) <= WIDTH, line
    assert placed["name"] in DECISIONS.lines([decision])[1]


def test_a_short_table_is_left_as_it_is() -> None:
    short = GROUP | {"helps": [{"text": "uncordon n0", "lets_in": 2}]}
    assert "uncordon n0" in PENDING_GROUPS.lines([short])[1]
