"""Claims that the API server lets nobody here write: units end, and hold neither intent nor pod for ever."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.instructions import ReleaseClaim, WriteClaim
from services.binder.cycle.claim_returns import REFUSALS
from shared.errors import KubeRejected
from shared.turns import Tick
from shared.wire.messages import Outcome
from tests.sim.claims import check_claims, devices_of
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World
from tests.unit.services.binder.gang_scenes import outcomes
from tests.unit.services.binder.test_binder_claims import claim_of, claiming_world, until


def forbid(world: World, monkeypatch: pytest.MonkeyPatch, status: int = 403, times: int = 1000) -> None:
    """So many of the writes of claims that come next are refused."""
    writes, left = world.kube.patch_claim, iter(range(times))

    def patch_claim(*arguments: Any) -> Any:
        if next(left, None) is not None:
            raise KubeRejected("not allowed", status=status, reason="Refused")
        return writes(*arguments)

    monkeypatch.setattr(world.kube, "patch_claim", patch_claim)


def leaving() -> tuple[World, Binder]:
    """The claim of p is written, and its node is cordoned."""
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    until(world, binder, ReleaseClaim)
    return world, binder


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_claim_of_which_nothing_could_be_written_is_not_given_back(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = claiming_world()
    forbid(world, monkeypatch, status)
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.tell(binder, Tick())
    assert not any(isinstance(one, ReleaseClaim) for one in binder.effects)
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.REFUSED]
    assert not world.intents()


def test_a_claim_whose_finalizer_was_written_is_given_back_though_the_rest_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    writes = world.kube.patch_claim

    def patch_claim(key: str, patch: Any, subresource: str) -> Any:
        if subresource:
            raise KubeRejected("not allowed", status=403, reason="Refused")
        return writes(key, patch, subresource)

    monkeypatch.setattr(world.kube, "patch_claim", patch_claim)
    world.run(binder, WriteClaim)
    assert claim_of(world)["metadata"]["finalizers"]
    world.settle(binder)
    assert not claim_of(world)["metadata"].get("finalizers")
    assert not world.intents()


def test_a_claim_of_which_a_write_got_no_answer_is_given_back_though_the_next_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim, fault="late")
    world.now += 1
    world.tell(binder, Tick())
    until(world, binder, WriteClaim)
    forbid(world, monkeypatch, times=1)
    world.run(binder, WriteClaim)
    until(world, binder, ReleaseClaim)
    world.settle(binder)
    for write in world.api.delayed:
        with pytest.raises(KubeRejected, match="precondition"):
            write()
    assert not devices_of(claim_of(world))
    assert not world.intents()


def test_what_may_not_be_given_back_is_told_of_and_holds_no_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    world, binder = leaving()
    forbid(world, monkeypatch)
    world.settle(binder)
    assert not world.intents()
    assert not binder.core.state.devices.accounts.assumed
    [told] = [one for one in binder.logs if one.event == "claim_left_as_it_is"]
    assert dict(told.facts)["claim"] == "default/p-gpu"
    assert dict(told.facts)["status"] == 403
    assert check_all(world) == []


@pytest.mark.parametrize("status", [403, 503])
def test_what_is_refused_for_a_while_is_given_back_after_that(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world, binder = leaving()
    forbid(world, monkeypatch, status, times=REFUSALS - 1 if status == 403 else 3 * REFUSALS)
    world.settle(binder)
    assert not devices_of(claim_of(world))
    assert not world.intents()
    assert not any(one.event == "claim_left_as_it_is" for one in binder.logs)
    assert check_all(world) + check_claims(world.kube) == []
