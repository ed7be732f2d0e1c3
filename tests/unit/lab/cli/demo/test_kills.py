"""Kills: what is accepted, and when one counts as recovered from."""

from __future__ import annotations

import pytest

from lab.cli.demo.kills import Kill, Recovery, parse_kill, schedule
from shared.errors import ConfigError


@pytest.mark.parametrize("victim", ["leader", "agent", "binder", "etcd"])
def test_every_victim_can_be_killed(victim):
    assert parse_kill(f"{victim}@2.5") == Kill(2.5, victim)


@pytest.mark.parametrize(
    "text", ["", "leader", "leader@", "@5", "twin@5", "leader@-1", "leader@nan", "leader@inf", "x@y@1"]
)
def test_anything_else_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match="--kill") as caught:
        parse_kill(text)
    assert "\n" not in str(caught.value)


def test_kills_are_carried_out_in_the_order_of_their_times():
    assert [k.victim for k in schedule(("binder@11", "leader@5", "agent@8"))] == ["leader", "agent", "binder"]


def test_too_many_kills_are_refused():
    with pytest.raises(ConfigError, match="at most"):
        schedule(("leader@1",) * 1001)


def killed(victim: str = "leader", nodes: tuple[str, ...] = ()) -> Recovery:
    recovery = Recovery(Kill(5, victim))
    recovery.happened(100.0, "coordinator-0", frozenset(nodes))
    return recovery


def test_a_bind_of_a_pod_created_after_the_kill_recovers_it_once_the_process_is_back():
    recovery = killed()
    recovery.bound(103.0, created_s=101.0, node="n1")
    assert not recovery.done
    recovery.back(104.0)
    assert recovery.done
    assert recovery.to_json()["recovery_s"] == 3.0
    assert recovery.to_json()["back_s"] == 4.0


def test_a_bind_of_an_older_pod_may_be_the_dead_process_s_own_and_does_not_count():
    recovery = killed()
    recovery.back(102.0)
    recovery.bound(100.2, created_s=99.0, node="n1")
    assert not recovery.done
    recovery.turned(103.0)
    recovery.bound(103.5, created_s=99.0, node="n1")
    assert recovery.to_json()["recovery_s"] == 3.5


def test_an_agent_has_recovered_when_its_own_nodes_are_bound_to_again():
    recovery = killed("agent", ("n1",))
    recovery.bound(101.0, created_s=100.5, node="n2")
    assert recovery.bound_s is None
    recovery.bound(102.0, created_s=100.5, node="n1")
    assert recovery.bound_s == 102.0


def test_an_agent_whose_nodes_nobody_wants_has_recovered_when_it_is_back_and_binding_goes_on():
    recovery = killed("agent", ("n1",))
    recovery.back(103.0)
    recovery.bound(103.1, created_s=99.0, node="n2")
    assert not recovery.done
    recovery.bound(103.2, created_s=102.0, node="n2")
    assert recovery.done


def test_a_kill_that_did_not_happen_never_recovers():
    recovery = Recovery(Kill(5, "leader"))
    recovery.bound(103.0, created_s=101.0, node="n1")
    recovery.back(104.0)
    recovery.turned(104.0)
    assert not recovery.done
    assert recovery.to_json() == {
        "victim": "leader", "at_s": 5, "process": "", "killed": False, "recovery_s": None, "back_s": None,
    }  # fmt: skip


def test_a_process_that_does_not_come_back_is_no_recovery():
    recovery = killed()
    recovery.bound(103.0, created_s=101.0, node="n1")
    assert recovery.to_json()["recovery_s"] is None
