"""What a leader says of a pod in each of its states."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from services.coordinator.core.decisions import LIMIT, Considered, PastDecision, Recent
from services.coordinator.http.peer_routes import MAX_EXPLAINING, Admin
from services.coordinator.inspect.explain import explain, explain_gone
from shared.model.pod import POLICY_ANNOTATION
from shared.runtime.http.peers import build_app
from shared.runtime.observe.metrics import Metrics
from tests.builders import PodBuilder, make_node, make_pod
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.scene import Scene


def scene_with(*pods: PodBuilder) -> Scene:
    scene = Scene(agents=2)
    for name in ("n0", "n1"):
        scene.add_node(make_node(name).node())
    scene.begin()
    for pod in pods:
        scene.add_pod(pod.pod())
    scene.run()
    return scene


def asked(scene: Scene, uid: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return explain(scene.core, scene.pods[uid], annotations or {}, scene.now)


def test_a_pod_that_fits_nowhere_shows_its_place_attempts_and_the_numbers() -> None:
    scene = scene_with(make_pod("big").cpu("6"))
    answer = asked(scene, "uid-big")
    assert answer["state"] == "pending"
    assert answer["queue"]["place"] == "unschedulable"
    assert answer["queue"]["attempts"] == 1
    assert answer["queue"]["rejected_by"] == ["NodeResourcesFit"]
    assert 0 < answer["queue"]["next_retry_s"] <= 300
    (group,) = answer["nodes"]["groups"]
    assert (group["count"], group["plugin"]) == (2, "NodeResourcesFit")
    shortage = group["nodes"][0]["shortages"][0]
    assert (shortage["requested"], shortage["free"], shortage["short_by"]) == (6000, 4000, 2000)
    assert "ask for at most 4 cpu" in group["change"]


def test_a_bound_pod_shows_the_candidates_scores_and_policy_version_of_the_time() -> None:
    scene = scene_with(make_pod("p").cpu("1"))
    assert [uid for uid, _ in scene.bindings] == ["uid-p"]
    answer = asked(scene, "uid-p", {POLICY_ANNOTATION: "kube-default@1"})
    assert answer["state"] == "bound"
    assert answer["policy"] == "kube-default@1"
    assert answer["nodes"] is None
    decision = answer["decision"]
    assert decision["policy"] == "kube-default"
    assert decision["candidates"][0]["node"] == decision["node"] == answer["node"]
    assert {c["node"] for c in decision["candidates"]} == {"n0", "n1"}
    # in the policy's own unit, not in the wire's millionths: kube-default's scores are sums of some hundreds
    assert all(0 < c["score"] < 1000 and c["accepted"] for c in decision["candidates"])


def test_gated_invalid_and_foreign_pods_are_told_apart() -> None:
    gated = make_pod("gated").cpu("1")
    gated.json["spec"]["schedulingGates"] = [{"name": "wait"}]
    foreign = make_pod("foreign").cpu("1")
    foreign.json["spec"]["schedulerName"] = "default-scheduler"
    scene = scene_with(gated, foreign, make_pod("broken").cpu("nonsense"))
    assert asked(scene, "uid-gated")["state"] == "gated"
    assert "wait" in asked(scene, "uid-gated")["summary"]
    assert asked(scene, "uid-foreign")["state"] == "not_ours"
    broken = asked(scene, "uid-broken")
    assert broken["state"] == "invalid"
    assert "nonsense" in broken["summary"]
    assert broken["queue"] is None


def test_a_pod_whose_plan_is_open_is_on_its_way() -> None:
    scene = scene_with()
    scene.hold_plans = True
    scene.add_pod(make_pod("p").cpu("1").pod())
    scene.run()
    answer = asked(scene, "uid-p")
    assert answer["state"] == "placing"
    assert answer["summary"].startswith("on its way to n")
    assert answer["decision"]["node"] in answer["summary"]


def test_a_pod_that_may_preempt_is_told_whom() -> None:
    scene = scene_with(make_pod("low").cpu("4").on("n0"), make_pod("other").cpu("4").priority(9).on("n1"))
    high = make_pod("high").cpu("4").priority(5).pod()
    answer = explain(scene.core, high, {}, scene.now)
    assert answer["preemption"]["summary"] == "would evict default/low from n0"
    fits = explain(scene_with().core, high, {}, scene.now)
    assert (fits["preemption"], fits["nodes"]["feasible"]) == (None, 2)


async def test_only_so_many_questions_are_answered_at_once_and_each_result_is_counted() -> None:
    asked, release = 0, asyncio.Event()

    class Slow:
        async def get(self, *_: Any, **__: Any) -> None:
            nonlocal asked
            asked += 1
            await release.wait()

    class Leading:
        term, leader = 7, None

    admin, metrics = Admin("c0"), Metrics("coordinator")
    admin.register(metrics)
    admin.parts = SimpleNamespace(core=scene_with().core, api=Slow())  # type: ignore[assignment]
    admin.leadership = Leading()  # type: ignore[assignment]
    app = build_app(metrics, routes=admin.routes())
    async with TestClient(TestServer(app)) as client:
        waiting = [asyncio.create_task(client.get("/v1/explain/default/p")) for _ in range(MAX_EXPLAINING)]
        async with asyncio.timeout(PATIENCE_S):
            while asked < MAX_EXPLAINING:  # noqa: ASYNC110  # the requests are under way; each turn takes them on
                await asyncio.sleep(0)
        refused = await client.get("/v1/explain/default/p")
        assert (refused.status, (await refused.json())["code"]) == (429, "overloaded")
        assert refused.headers["Retry-After"] == "1"
        release.set()
        answers = await asyncio.gather(*waiting)
        assert {(answer.status, (await answer.json())["code"]) for answer in answers} == {(404, "pod_unknown")}
        admin.leadership = admin.parts = None
        standby = await client.get("/v1/explain/default/p")
        assert (standby.status, (await standby.json())["code"]) == (421, "not_leader")
    told = metrics.exposition().decode()
    assert f'conclave_explain_requests_total{{result="pod_unknown"}} {float(MAX_EXPLAINING)}' in told
    assert 'conclave_explain_requests_total{result="overloaded"} 1.0' in told
    assert 'conclave_explain_requests_total{result="not_leader"} 1.0' in told


def test_a_pods_story_comes_with_the_answer_also_once_it_is_gone() -> None:
    scene = Scene(agents=1)
    scene.add_node(make_node("n0").allocatable(cpu="2").node())
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("p").cpu("1").pod())
    scene.run()
    told = explain(scene.core, scene.pods["uid-p"], {}, scene.now + 2.0)["story"]
    assert told[0] == {"ago_s": 2.0, "text": "new -> active (seen)"}
    scene.delete_pod("uid-p")
    scene.run()
    gone = explain_gone(scene.core, "default/p", scene.now)
    assert gone is not None
    assert [line["text"] for line in gone["story"]][: len(told)] == [line["text"] for line in told]


def test_asking_changes_nothing() -> None:
    scene = scene_with(make_pod("big").cpu("6"), make_pod("p").cpu("1"))
    before = (scene.core.state.cache.table.clock, dict(scene.core.state.queue.entries), scene.core.state.messages)
    asked(scene, "uid-big")
    asked(scene, "uid-p")
    assert before == (
        scene.core.state.cache.table.clock, dict(scene.core.state.queue.entries), scene.core.state.messages,
    )  # fmt: skip


def test_the_oldest_decision_is_forgotten_first_and_a_pod_counts_once() -> None:
    recent = Recent(limit=2)
    decision = PastDecision(0.0, 1, "n", "kube-default", 1, (Considered("n", 1.0, True),))
    for uid in ("a", "b", "a", "c"):
        recent.remember(uid, decision)
    assert list(recent) == ["a", "c"]
    assert recent.of("b") is None
    assert LIMIT == 4096
