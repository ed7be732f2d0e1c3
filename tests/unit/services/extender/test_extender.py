"""What an extender answers kube-scheduler: its words, its scores, and what it does with a policy that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from services.extender.app import STALE_S, ExtenderListener
from services.extender.core import NEUTRAL, ExtenderCore
from services.extender.protocol import QuestionInvalid, read_question
from services.extender.settings import ExtenderSettings
from shared.decide.guard import no_clock
from shared.model.cluster_events import Listed, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from shared.policy.domain import PLACEMENT
from shared.policy.observation import Observation, Policy, Rng, Verdicts
from shared.policy.registry import make_policy, ref_of
from shared.runtime.http.listener import listen
from shared.wire.records import PolicyRef
from tests.builders import make_node, make_pod

Json = dict[str, Any]
NOW = 1000.0
NODES = [f"n{number}" for number in range(6)]


class Broken:
    """A policy that answers nothing that can be used."""

    name, version, row_local = "broken", 1, True

    def decide(self, observation: Observation, _rng: Rng) -> Verdicts:
        return Verdicts(np.full(len(observation.rows), np.nan))


def core_of(policy: Policy | str, *, latencies: bool = False) -> ExtenderCore:
    """Six nodes, the first ones fuller than the last; the last but one is closed by a taint."""
    made = make_policy(policy) if isinstance(policy, str) else policy
    ref = ref_of(policy) if isinstance(policy, str) else PolicyRef("broken", 1)
    core = ExtenderCore(ref, made, Random(1), clock=no_clock, limits=PLACEMENT.limits)
    for number, name in enumerate(NODES):
        node = make_node(name).allocatable(cpu="8", memory="16Gi", pods="20")
        if number == 4:
            node = node.taint("dedicated", "NoSchedule", "x")
        found = node.node()
        core.take([NodeUpserted(replace_latency(found, 10_000 * number) if latencies else found)])
    for number in range(5):
        for more in range(5 - number):
            pod = make_pod(f"p{number}-{more}").cpu("1").memory("2Gi").on(f"n{number}")
            core.take([PodUpserted(pod.pod())])
    core.take([Listed("nodes"), Listed("pods")])
    return core


def replace_latency(node: Any, latency_us: int) -> Any:
    from msgspec.structs import replace as other

    return other(node, latency_us=latency_us)


def scores(core: ExtenderCore, pod: Json, names: list[str] = NODES) -> dict[str, int]:
    asked = read_question(json.dumps({"Pod": pod, "NodeNames": names}).encode())
    return dict(zip(names, core.prioritize(asked.pod, names, NOW).scores, strict=True))


def test_the_policys_best_node_gets_ten_and_its_worst_nothing() -> None:
    found = scores(core_of("least-allocated"), make_pod("new").cpu("500m").json)
    assert found == {"n0": 0, "n1": 2, "n2": 4, "n3": 6, "n4": 0, "n5": 10}
    assert scores(core_of("most-allocated"), make_pod("new").cpu("500m").json)["n0"] == 10


@pytest.mark.parametrize("policy", ["el", "ee", "lb", "frag", "fgd", "marl-dqn", "power"])
def test_every_policy_ranks_by_what_the_api_server_shows(policy: str) -> None:
    core = core_of(policy, latencies=True)
    pod = make_pod("new").cpu("500m").json
    pod["metadata"]["annotations"] = {"latencySoftConstraint": "15", "latencyHardConstraint": "35"}
    found = scores(core, pod)
    assert core.fell == 0
    assert set(found.values()) <= set(range(11))
    assert max(found.values()) > 0


def test_what_is_bound_elsewhere_counts_at_once_and_what_is_gone_no_more() -> None:
    core = core_of("least-allocated")
    pod = make_pod("new").cpu("500m").json
    for number in range(7):
        core.take([PodUpserted(make_pod(f"x{number}").cpu("1").memory("2Gi").on("n5").pod())])
    assert scores(core, pod)["n5"] == 0
    core.take([PodDeleted(f"uid-x{number}") for number in range(7)])
    assert scores(core, pod)["n5"] == 10
    core.take([NodeDeleted("n5")])
    assert scores(core, pod)["n5"] == 0
    assert core.unknown == 1


def test_a_policy_that_fails_has_no_say() -> None:
    core = core_of(Broken())
    asked = read_question(json.dumps({"Pod": make_pod("new").json, "NodeNames": NODES}).encode())
    found = core.prioritize(asked.pod, NODES, NOW)
    assert (found.fell, set(found.scores)) == (True, {NEUTRAL})
    assert core.fell == 1


def test_without_the_guard_a_broken_policy_would_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off: nobody looks at the verdicts."""
    monkeypatch.setattr("shared.policy.guard.fault_of", lambda *_: None)
    core = core_of(Broken())
    asked = read_question(json.dumps({"Pod": make_pod("new").json, "NodeNames": NODES}).encode())
    assert not core.prioritize(asked.pod, NODES, NOW).fell


def test_filter_refuses_for_what_a_node_is_and_never_for_want_of_room() -> None:
    core = core_of("lb")
    asked = read_question(json.dumps({"Pod": make_pod("big").cpu("7").json, "NodeNames": [*NODES, "unseen"]}).encode())
    assert core.filter(asked.pod, asked.names) == {"n4": "node(s) had untolerated taint(s)"}


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(ExtenderListener(core_of("lb"), "lb@1").app())) as found:
        yield found


