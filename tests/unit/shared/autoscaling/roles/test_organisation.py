"""Roles: who is in which, what it may do, what its mission takes off; and files that make no sense."""

from __future__ import annotations

import pytest

from shared.autoscaling.networks.features import STEPS
from shared.autoscaling.networks.signals import ServiceSignals
from shared.autoscaling.roles.organisation import NOBODY, graph_values
from shared.autoscaling.roles.reading import karma_roles, organisation_of, parse_organisation
from shared.errors import ConfigError

ROLES = """
name: mine
otherwise: [0]
roles:
  - name: up
    when: {any: [{signal: waiting_s, above: 0.5}, {signal: failing, above: 0.1}]}
    allow: [1, 2]
    mission: {failing: 0.5}
"""


def signals(**more):
    parts = {
        "replicas": 2, "ready": 2, "unready": 0, "stuck": 0, "pending": 0, "minimum": 1, "maximum": 5, "cores": 0.5,
        "per_replica": 100.0, "demand": 150.0, "arrivals": 150.0, "trend": 0.0, "waiting_s": 0.0, "failing": 0.0,
        "utilisation": 0.6, "latency": 0.2, "inflation": 1.0, "missing": False, "age_s": 2.0,
    }  # fmt: skip
    return ServiceSignals(**{**parts, **more})


def allowed(organisation, one, **graph):
    graph = {**graph_values({"one": one}), **graph}
    role = organisation.role(one, graph)
    mask = organisation.mask(one, role)
    return role.name if role else None, [step for step, may in zip(STEPS, mask, strict=True) if may]


def test_each_role_of_the_paper_applies_when_its_trigger_does():
    four = karma_roles()
    assert allowed(four, signals()) == (None, [-1, 0, 1, 2])
    assert allowed(four, signals(stuck=1, ready=1)) == ("failure-manager", [-1, 1, 2])  # -2 would leave none
    assert allowed(four, signals(waiting_s=0.5)) == ("bottleneck-manager", [0, 1, 2])
    assert allowed(four, signals(trend=0.5)) == ("ddos-manager", [-1, 0, 1, 2])
    spare = signals(replicas=4, ready=4)
    assert allowed(four, spare, graph_pending=0.2) == ("resource-manager", [-2, -1, 0])


def test_bounds_mask_whatever_a_role_allows_and_holding_is_left():
    four = karma_roles()
    full = signals(replicas=5, ready=5, demand=600.0)
    assert allowed(four, full) == ("bottleneck-manager", [0])
    assert allowed(parse_organisation(ROLES), signals(replicas=5, failing=0.5)) == ("up", [0])


def test_soft_binding_masks_nothing_and_costs_instead():
    soft = organisation_of("soft")
    one = signals(waiting_s=0.5)
    role = soft.role(one, graph_values({"one": one}))
    assert allowed(soft, one)[1] == [-1, 0, 1, 2]
    graph = graph_values({"one": one})
    assert soft.reward(one, role, graph, -1) == pytest.approx(soft.reward(one, role, graph, 1) - soft.penalty)


def test_a_mission_takes_its_signals_off_while_the_role_applies():
    mine = parse_organisation(ROLES)
    one = signals(failing=0.4)
    graph = graph_values({"one": one})
    assert mine.reward(one, mine.role(one, graph), graph, 1) == pytest.approx(-0.2)
    assert mine.reward(signals(), None, graph, 0) == 0.0


def test_nobodys_roles_leave_the_bounds_alone():
    assert allowed(NOBODY, signals()) == (None, [-1, 0, 1, 2])
    assert organisation_of("none") is NOBODY


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param("allow: [1, 2]", "allow: []", r"roles\[0\]\.allow: it allows nothing", id="nothing"),
        pytest.param("allow: [1, 2]", "allow: [7]", r"roles\[0\]\.allow: 7 is no step", id="step"),
        pytest.param("waiting_s, above", "queue, above", r"any\[0\]\.signal: 'queue' is no signal", id="signal"),
        pytest.param("above: 0.5", "above: 2, below: 1", r"above 2.0 and below 1.0 exclude each other", id="exclude"),
        pytest.param(", above: 0.5", "", "neither above nor below", id="no bound"),
        pytest.param("above: 0.5", "above: .nan", "a bound is not finite", id="nan"),
        pytest.param("{failing: 0.5}", "{failing: .inf}", r"mission\.failing: inf is out of range", id="weight"),
        pytest.param("name: up", "name: ''", "is empty or there twice", id="name"),
        pytest.param("otherwise: [0]", "otherwise: []", "otherwise: it allows nothing", id="otherwise"),
        pytest.param("otherwise: [0]", "binding: loose", "Invalid enum value 'loose'", id="binding"),
        pytest.param("otherwise: [0]", "who: me", "unknown field `who`", id="field"),
        pytest.param("otherwise: [0]", "otherwise: [", "no YAML", id="yaml"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line_that_names_the_field(old, new, told):
    assert old in ROLES
    with pytest.raises(ConfigError, match=told) as refused:
        parse_organisation(ROLES.replace(old, new, 1), "roles.yaml")
    assert str(refused.value).startswith("roles.yaml")
