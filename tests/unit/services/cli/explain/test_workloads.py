"""``conclave explain job/NAME`` and its like: the pod of the workload that has waited longest."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.explain.text import state_word
from services.cli.explain.workloads import owns, pods_of
from tests.admin_server import AdminServer


def queued(name: str, waiting_s: float) -> dict[str, Any]:
    return {"namespace": "default", "name": name, "place": "unschedulable", "waiting_s": waiting_s}


def answer(name: str) -> dict[str, Any]:
    return {"pod": f"default/{name}", "state": "pending", "summary": "0/1 nodes are available: 1 Insufficient cpu."}


NO_UNITS = {"items": [], "continue": ""}


@pytest.mark.parametrize(
    ("asked", "name"),
    [("deploy/web", "web-5d4f8-abcde"), ("job/web", "web-x7k2p"), ("sts/web", "web-3"), ("ds/web", "web-zzzzz")],
)
def test_a_workloads_pod_that_has_waited_longest_is_explained(
    asked: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        "GET /v1/units": NO_UNITS,
        "GET /v1/queue": {"items": [queued("webber-1-abcde", 99.0), queued(name, 12.0)], "continue": ""},
        f"GET /v1/pods/default/{name}/explain": answer(name),
    }
    with AdminServer(answers) as server:
        assert run(["explain", asked, "--server", server.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(" default/web: 1 pod of it waits; the one that has waited longest:")
    assert lines[1] == f"default/{name}: pending, 0/1 nodes are available: 1 Insufficient cpu."


def test_a_job_that_is_a_gang_is_explained_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        "GET /v1/units": {"items": [{"namespace": "default", "name": "train", "source": "job"}], "continue": ""},
        "GET /v1/units/default/train/explain": {"unit": "default/train", "phase": "waiting", "summary": "no room"},
    }
    with AdminServer(answers) as server:
        assert run(["explain", "job/train", "--server", server.url]) == 0
    assert capsys.readouterr().out.splitlines() == ["default/train: waiting, no room"]


def test_a_workload_of_which_no_pod_waits_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({"GET /v1/queue": {"items": [], "continue": ""}}) as server:
        assert run(["explain", "deploy/web", "-n", "shop", "--server", server.url]) == 1
    assert "no pod of deployment shop/web waits" in capsys.readouterr().err


def test_pods_of_a_longer_name_are_not_the_workloads() -> None:
    pods = [{"name": name} for name in ("web-1", "web-1-0", "web-api-5d4f8-abcde", "web-5d4f8-abcde", "web-abcde")]
    assert [pod["name"] for pod in pods_of(pods, "statefulset", "web")] == ["web-1"]
    assert [pod["name"] for pod in pods_of(pods, "deployment", "web")] == ["web-5d4f8-abcde"]
    assert [pod["name"] for pod in pods_of(pods, "job", "web")] == ["web-1", "web-5d4f8-abcde", "web-abcde"][::2]


@pytest.mark.parametrize(
    ("kind", "owner", "is_its"),
    [
        ("deployment", ("ReplicaSet", "web-5d4f8"), True), ("deployment", ("ReplicaSet", "web-api-5d4f8"), False),
        ("deployment", ("Job", "web-5d4f8"), False), ("deployment", ("", ""), False), ("job", ("Job", "web"), True),
        ("job", ("Job", "web-1"), False), ("statefulset", ("StatefulSet", "web"), True),
    ],
)  # fmt: skip
def test_a_pod_belongs_to_the_workload_that_controls_it(kind: str, owner: tuple[str, str], is_its: bool) -> None:
    assert owns(kind, "web", *owner) is is_its


def test_states_are_told_in_words_that_people_use() -> None:
    assert state_word({"state": "not_ours"}) == "another scheduler's"
    assert state_word({"state": "pending", "queue": {"reason": "QueueQuota"}}) == "held by quota"
    unusable = state_word({"state": "pending", "queue": {"reason": "QueueUnusable"}})
    assert unusable == "held, its queue cannot be used"
    assert state_word({"state": "pending", "queue": {"reason": "InTurn"}}) == "pending"