async def test_both_forms_of_a_question_are_answered_in_their_form(client: TestClient[Any, Any]) -> None:
    pod = make_pod("new").json
    answer = await client.post("/filter", json={"Pod": pod, "NodeNames": ["n4", "n5"]})
    assert await answer.json() == {
        "Nodes": None, "NodeNames": ["n5"], "FailedNodes": {}, "Error": "",
        "FailedAndUnresolvableNodes": {"n4": "node(s) had untolerated taint(s)"},
    }  # fmt: skip
    whole = [{"metadata": {"name": name, "labels": {"kept": name}}, "status": {"x": [1]}} for name in ("n4", "n5")]
    answer = await client.post("/filter", json={"Pod": pod, "Nodes": {"items": whole}})
    assert (await answer.json())["Nodes"] == {"items": whole[1:]}
    answer = await client.post("/prioritize", json={"Pod": pod, "Nodes": {"items": whole}})
    assert [one["Host"] for one in await answer.json()] == ["n4", "n5"]
    status = await (await client.get("/status")).json()
    assert (status["asked"], status["nodes"], status["policy"]) == (1, 6, "lb@1")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "truncated"), (b"[]", "Expected `object`"), (b'{"NodeNames": []}', "Pod: is missing"),
        (b'{"Pod": {"metadata": {"name": "a"}}}', "Nodes, NodeNames: both are missing"),
        (b'{"Pod": {"metadata": {"name": "a"}}, "NodeNames": [1]}', "$.NodeNames[0]"),
        (b'{"Pod": {"metadata": {"name": "a"}}, "Nodes": {"items": [7]}}', "Expected `object`"),
        ((b'{"Pod": {"metadata": {"name": "a"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}},'
         b' "NodeNames": []}'), "correct the pod"),
        (b"\xff", "send ExtenderArgs"),
    ],
)  # fmt: skip
async def test_bad_input_is_refused_by_a_stable_code(client: TestClient[Any, Any], body: bytes, why: str) -> None:
    for route in ("/filter", "/prioritize"):
        answer = await client.post(route, data=body)
        told = await answer.json()
        assert (answer.status, told["code"]) == (400, "invalid_request"), told
        assert why in told["message"]


async def test_other_routes_and_methods_are_refused_too(client: TestClient[Any, Any]) -> None:
    assert (await client.post("/bind", json={})).status == 404
    assert (await client.get("/filter")).status == 405
    assert (await client.get("/healthz")).status == 200


async def test_before_the_cluster_is_known_it_is_not_ready() -> None:
    core = ExtenderCore(ref_of("lb"), make_policy("lb"), Random(1), clock=no_clock, limits=PLACEMENT.limits)
    async with TestClient(TestServer(ExtenderListener(core, "lb@1").app())) as client:
        assert (await client.get("/healthz")).status == 503
        answer = await client.post("/filter", json={"Pod": make_pod("a").json, "NodeNames": []})
        assert (answer.status, (await answer.json())["code"]) == (503, "not_ready")


async def test_where_certificates_are_wanted_who_shows_none_learns_health_alone() -> None:
    listener = ExtenderListener(core_of("lb"), "lb@1", mutual=True)
    async with TestClient(TestServer(listener.app())) as client:
        assert (await client.get("/healthz")).status == 200
        assert (await client.post("/filter", json={})).status == 401
        assert (await client.get("/status")).status == 401


def test_settings_that_would_open_it_to_everybody_are_refused() -> None:
    with pytest.raises(ValueError, match=r"listen: 0\.0\.0\.0:1 is beyond loopback; give the tls_"):
        ExtenderSettings(listen="0.0.0.0:1")
    with pytest.raises(QuestionInvalid):
        read_question(b"null")
    assert replace(ExtenderSettings(), listen="localhost:0").listen == "localhost:0"


async def test_what_is_out_of_date_is_not_answered_by_and_kube_scheduler_goes_on_alone() -> None:
    age = [0.0]
    listener = ExtenderListener(core_of("lb"), "lb@1", age_s=lambda: age[0])
    async with TestClient(TestServer(listener.app())) as client:
        asked = {"Pod": make_pod("a").json, "NodeNames": NODES}
        assert (await client.post("/filter", json=asked)).status == 200
        age[0] = STALE_S + 1
        for route in ("/filter", "/prioritize"):
            answer = await client.post(route, json=asked)
            assert (answer.status, (await answer.json())["code"]) == (503, "not_ready")
        assert (await client.get("/healthz")).status == 503
        assert (await (await client.get("/status")).json())["age_s"] == age[0]


async def test_a_question_that_never_ends_is_refused_and_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.http.guard.BODY_TIMEOUT_S", 0.05)
    listener = ExtenderListener(core_of("lb"), "lb@1")
    found = await listen(listener.app(), drain_s=0.1)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()
    finally:
        await found.close()
    assert listener.refused == 1


async def test_whole_nodes_beyond_what_the_loop_bears_are_refused_with_the_remedy(
    client: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.extender.app.MOST_BYTES", 100)
    answer = await client.post("/filter", data=b"{" + b" " * 200)
    assert answer.status == 413
    assert "nodeCacheCapable: true" in (await answer.json())["message"]
