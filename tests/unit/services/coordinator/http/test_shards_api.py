"""Shards by the admin API: shown with who leads them, changed by an admin, refused with a remedy."""

from __future__ import annotations

from pathlib import Path

from shared.ports import Put
from shared.runtime.records.shards import read_shards
from tests.unit.services.coordinator.http.api_world import api_world
from tests.unit.services.coordinator.test_shell import KEYS


async def test_shards_are_shown_and_changed(tmp_path: Path) -> None:
    async with api_world(tmp_path) as world:
        shown = await world.ask("GET", "/v1/shards", "viewer")
        assert (shown.json["generation"], [item["name"] for item in shown.json["items"]]) == (0, ["0"])
        assert shown.json["items"][0]["nodes"] == 3
        assert shown.json["items"][0]["binder"]
        refused = await world.ask("PUT", "/v1/shards", json={"names": ["0", "1"]})
        assert (refused.status, refused.code) == (422, "invalid_value")
        assert "--shard 1" in refused.json["message"]
        assert (await world.ask("PUT", "/v1/shards", "operator", json={"names": ["0"]})).status == 403
        await world.store.txn([], [Put(KEYS.binder_leader("1"), b"{}")])
        changed = await world.ask("PUT", "/v1/shards", json={"names": ["1", "0"], "reason": "more"})
        assert changed.status == 200, changed.text
        assert (changed.json["generation"], changed.json["by"], changed.json["reason"]) == (1, "admin:admin-1", "more")
        assert {item["name"]: bool(item["binder"]) for item in changed.json["items"]} == {"0": True, "1": False}
        assert (await read_shards(world.store, KEYS)).names == ("0", "1")
