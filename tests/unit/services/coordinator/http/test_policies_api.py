"""Policies over the admin API: one of two who promote at once wins, cards and windows are shown, rules have times."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.coordinator.http.table import ROUTES
from services.coordinator.settings import RUNTIME_SETTINGS
from shared.decide.stages import Stage
from shared.policy.rollout.outcome import CARD, GOALS, GoalUnknown
from shared.policy.weights import WeightsFile, digest, encode, shipped
from shared.runtime.records.policies import read_history, read_pointer
from shared.runtime.records.policy_changes import activate as change
from shared.wire.records import PolicyRef, PolicyWindow
from tests.unit.services.coordinator.http.api_world import KEYS, Answered, ApiWorld, api_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ApiWorld]:
    async with api_world(tmp_path) as opened:
        yield opened


async def activate(world: ApiWorld, **more: object) -> Answered:
    body = {"name": "least-allocated", "stage": "shadow", **more}
    answered = await world.ask("POST", "/v1/policies/activate", json=body)
    assert answered.status == 200, answered.text
    return answered


async def promote(world: ApiWorld, role: str = "admin", **body: object) -> Answered:
    """By force, but where ``force`` says otherwise."""
    body = {"name": "least-allocated", "force": True, **body}
    return await world.ask("POST", "/v1/policies/promote", role, json=body)


async def test_without_enough_good_windows_a_step_is_refused_and_a_forced_one_is_recorded(world: ApiWorld) -> None:
    await activate(world)
    for to in ({}, {"to": "active"}, {"percent": 10}):
        early = await promote(world, force=False, **to)
        assert (early.status, early.code) == (409, "too_few_windows")
        assert early.json["message"] == (
            "policy: least-allocated@1 has 0 of 3 good windows in a row at this step; no pod was offered since the "
            "window opened; wait for them ('conclave policy show'), or force it (--force)"
        )
    forced = (await promote(world)).json["pointer"]
    assert (forced["percent"], forced["forced"]) == (1, True)
    assert [one.pointer.forced for one in await read_history(world.store, KEYS)][-2:] == [False, True]
    assert (await promote(world, force=False)).code == "too_few_windows"  # each step needs windows of its own
    assert (await world.ask("POST", "/v1/policies/rollback", json={})).json["pointer"]["forced"] is False


async def test_with_enough_good_windows_nothing_is_forced(world: ApiWorld) -> None:
    await activate(world)
    core = world.admin.core
    assert core is not None
    await world.until(lambda: core.variants.has_candidate)
    rollout = core.evaluation._rollout
    assert rollout is not None
    rollout.row.good = 3
    for force in (False, True):
        after = (await promote(world, force=force)).json["pointer"]
        assert after["forced"] is False
        rollout.row.good = 3


async def test_who_activates_past_the_windows_is_recorded_too(world: ApiWorld) -> None:
    first = (await activate(world, stage="canary")).json["pointer"]
    assert (first["percent"], first["forced"]) == (100, False)  # where it begins is no step
    assert (await activate(world)).json["pointer"]["forced"] is False  # back to shadow
    assert (await activate(world, stage="canary")).json["pointer"]["forced"] is True
    assert (await activate(world, stage="active")).json["pointer"]["forced"] is True


@pytest.mark.parametrize("roles", [("admin", "operator"), ("admin", "admin")])
async def test_of_two_who_promote_at_once_one_wins_and_the_other_is_told(
    world: ApiWorld, roles: tuple[str, str]
) -> None:
    await activate(world)
    answers = await asyncio.gather(*(promote(world, role) for role in roles))
    won, lost = sorted(answers, key=lambda answered: answered.status)
    assert (won.status, won.json["pointer"]["percent"]) == (200, 1)
    assert (lost.status, lost.code) == (409, "conflict")
    assert "the pointer has just changed" in lost.json["message"]
    assert "least-allocated@1 is at canary 1 %; nothing was promoted" in lost.json["message"]
    assert len([one for one in await read_history(world.store, KEYS) if one.pointer.stage == "canary"]) == 1


async def test_an_operator_who_comes_a_moment_later_is_told_what_the_other_did(world: ApiWorld) -> None:
    await activate(world)
    assert (await promote(world, "admin")).status == 200
    late = await promote(world, "operator")
    assert (late.status, late.code) == (409, "conflict")
    assert "(promoted by hand, by admin:admin-1)" in late.json["message"]
    number = (await world.ask("GET", "/v1/policies", "operator")).json["pointer"]["number"]
    assert (await promote(world, "operator", number=number)).json["pointer"]["percent"] == 10


async def test_one_operator_goes_step_by_step_as_fast_as_he_likes(world: ApiWorld) -> None:
    await activate(world)
    steps = [(await promote(world, "operator")).json["pointer"]["percent"] for _ in range(4)]
    assert steps == [1, 10, 50, 100]


async def test_who_looked_before_somebody_elses_change_is_refused(world: ApiWorld) -> None:
    number = (await activate(world)).json["pointer"]["number"]
    assert (await promote(world, number=number)).status == 200
    late = await promote(world, number=number)
    assert (late.status, late.code) == (409, "conflict")
    assert (await promote(world, number=number + 1, to="active")).json["pointer"]["active"]["name"] == "least-allocated"


def test_settings_and_requests_know_the_goals_that_there_are() -> None:
    choices = RUNTIME_SETTINGS.settings["rollout_goal"].choices
    assert set(choices) == {*GOALS, CARD}
    schema = next(route for route in ROUTES if route.path == "/v1/policies/activate").body
    assert schema is not None
    for goal in GOALS:
        msgspec.convert({"name": "fgd", "goal": goal}, schema)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "fgd", "goal": "frag"}, schema)


async def test_a_candidate_is_compared_by_what_it_is_for_unless_somebody_says_otherwise(world: ApiWorld) -> None:
    core = world.admin.core
    assert core is not None
    for more, goal in (({}, "nodes"), ({"goal": "room"}, "room")):
        pointer = (await activate(world, name="ee", **more)).json["pointer"]
        assert pointer["made_for"] == "nodes"
        await world.until(lambda number=pointer["number"]: core.variants.number >= number)
        assert (await world.ask("GET", "/v1/policies", "viewer")).json["comparison"]["goal"] == goal
    card = (await world.ask("GET", "/v1/policies/ee@2/card", "viewer")).json["card"]
    assert card["goal"] == "nodes"


async def test_weights_that_name_an_unknown_goal_are_refused_unless_the_operator_names_one(world: ApiWorld) -> None:
    file = shipped("ee")
    card = msgspec.structs.replace(file.card, version=7, goal="reward: -price * nodes_used")
    data = encode(WeightsFile(file.arrays, card))
    given = PolicyRef("ee", 7, digest(data)), data
    how = {"stage": Stage.SHADOW, "percent": None, "by": "olga", "weights": given}
    with pytest.raises(GoalUnknown, match=r"goal, column 2: there is no feature 'price'.* or compare by another one"):
        await change(world.store, KEYS, "ee", **how)
    assert (await read_pointer(world.store, KEYS)).pointer.candidate is None
    assert (await change(world.store, KEYS, "ee", goal="nodes", **how)).goal == "nodes"
    refused = await world.ask("POST", "/v1/policies/activate", json={"name": "ee@7", "stage": "shadow"})
    assert (refused.status, refused.code) == (422, "invalid_value")
    assert "\n" not in refused.json["message"]


async def test_only_the_candidate_is_promoted(world: ApiWorld) -> None:
    await activate(world)
    other = await promote(world, name="random")
    assert (other.status, other.json["message"]) == (
        409, "policy: random is not the candidate; least-allocated@1 is",
    )  # fmt: skip
    assert (await promote(world, name="least-allocated@1")).status == 200


async def test_the_next_step_is_told_with_rule_goal_and_time(world: ApiWorld) -> None:
    await activate(world, promotion="auto", goal="room")
    core = world.admin.core
    assert core is not None
    await world.until(lambda: core.variants.has_candidate)
    told = (await world.ask("GET", "/v1/policies", "viewer")).json["comparison"]
    assert (told["promotion"], told["goal"], told["last_window"]) == ("auto", "room", None)
    step, back = told["rules"]
    assert (step["kind"], step["then"], step["automatic"], step["needed"]) == ("promote", "canary 1 %", True, 3)
    assert (back["kind"], back["automatic"]) == ("withdraw", True)
    in_s = dt.datetime.fromisoformat(step["at"]) - dt.datetime.now(dt.UTC)
    assert 60 < in_s.total_seconds() <= 90  # three windows of 30 s
    assert (await world.ask("POST", "/v1/policies/rollback", json={})).status == 200
    await world.until(lambda: not core.variants.has_candidate)
    assert (await world.ask("GET", "/v1/policies", "viewer")).json["comparison"]["rules"] == []


async def test_a_card_is_shown_without_etcd_at_hand(world: ApiWorld) -> None:
    learned = await world.ask("GET", "/v1/policies/marl-dqn@1/card", "viewer")
    assert (learned.status, learned.json["name"], learned.json["card"]["policy"]) == (200, "marl-dqn", "marl-dqn")
    assert learned.json["sha256"] == learned.json["card"]["sha256"]
    assert (await world.ask("GET", f"/v1/policies/{learned.json['sha256'][:12]}/card", "viewer")).status == 404
    heuristic = await world.ask("GET", "/v1/policies/random/card", "viewer")
    assert heuristic.json["card"]["weights"] == "none: a heuristic"


async def test_windows_are_shown_newest_first_page_by_page(world: ApiWorld) -> None:
    ring = world.parts.windows
    for _ in range(5):
        ring.keep(PolicyWindow(number=0, time="", active="kube-default@1"))
    await world.until(lambda: len(ring.kept) >= 5)
    seen: list[int] = []
    token = ""
    while True:
        page = (await world.ask("GET", f"/v1/policies/windows?limit=2&continue={token}", "viewer")).json
        seen += [one["number"] for one in page["items"]]
        token = page["continue"]
        if not token:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) >= 5
