"""Roles that contradict and missions that nobody can reach: one clear line each, and only where it is certain."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from shared.autoscaling.networks.karma import KarmaPolicy, trained_roles
from shared.autoscaling.networks.signals import ServiceSignals
from shared.autoscaling.observation import LOAD
from shared.autoscaling.roles.checking import faults, readings_of, unmeasured
from shared.autoscaling.roles.organisation import graph_values
from shared.autoscaling.roles.reading import (
    SHIPPED,
    karma_roles,
    organisation_from,
    organisation_of,
    parse_organisation,
)
from shared.errors import ConfigError

OWN = """
name: shop
binding: hard
penalty: 0.1
roles:
  - name: grower
    when: {all: [{signal: waiting_s, above: 0.1}]}
    allow: [1, 2]
    missions: [drained]
    binding: soft
  - name: saver
    when: {all: [{signal: utilisation, below: 0.3}]}
    allow: [-1, 0]
missions:
  - {name: drained, goal: [{signal: waiting_s, below: 0.5}], reward: 0.2}
"""


def signals(**given: float) -> ServiceSignals:
    usual = {
        "replicas": 3, "ready": 3, "unready": 0, "stuck": 0, "pending": 0, "minimum": 1, "maximum": 9, "cores": 1.0,
        "per_replica": 10.0, "demand": 20.0, "arrivals": 20.0, "trend": 0.0, "waiting_s": 0.0, "failing": 0.0,
        "utilisation": 0.5, "latency": 0.5, "inflation": 1.0, "missing": False, "age_s": 0.0,
    }  # fmt: skip
    return ServiceSignals(**{**usual, **given})


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def test_the_shipped_four_are_such_a_file_and_nothing_is_wrong_with_them() -> None:
    assert faults(karma_roles()) == []
    assert len(karma_roles().roles) == 4
    assert parse_organisation(SHIPPED.read_text(), "karma.yaml") == karma_roles()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("utilisation, below: 0.3", "waiting_s, above: 0.4",
         r"roles\[1\]: saver contradicts roles\[0\], grower: whenever it applies so does that, .* change"),
        ("utilisation, below: 0.3}", "failing, above: 1.5}", r"roles\[1\].when: saver can never apply"),
        ("utilisation, below: 0.3}", "trend, above: 0.5}, {signal: trend, below: 0.2}", "saver can never apply"),
        ("goal: [{signal: waiting_s, below: 0.5}]", "goal: [{signal: waiting_s, below: 0.05}]",
         r"missions\[0\].goal: nobody can reach drained: waiting_s below 0.05 never holds while grower applies"),
        ("goal: [{signal: waiting_s, below: 0.5}]", "goal: [{signal: failing, above: 1}]", "can never hold"),
        ("missions: [drained]", "missions: []", r"missions\[0\]: nobody has drained; name it under missions of a role"),
        ("missions: [drained]", "missions: [dry]", "roles.0..missions: 'dry' is no mission; choose one of drained"),
        ("waiting_s, above: 0.1", "utilisation, above: -1", r"roles\[1\]: saver contradicts roles\[0\], grower"),
        ("waiting_s, above: 0.1", "stuck, above: 0.2, below: 0.9", "grower can never apply"),
        ("penalty: 0.1", "penalty: .inf", "penalty: inf is out of range; give 0 to 10"),
        ("reward: 0.2", "reward: 0", r"missions\[0\].reward: 0.0 is out of range"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_one_line_with_the_field_and_the_remedy(old: str, new: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_organisation(changed(OWN, old, new), "roles.yaml")


def test_a_role_before_that_applies_only_now_and_then_contradicts_nobody() -> None:
    text = changed(OWN, "utilisation, below: 0.3", "waiting_s, above: 0.05")  # wider than the first, so it has its turn
    assert [role.name for role in parse_organisation(text).roles] == ["grower", "saver"]


def test_one_role_may_bind_softly_among_hard_ones() -> None:
    own = parse_organisation(OWN)
    soft, hard = signals(waiting_s=1.0), signals(utilisation=0.1)
    grower, saver = own.role(soft, graph_values({"a": soft})), own.role(hard, graph_values({"a": hard}))
    assert own.mask(soft, grower).all()
    assert own.mask(hard, saver).tolist() == [False, True, True, False, False]
    assert own.reward(soft, grower, {}, -1) == pytest.approx(-0.1)
    assert own.reward(hard, saver, {}, 2) == 0.0


def test_a_mission_is_earned_while_its_goal_holds_and_its_role_applies() -> None:
    own = parse_organisation(OWN)
    near, far, other = signals(waiting_s=0.2), signals(waiting_s=2.0), signals(waiting_s=0.0)
    earned = [own.reward(one, own.role(one, {}), {}, 1) for one in (near, far, other)]
    assert earned == pytest.approx([0.2, 0.0, 0.0])


def test_a_goal_where_an_earlier_role_has_the_turn_is_reached_by_nobody_and_one_beside_it_is() -> None:
    both = changed(OWN, "waiting_s, above: 0.1}]", "utilisation, above: 0.5}]")
    both = changed(both, "    missions: [drained]\n", "")
    both = changed(both, "allow: [-1, 0]", "allow: [-1, 0]\n    missions: [drained]")
    both = changed(both, "utilisation, below: 0.3", "utilisation, above: 0.2")
    parse_organisation(changed(both, "waiting_s, below: 0.5", "utilisation, below: 0.4"))
    with pytest.raises(ConfigError, match=r"nobody can reach drained: utilisation above 0.7"):
        parse_organisation(changed(both, "waiting_s, below: 0.5", "utilisation, above: 0.7"))
    parse_organisation(
        changed(OWN, "waiting_s, above: 0.1", "not_ready, below: 0")
    )  # more are Ready than are asked for


def test_a_signal_that_a_service_does_not_measure_is_named_with_the_service() -> None:
    own = parse_organisation(OWN)
    assert readings_of(own) == {"queue", "cpu"}
    told = unmeasured(own, {"a": {"cpu", "queue"}, "b": {"cpu"}})
    assert len(told) == 2  # the condition, and the goal
    assert "roles[0].when.all[0].signal: waiting_s needs a source of queue, and service b has none" in told[0]


def test_weights_carry_the_roles_that_they_were_trained_under_into_the_live_mask() -> None:
    shipped = KarmaPolicy()
    assert shipped.needs("a") == LOAD
    card = msgspec.structs.replace(
        shipped.weights.card, trained={"settings": {"organisation": msgspec.to_builtins(parse_organisation(OWN))}}
    )
    weights = type(shipped.weights)(shipped.weights.arrays, card)
    policy = KarmaPolicy(weights=weights)
    assert [role.name for role in policy.eyes.organisation.roles] == ["grower", "saver"]
    assert policy.needs("a") == LOAD | {"queue"}
    assert trained_roles(shipped.weights) is None
    with pytest.raises(ConfigError, match="weights of karma"):
        organisation_from({"name": "x", "roles": 3}, "weights of karma: trained.settings.organisation")


def test_bound_to_none_no_role_masks_though_it_bound_itself() -> None:
    free = organisation_of("none", missions=True, roles=parse_organisation(OWN))
    hard = signals(utilisation=0.1)
    assert np.all(free.mask(hard, free.role(hard, {})))
