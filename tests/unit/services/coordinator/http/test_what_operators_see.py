"""What operators see under load: overview, health, history, pending, nodes, resumed streams, results of changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.coordinator.io.totals import Totals
from shared.errors import StoreFenced, StoreUnknown
from shared.runtime.http.admin import AdminApp
from shared.runtime.http.limits import LoopLag
from shared.runtime.records.admin import read_audit
from shared.wire.records import MemberRecord, TotalsRecord, decode_record, encode_record
from tests.builders import make_node, make_pod
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.http.api_world import KEYS, TOKENS, ApiWorld, api_world


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    async with api_world(tmp_path) as world:
        yield world


async def test_the_overview_names_cluster_health_resources_and_totals(world: ApiWorld) -> None:
    found = (await world.ask("GET", "/v1/overview", "viewer")).json
    assert found["cluster"].keys() == {"name", "uid", "named_by"}
    assert found["health"]["verdict"] in ("ok", "degraded", "bad")
    assert found["pods"] == {"bound": 3, "bound_in_term": 3, "running": 3}
    assert [one["name"] for one in found["resources"][:2]] == ["cpu_millis", "memory_bytes"]
    assert found["resources"][0] | {"share": None} == {
        "name": "cpu_millis", "allocatable": 12_000, "requested": 300, "share": None, "nodes": 3,
    }  # fmt: skip
    assert found["nodes"] == {"total": 3, "drained": 0, "unowned": 0, "cordoned": 0, "not_ready": 0, "pressure": 0}


async def test_health_tells_what_it_rests_on(world: ApiWorld) -> None:
    vitals = world.parts.vitals
    vitals.backlog = lambda: (7, 61.0)
    vitals.look()
    found = (await world.ask("GET", "/v1/health", "viewer", at="c1")).json
    assert found["verdict"] == "bad"
    assert "writes_queued" in [finding["code"] for finding in found["findings"]]
    assert (found["measured"]["writes_queued"], found["measured"]["agents"]) == (7, 1)


async def test_overview_and_health_are_answered_however_late_the_loop_runs(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopLag, "asked", lambda _: True)
    monkeypatch.setattr(AdminApp, "_late_wait_s", lambda *_: 1.0)  # reads have had their part of the loop's time
    assert (await world.ask("GET", "/v1/members")).status == 429
    for path in ("/v1/overview", "/v1/health"):
        assert (await world.ask("GET", path)).status == 200


async def test_history_comes_in_columns_of_one_length_and_from_a_moment_on(world: ApiWorld) -> None:
    vitals = world.parts.vitals
    vitals.look()
    found = (await world.ask("GET", "/v1/history", "viewer")).json
    assert found["step_s"] == 10
    assert {len(column) for column in found["series"].values()} == {len(found["times"])} != {0}
    since = found["times"][-1]
    assert (await world.ask("GET", f"/v1/history?since={since + 1}")).json["times"] == []


async def test_pending_pods_are_told_in_groups_page_by_page(world: ApiWorld) -> None:
    for number in range(5):
        world.kube.add_pod(make_pod(f"big{number}").cpu("64").priority(number))
    core = world.admin.core
    assert core is not None
    await world.until(
        lambda: all(entry.plugins for entry in core.state.queue.entries.values()) and core.state.queue.entries
    )
    await world.until(lambda: len(core.state.queue.entries) == 5)
    await world.until(lambda: all(entry.plugins for entry in core.state.queue.entries.values()))
    first = (await world.ask("GET", "/v1/pending?limit=2&sort=priority", "viewer")).json
    assert (first["pods"], first["classes"], first["groups"]) == (5, 1, 5)
    assert [item["priority"] for item in first["items"]] == [4, 3]
    token = first["continue"]
    rest = (await world.ask("GET", f"/v1/pending?limit=9&sort=priority&continue={token}", "viewer")).json
    assert [item["priority"] for item in rest["items"]] == [2, 1, 0]
    assert rest["continue"] == ""
    one = (await world.ask("GET", "/v1/pending?priority=3&namespace=default&reason=NodeResourcesFit")).json
    assert [item["oldest_pod"] for item in one["items"]] == ["default/big3"]
    assert one["items"][0]["message"] == "0/3 nodes are available: 3 Insufficient cpu."
    assert (await world.ask("GET", "/v1/pending?namespace=none")).json["items"] == []


async def test_one_picture_is_painted_for_all_who_ask(world: ApiWorld) -> None:
    answers = await asyncio.gather(*(world.ask("GET", f"/v1/pending?limit={n + 1}") for n in range(8)))
    assert len({answered.json["made"][:21] for answered in answers}) == 1


# --- nodes ----------------------------------------------------------------------------------------------------------


async def ill_nodes(world: ApiWorld) -> None:
    sick = make_node("sick").label(**{"topology.kubernetes.io/zone": "z1", "pool": "gpu", "disk": "ssd"}).gpus(2)
    sick.json["status"]["conditions"] = [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
        {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"},
        {"type": "DiskPressure", "status": "False"},
    ]
    world.kube.add_node(sick)
    world.kube.add_node(make_node("closed").cordon().label(**{"topology.kubernetes.io/zone": "z2"}))
    core = world.admin.core
    assert core is not None
    await world.until(lambda: len(core.state.cache.table.row_of) == 5)


async def test_a_node_tells_its_conditions_pressure_zone_pool_and_the_labels_asked_for(world: ApiWorld) -> None:
    await ill_nodes(world)
    (node,) = (await world.ask("GET", "/v1/nodes?selector=disk+in+(ssd)&labels=disk,absent", "viewer")).json["items"]
    assert (node["name"], node["ready"], node["pressure"]) == ("sick", False, ["memory"])
    assert [condition["type"] for condition in node["conditions"]] == ["Ready", "MemoryPressure"]
    assert node["conditions"][0]["since"] == "2026-01-01T00:00:00Z"
    assert (node["zone"], node["pool"], node["labels"]) == ("z1", "gpu", {"disk": "ssd"})
    assert node["allocatable"]["conclave.io/gpu-milli"] == 2000
    whole = (await world.ask("GET", "/v1/nodes/sick", "viewer")).json
    assert (whole["ready"], whole["labels"]["pool"]) == (False, "gpu")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=not_ready", ["sick"]), ("state=pressure", ["sick"]), ("state=cordoned", ["closed"]),
        ("state=ready", ["n0", "n1", "n2"]), ("zone=z2", ["closed"]), ("pool=gpu", ["sick"]),
        ("selector=!disk,pool", []),
    ],
)  # fmt: skip
async def test_nodes_are_listed_by_state_place_and_label(world: ApiWorld, query: str, names: list[str]) -> None:
    await ill_nodes(world)
    found = (await world.ask("GET", f"/v1/nodes?{query}", "viewer")).json
    assert [node["name"] for node in found["items"]] == names


async def test_a_node_that_is_well_again_is_told_so(world: ApiWorld) -> None:
    await ill_nodes(world)
    core = world.admin.core
    assert core is not None
    world.kube.add_node(
        make_node("sick").label(**{"topology.kubernetes.io/zone": "z1", "pool": "gpu", "disk": "ssd"}).gpus(2)
    )
    await world.until(lambda: not core.state.unhealthy)


async def test_the_map_is_grouped_and_has_a_column_per_extended_resource(world: ApiWorld) -> None:
    await ill_nodes(world)
    found = (await world.ask("GET", "/v1/nodes/map?groupBy=zone", "viewer")).json
    assert found["names"] == ["closed", "n0", "n1", "n2", "sick"]
    assert [found["groups"][place] for place in found["group"]] == ["z2", "", "", "", "z1"]
    assert found["flags"] == [2, 0, 0, 0, 8 + 16]
    assert found["shares"] == {"conclave.io/gpu-milli": [None, None, None, None, 0.0]}
    assert {"zone", "pool", "label:disk"} <= set(found["group_keys"])
    by_label = (await world.ask("GET", "/v1/nodes/map?groupBy=label:disk", "viewer")).json
    assert [by_label["groups"][place] for place in by_label["group"]] == ["", "", "", "", "ssd"]


# --- streams --------------------------------------------------------------------------------------------------------


async def read_events(world: ApiWorld, until: int, *, last_seen: str = "", at: str = "c0") -> list[dict[str, str]]:
    """Events of one reader, until so many decisions were seen."""
    headers = {"Authorization": f"Bearer {TOKENS['viewer']}"} | ({"Last-Event-ID": last_seen} if last_seen else {})
    url = world.listeners[at].url + "/v1/decisions/stream?events=decision,leader"
    events: list[dict[str, str]] = []
    async with asyncio.timeout(PATIENCE_S), world.session.get(url, headers=headers) as response:
        event: dict[str, str] = {}
        async for raw in response.content:
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            events.append(event)
            event = {}
            if sum(one.get("event") == "decision" for one in events) >= until:
                break
    return events


@pytest.mark.parametrize("at", ["c0", "c1"])
async def test_a_reader_that_comes_back_gets_what_it_missed(world: ApiWorld, at: str) -> None:
    term = world.leading.term
    events = await read_events(world, 2, last_seen=f"{term}-1", at=at)
    assert [one["id"] for one in events if one["event"] == "decision"] == [f"{term}-2", f"{term}-3"]


async def test_a_reader_of_another_term_begins_anew(world: ApiWorld) -> None:
    reading = asyncio.create_task(read_events(world, 1, last_seen=f"{world.leading.term + 1}-1"))
    core = world.admin.core
    assert core is not None
    await world.until(lambda: core.state.recent._feeds)
    world.kube.add_pod(make_pod("fresh").cpu("100m"))
    decided = [one for one in await reading if one["event"] == "decision"]
    assert [msgspec.json.decode(one["data"])["name"] for one in decided] == ["fresh"]


# --- audit, totals --------------------------------------------------------------------------------------------------


async def test_the_audit_log_names_what_was_changed_and_how_it_ended(world: ApiWorld) -> None:
    await world.ask("POST", "/v1/nodes/n0/drain", json={"reason": "disk"})
    await world.ask("PATCH", "/v1/settings", json={"values": {"batch_units": 9}})
    await world.ask("PATCH", "/v1/settings", json={"values": {"batch_units": 8}, "number": 77})
    await world.ask("POST", "/v1/policies/activate", json={"name": "no-such"})
    await world.ask("POST", "/v1/scheduling/pause")
    records = await read_audit(world.store, KEYS)
    assert [(record.target, record.result) for record in reversed(records)] == [
        ("n0", "ok"), ("batch_units", "ok"), ("batch_units", "conflict"), ("no-such", "policy_unknown"),
        ("scheduling", "ok"),
    ]  # fmt: skip


async def test_pods_bound_go_on_from_what_earlier_leaders_counted(world: ApiWorld) -> None:
    totals = world.parts.totals
    await totals.write(1000)
    kv = await world.store.get(KEYS.coordinator_totals)
    assert kv is not None
    record = decode_record(kv.value, TotalsRecord)
    assert record is not None
    assert record.bound == 1000
    later = Totals(world.store, KEYS, term=world.leading.term, bound=lambda: 5)
    running = asyncio.create_task(later.run())
    await world.until(lambda: later.bound == 1005)
    running.cancel()


async def test_totals_of_a_term_that_is_over_are_refused(world: ApiWorld) -> None:
    with pytest.raises(StoreFenced):
        await Totals(world.store, KEYS, term=1, bound=lambda: 0).write(1)


# --- status while the leader is busy --------------------------------------------------------------------------------


async def test_members_and_terms_are_answered_from_memory_once_etcd_is_followed(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = world.desks["c0"]
    following = asyncio.create_task(desk.registry.run())
    await world.until(lambda: len(desk.registry._known) == 5)
    before = (await world.ask("GET", "/v1/members")).json["items"]

    async def silent(*_: Any, **__: Any) -> Any:
        raise StoreUnknown("etcd is not to be asked")

    monkeypatch.setattr(world.store, "list_prefix", silent)
    desk.glance = None
    for path in ("/v1/members?limit=400", "/v1/terms", "/v1/overview"):
        assert (await world.ask("GET", path)).status == 200, path
    assert (await world.ask("GET", "/v1/members?limit=401")).json["items"] == before
    following.cancel()


async def test_who_joins_later_is_seen(world: ApiWorld) -> None:
    desk = world.desks["c0"]
    following = asyncio.create_task(desk.registry.run())
    await world.until(lambda: len(desk.registry._known) == 5)
    record = MemberRecord(id="c7", url="http://c7", incarnation="i")
    await world.put(KEYS.member("coordinator", "c7"), encode_record(record))
    key = KEYS.members_prefix("coordinator")
    await world.until(lambda: desk.registry._known.get(key))
    assert "c7" in [one["id"] for one in (await world.ask("GET", "/v1/members?service=coordinator")).json["items"]]
    following.cancel()
