"""Autoscaled services by the admin API: what the autoscaler's core records is what is shown, with go and cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shared.ports import DeleteKey, Put, Store
from shared.wire.records import AutoscaleRecord
from tests.unit.services.autoscaler.scaler_world import KEY, World, spec_of
from tests.unit.services.coordinator.http.api_world import SCALED, ApiWorld, api_world
from tests.unit.services.coordinator.test_shell import KEYS


async def keep(store: Store, world: World) -> None:
    """What the autoscaler of this world has committed, in etcd."""
    assert world.record is not None
    puts = [Put(KEYS.autoscaler_last(KEY), msgspec.json.encode(world.record))]
    puts += [
        Put(KEYS.autoscaler_decision(KEY, one["number"] % 64), msgspec.json.encode(one))  # type: ignore[operator]
        for one in world.decisions
    ]
    await store.txn([], puts)


def decided() -> World:
    """4 -> 7 by the policy in a role, with a go; HPA's rule wants 5; then somebody sets 12."""
    world = World(spec=spec_of("front"))
    world.serve("front", 4)
    world.policy.wanted, world.rule.wanted = {"front": 7}, {"front": 5}
    world.policy.roles, world.policy.reasons = {"front": "ddos-manager"}, {"front": "trend above 0.25"}  # type: ignore[attr-defined]
    world.elect()
    world.run()
    world.approve()
    world.run(2)
    return world


async def listed(world: ApiWorld, query: str = "") -> dict[str, Any]:
    """The object of ``decided`` in the list."""
    items = (await world.ask("GET", f"/v1/autoscalers{query}", "viewer")).json["items"]
    return next(item for item in items if item["name"] == "graph")


async def test_what_was_recorded_is_shown_with_who_acted_and_what_hpa_would_have_done(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        await keep(world.store, decided())
        item = await listed(world)
        assert (item["namespace"], item["name"], item["decided_by"]) == ("shop", "graph", "test")
        assert (item["go"], item["go_by"], item["trouble"], item["foreign"]) == ("counts", "ada", "", {})
        (service,) = item["services"]
        assert (service["replicas"], service["hpa"], service["wanted"], service["allowed"]) == (7, 5, 7, 7)
        assert (service["role"], service["cores"], service["arrivals"]) == (
            "ddos-manager",
            2.0,
            None,
        )  # four are ready, at half a core each
        assert "trend above 0.25" in service["why"]


async def test_one_object_has_its_past_and_its_cost(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        await keep(world.store, decided())
        answer = await world.ask("GET", "/v1/autoscalers/shop/graph", "viewer")
        one = answer.json
        assert [moment["replicas"] for moment in one["history"]] == [4, 4, 7]
        assert [moment["hpa"] for moment in one["history"]] == [5, 5, 5]
        # 4 replicas for the ten seconds between the decisions, of which HPA would have had 5
        assert one["cost"] == {"seconds": 10.0, "replica_hours": 40 / 3600, "hpa_replica_hours": 50 / 3600}
        assert [(row["before"], row["after"], row["written"]) for row in one["decisions"]] == [
            (4, 7, True),
            (4, 7, False),
        ]


async def test_a_go_that_is_void_and_a_foreign_writer_are_told(tmp_path: Path) -> None:
    scaled = decided()
    scaled.scale("front", 12, writer="kubectl")
    scaled.run()
    async with api_world(tmp_path) as world:
        await keep(world.store, scaled)
        item = await listed(world)
        assert item["foreign"] == {"front": "kubectl"}
        assert item["services"][0]["held"].startswith("ForeignWriter: ")
        changed = spec_of("front", go=scaled.spec["go"])
        changed["targets"][0]["maxReplicas"] = 19
        scaled.apply(changed)
        scaled.run()
        await keep(world.store, scaled)
        assert (await listed(world, "?limit=7"))["go"] == "void"


async def test_an_object_nobody_decided_upon_is_unknown_and_none_is_an_empty_list(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        await world.store.txn([], [DeleteKey(put.key) for put in SCALED])
        assert (await world.ask("GET", "/v1/autoscalers")).json["items"] == []
        refused = await world.ask("GET", "/v1/autoscalers/shop/graph")
        assert (refused.status, refused.code) == (404, "autoscaler_unknown")


async def test_a_record_of_an_earlier_version_or_a_torn_one_harms_no_other(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        await keep(world.store, decided())
        old = AutoscaleRecord(uid="u", term=1, number=9, at=0.0, go=("bob", "sha256:x", ""))
        await world.store.txn(
            [],
            [
                Put(KEYS.autoscaler_last("shop/old"), msgspec.json.encode(old)),
                Put(KEYS.autoscaler_last("shop/torn"), b"{"),
                Put(KEYS.autoscaler_decision("shop/old", 0), b"[1"),
            ],
        )
        items = (await world.ask("GET", "/v1/autoscalers")).json["items"]
        assert [(item["name"], len(item["services"])) for item in items] == [("n0", 1), ("graph", 1), ("old", 0)]
        whole = (await world.ask("GET", "/v1/autoscalers/shop/old")).json
        assert (whole["history"], whole["cost"]["seconds"]) == ([], 0.0)
