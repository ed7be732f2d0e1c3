"""The demo's users: what is asked of the mesh, and when a pod counts as well or badly placed."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from lab.audit.log import LogEntry
from lab.cli.demo.command import _agents
from lab.cli.demo.latency import (
    GROUPS,
    HARD_MS,
    PODS,
    SOFT_MS,
    Served,
    knows,
    latency_pods,
    latency_rows,
    node_names,
    phases,
    unserved,
)
from lab.cli.demo.users import agent_flags, opened_users
from lab.cli.demo.workload import load_workload
from shared.errors import ConfigError
from shared.model.pod import LATENCY_TARGET_ANNOTATION

NORTH = GROUPS[0]
NEAR_0 = {"agent-0": {NORTH: 10.0}, "agent-1": {NORTH: 300.0}}
NEAR_1 = {"agent-0": {NORTH: 300.0}, "agent-1": {NORTH: 10.0}}


@pytest.mark.parametrize("count", [2, 3, 4, 16])
def test_in_each_phase_some_nodes_are_near_a_group_and_in_the_next_one_others(count: int) -> None:
    found = phases(Random(7), node_names(count))
    for group in GROUPS:
        near = [{name for name, delays in phase.delays.items() if delays[group] <= SOFT_MS} for phase in found]
        assert all(near)
        assert all(one != other for one, other in pairwise(near))
    assert all(
        ms <= SOFT_MS or ms > HARD_MS for phase in found for delays in phase.delays.values() for ms in delays.values()
    )


def test_the_same_seed_is_the_same_workload_and_each_node_has_its_agent() -> None:
    one, same, other = (load_workload("latency", seed=seed, nodes=None, trace_dir=None) for seed in (1, 1, 2))
    assert one == same
    assert one.phases != other.phases
    assert [node["metadata"]["name"] for node in one.nodes] == node_names(4)
    assert len(one.pods) == PODS == len(latency_pods())


@pytest.mark.parametrize("count", [1, 17])
def test_a_number_of_nodes_that_cannot_show_it_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match=f"--nodes: {count}; the workload latency takes 2 to 16"):
        load_workload("latency", seed=1, nodes=count, trace_dir=None)


def pod(uid: str, created_s: float, bound_s: float, node: str) -> list[LogEntry]:
    body: dict[str, Any] = {"metadata": {"name": uid, "uid": uid, "annotations": {LATENCY_TARGET_ANNOTATION: NORTH}}}
    bound = {**body, "spec": {"nodeName": node}}
    return [
        LogEntry(1, created_s, "create", "Pod", "default", uid, "me", body),
        LogEntry(2, bound_s, "bind", "Pod", "default", uid, "me", bound),
    ]


def served(*pods: list[LogEntry], looks: list[tuple[float, Any]], silences: dict[float, int] | None = None) -> Served:
    """Delays change at 10."""
    found = Served()
    found.changed(0.0, NEAR_0)
    for at_s, measured in looks:
        if at_s > 10.0 and len(found._changes) == 1:
            found.changed(10.0, NEAR_1)
        found.looked(at_s, measured, silences=(silences or {}).get(at_s, 0))
    for entries in pods:
        for entry in entries:
            found.feed(entry)
    return found


LOOKS = [(0.5, NEAR_0), (1.0, NEAR_0), (9.0, NEAR_0), (11.0, NEAR_0), (13.0, NEAR_1), (20.0, NEAR_1)]


def test_a_pod_counts_by_the_true_delay_when_it_was_bound() -> None:
    figures = served(pod("a", 2, 3, "agent-0"), pod("b", 11, 12, "agent-0"), looks=LOOKS).figures()
    assert (figures["decided"], figures["within_soft"]) == (2, 0.5)


def test_only_pods_that_were_created_and_bound_while_the_leader_knew_count_as_known() -> None:
    pods = [
        pod("known", 2, 3, "agent-0"),
        pod("over the change", 8, 12, "agent-0"),
        pod("not yet known", 11.5, 12.5, "agent-0"),
        pod("known again", 14, 15, "agent-1"),
        pod("nobody looked after it", 21, 22, "agent-1"),
    ]
    figures = served(*pods, looks=LOOKS).figures()
    assert (figures["decided_knowing"], figures["within_soft_knowing"]) == (2, 1.0)


def test_a_pod_that_is_decided_without_an_agent_that_was_silent_is_not_held_against_the_policy() -> None:
    quiet = served(pod("a", 2, 3, "agent-1"), looks=LOOKS, silences={9.0: 1, 11.0: 1, 13.0: 1, 20.0: 1})
    assert quiet.figures()["decided_knowing"] == 0
    assert served(pod("a", 2, 3, "agent-1"), looks=LOOKS).figures()["within_soft_knowing"] == 0.0


def test_a_change_says_when_it_was_known_and_which_decision_moved() -> None:
    pods = [pod("early", 11, 12, "agent-0"), pod("first", 14, 15, "agent-1"), pod("second", 16, 17, "agent-1")]
    assert served(*pods, looks=LOOKS).figures()["changes"] == [{"known_after_s": 3.0, "decisions_until_moved": 1}]
    late = [pod("first", 14, 15, "agent-0"), pod("second", 16, 17, "agent-1")]
    assert served(*late, looks=LOOKS).figures()["changes"][0]["decisions_until_moved"] == 2
    never = served(looks=[(1.0, NEAR_0), (11.0, NEAR_0)]).figures()["changes"]
    assert never == [{"known_after_s": None, "decisions_until_moved": None}]


def test_the_leader_knows_when_every_node_is_on_the_right_side_of_the_limit() -> None:
    assert knows({"agent-0": {NORTH: 12.0}, "agent-1": {NORTH: 280.0}}, NEAR_0)
    assert not knows({"agent-0": {NORTH: 12.0}}, NEAR_0)
    assert not knows({"agent-0": {NORTH: SOFT_MS + 1}, "agent-1": {NORTH: 280.0}}, NEAR_0)


def test_el_must_place_all_within_the_limit_while_it_knows_and_others_need_not() -> None:
    bad = served(pod("a", 2, 3, "agent-1"), looks=LOOKS).figures()
    assert unserved(bad, "el") == [
        "latency: 0.0% of pods within their soft limit while the delays were known, must be all"
    ]
    assert unserved(bad, "kube-default") == []
    assert unserved({}, "el") == []
    assert "no pod was placed" in unserved(served(looks=LOOKS).figures(), "el")[0]
    assert dict(latency_rows(bad))["delays' change 1"] == "known after 3.0 s, not moved"


async def test_users_answer_and_agents_files_say_how_far_they_are(tmp_path: Any) -> None:
    plan = phases(Random(1), node_names(2))
    async with opened_users(tmp_path, plan) as users:
        assert len({target["spec"]["port"] for target in users.targets()}) == len(GROUPS)
        told = [line.split() for line in (tmp_path / "delays-agent-0").read_text().splitlines()]
        assert {name: float(ms) for name, ms in told} == plan[0].delays["agent-0"]
        notes: list[str] = []
        await users.play(lambda virtual_s: 0.0, notes.append)
        assert len(notes) == len(plan) - 1
        told = [line.split() for line in (tmp_path / "delays-agent-0").read_text().splitlines()]
        assert {name: float(ms) for name, ms in told} == plan[-1].delays["agent-0"]
    assert agent_flags(tmp_path)[-1] == f"{tmp_path}/delays-{{name}}"


def test_each_node_has_its_own_agent_and_another_number_is_refused() -> None:
    load = load_workload("latency", seed=1, nodes=3, trace_dir=None)
    assert _agents(load, None) == _agents(load, 3) == 3
    with pytest.raises(ConfigError, match="--agents: 2; with --workload latency each of the 3 nodes has its own"):
        _agents(load, 2)
    other = load_workload("uniform", seed=1, nodes=3, trace_dir=None)
    assert (_agents(other, None), _agents(other, 9)) == (4, 9)
