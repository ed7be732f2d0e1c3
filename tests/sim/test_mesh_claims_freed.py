"""What the coordinator takes from a claim (DynamicResources' PostFilter), it takes on the ground of what it judged."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.core import instructions as wanted
from shared.errors import LeadershipLost
from shared.runtime.kube import claims as claim_writes
from tests.fake_kube import at_once
from tests.sim.claims import add_claiming, check_claims, devices_of
from tests.sim.test_mesh_claims import Scene


def blocked(at: str) -> tuple[Scene, wanted.FreeClaim]:
    """A pod that runs with its claim, and an order to free that claim, decided ``at`` a resourceVersion ("now": at the
    one it has) when the pod was parked."""
    scene = Scene(nodes=1, devices=1)
    uid = add_claiming(scene.kube, "a")
    scene.go(5.0)
    meta = scene.claim("a-gpu")["metadata"]
    assert scene.world.node_of("a") == "n0"
    return scene, wanted.FreeClaim("default", "a-gpu", meta["uid"], uid, meta["resourceVersion"] if at == "now" else at)


def test_what_has_changed_since_it_was_judged_is_not_taken_from_who_runs_with_it_by_now() -> None:
    scene, order = blocked("1")
    at_once(scene.world.writes.free_claim(order))
    assert check_claims(scene.kube) == []
    assert devices_of(scene.claim("a-gpu"))


def test_ablation_what_is_judged_by_the_state_that_is_read_is_taken_from_who_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, order = blocked("1")

    async def anyhow(api: Any, claim: Any, consumer: str, *, may_act: Any, **_: str) -> bool:
        await claim_writes.free_claim(api, claim, consumer, deallocate=True, may_act=may_act)
        return True

    monkeypatch.setattr("services.coordinator.io.kube_writes.deallocate_claim", anyhow)
    at_once(scene.world.writes.free_claim(order))
    assert check_claims(scene.kube) != []


def test_what_is_written_between_its_read_and_its_write_is_not_read_again() -> None:
    scene, order = blocked("now")
    read, gets = scene.world.api.get, 0

    async def read_and_mark(*args: Any, **named: Any) -> Any:
        nonlocal gets
        gets += 1
        found = await read(*args, **named)
        patch = {"metadata": {"annotations": {"mark": str(gets)}}}
        scene.kube.patch_claim("default/a-gpu", patch, "")  # a binder goes on with what it has
        return found

    scene.world.api.get = read_and_mark  # type: ignore[method-assign]
    at_once(scene.world.writes.free_claim(order))
    assert gets == 1
    assert check_claims(scene.kube) == []


def test_who_may_not_lead_any_more_frees_nothing() -> None:
    scene, order = blocked("now")
    scene.world.may_act = False
    with pytest.raises(LeadershipLost, match="a claim was not written"):
        at_once(scene.world.writes.free_claim(order))
    assert devices_of(scene.claim("a-gpu"))
