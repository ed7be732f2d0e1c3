"""The audit of what nodes lend: a good history is clean, and every check is seen red on a bad one."""

from __future__ import annotations

import pytest

from lab.audit.loans import LoansAudit
from tests.unit.lab.audit.audit_history import History

NODE = {"cpu": "10", "memory": "100Gi", "pods": "99"}
OURS, THEIRS = "conclave-lending", "koord-manager"


def history() -> History:
    return History().node("n1", NODE)


def test_a_node_of_ours_may_be_written_by_us_and_reset_by_its_kubelet() -> None:
    told = history().lend(OURS, batch_cpu="3000", batch_memory="5Gi").lend("kubelet", batch_cpu="0")
    assert told.lend(OURS, batch_cpu="4k").lend(OURS, batch_cpu=None, batch_memory=None).report().ok


def test_anothers_node_may_be_written_by_that() -> None:
    assert history().lend(THEIRS, batch_cpu="3000").lend(THEIRS, batch_cpu="10").report().lent_wrong == 0


@pytest.mark.parametrize("amount", ["10", None])
def test_a_value_of_anothers_that_we_write_is_seen(amount: str | None) -> None:
    report = history().lend(THEIRS, batch_cpu="3000").lend(OURS, batch_cpu=amount).report()
    assert report.lent_wrong == 1
    assert not report.ok
    assert THEIRS in report.examples[0]


def test_anothers_value_is_anothers_after_its_kubelet_reset_it() -> None:
    told = history().lend(THEIRS, batch_cpu="3000").lend("kubelet", batch_cpu="0").lend(OURS, batch_cpu="7")
    assert told.report().lent_wrong == 1


def test_a_value_that_a_kubelet_alone_brought_may_be_written_by_us() -> None:
    told = history().lend("kubelet", batch_cpu="0").lend("kubelet", batch_cpu="1").lend(OURS, batch_cpu="7")
    assert told.report().lent_wrong == 0


def test_a_value_that_was_there_before_anybody_was_known_is_not_ours() -> None:
    assert History().node("n1", {**NODE, "kubernetes.io/batch-cpu": "5"}).lend(OURS, batch_cpu="7").report().lent_wrong


@pytest.mark.parametrize("amounts", [{"batch_cpu": "10001"}, {"batch_memory": "101Gi"}])
def test_more_than_the_whole_node_is_seen(amounts: dict[str, str]) -> None:
    assert history().lend(OURS, **amounts).report().lent_wrong == 1


def test_capacity_that_differs_is_seen() -> None:
    assert history().lend(OURS, batch_cpu="5", also={"kubernetes.io/batch-cpu": "6"}).report().lent_wrong == 1


def test_a_write_that_takes_the_nodes_own_resources_is_seen() -> None:
    told = history().lend(OURS, batch_cpu="5")
    told.objects["Node", "n1"]["status"]["capacity"] = {}
    report = told.lend(OURS, batch_cpu="6").report()
    assert "lent: cpu, memory, pods of n1 went with what conclave-lending wrote (rv 1003)" in report.examples


def test_another_machine_of_the_name_begins_anew() -> None:
    told = history().lend(THEIRS, batch_cpu="3000").gone("Node", "n1").node("n1", NODE)
    assert told.lend(OURS, batch_cpu="6").report().lent_wrong == 0


def test_without_the_check_a_lost_value_goes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoansAudit, "change", lambda *_: iter(()))
    assert history().lend(THEIRS, batch_cpu="3000").lend(OURS, batch_cpu="10").report().ok


@pytest.mark.parametrize(("later_s", "wrong"), [(0.5, 0), (60.0, 1)])
def test_a_pod_that_is_bound_to_what_was_lent_a_moment_ago_is_nobodys_fault(later_s: float, wrong: int) -> None:
    told = history().lend(OURS, batch_cpu="3000").pod("a", {"kubernetes.io/batch-cpu": "2000"})
    told = told.lend(OURS, batch_cpu="1000").wait(later_s).bind("a")
    report = told.report()
    assert (report.lent_overcommitted, report.overcommitted_nodes, report.ok) == (wrong, wrong, not wrong)
