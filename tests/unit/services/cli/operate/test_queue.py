"""``conclave pending`` and the health of ``conclave status``, as people read them."""

from __future__ import annotations

from services.cli.operate.pending import PENDING_GROUPS, pending_lines
from services.cli.operate.status import overview_lines

HELP = {"kind": "uncordon", "target": "", "text": "uncordon n0", "lets_in": 2, "of": 5}
GROUP = {
    "reason": "NodeUnschedulable", "namespace": "team-a", "priority": 0, "class": "9f3a1c02", "pods": 5,
    "oldest_s": 606.2, "oldest_pod": "team-a/x-1", "message": "0/1 nodes are available.", "helps": [HELP],
}  # fmt: skip


def test_groups_are_rows_with_what_would_help_and_how_many_that_lets_in() -> None:
    found = {"pods": 5, "classes": 1, "gated": 2, "helps": [HELP], "items": [GROUP]}
    lines = [*pending_lines(found), *PENDING_GROUPS.lines([GROUP])]
    assert lines[0] == "5 pods of 1 class wait, 2 more wait for their scheduling gates"
    assert lines[1] == "  lets in 2 of 5: uncordon n0"
    assert lines[-1].split() == [
        "NodeUnschedulable", "team-a", "0", "9f3a1c02", "5", "10m", "uncordon", "n0", "2",
    ]  # fmt: skip
    assert "0/1 nodes are available." in PENDING_GROUPS.lines([GROUP], wide=True)[-1]


def test_nobody_waiting_is_one_line_and_nothing_of_the_cluster_acts_on_the_terminal() -> None:
    assert pending_lines({"pods": 0, "classes": 0, "items": []}) == ["0 pods of 0 classes wait"]
    hostile = GROUP | {"helps": [HELP | {"text": "\x1b[31mred"}]}
    found = {"pods": 1, "classes": 1, "items": [hostile], "helps": hostile["helps"]}
    assert "\x1b" not in "".join([*pending_lines(found), *PENDING_GROUPS.lines([hostile])])


def test_a_finding_is_told_with_what_to_do() -> None:
    finding = {
        "code": "leader_late", "severity": "bad", "since": "12:00", "message": "late", "remedy": "give it a core",
        "runbook": "docs/operations/runbooks.md#x",
    }  # fmt: skip
    found = {
        "cluster": {"name": "prod"}, "health": {"verdict": "bad", "findings": [finding]},
        "resources": [{"name": "cpu_millis", "share": 0.5}, {"name": "nvidia.com/gpu", "share": None}],
    }  # fmt: skip
    text = "\n".join(overview_lines(found))
    assert "cluster     prod" in text
    assert "health      bad" in text
    assert "leader_late: late, since 12:00" in text
    assert "give it a core" in text
    assert "requested   cpu 50%" in text


def test_an_older_leader_that_tells_no_health_is_shown_without() -> None:
    assert not any(line.startswith("health") for line in overview_lines({}))
