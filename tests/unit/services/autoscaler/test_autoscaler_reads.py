"""What a round reads, and what it says of what it cannot read: workloads, HPAs, the record, every kind of metric."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from services.autoscaler.core.events import RoundRead, TargetFact
from services.autoscaler.core.instructions import ReadRound
from services.autoscaler.io.follow import sources
from services.autoscaler.io.reads import Reads, ServedKinds
from shared.adapters.prometheus import PrometheusClient
from shared.errors import ConfigError, KubeRejected, KubeUnknown
from shared.kube.resources import NODES, PODS, Resource
from shared.kube.scaling.autoscaling import AUTOSCALERS
from shared.kube.scaling.scaled_objects import BUDGETS, HPAS, OWNED_SETS
from shared.model.controllers.autoscaler import ScalingSignal
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord
from tests.fake_prometheus import FakePrometheus
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S
from tests.unit.services.autoscaler.scaler_world import scaler_of, spec_of

Json = dict[str, Any]
WALL = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/front"
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"


class Api:
    """Answers by path; what is not there is 404."""

    def __init__(self, **answers: Json) -> None:
        self.answers: dict[str, Any] = {DEPLOYMENT: deployment(), **answers}
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def read(
        self, route: str, path: str, *, query: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> bytes:
        self.asked.append((path, query or {}))
        answer = self.answers.get(path)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise KubeRejected("not found", status=404)
        return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)

    async def get(self, resource: Any, *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        raise KubeUnknown("no answer")


def deployment(**status: int) -> Json:
    return {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": 4, "selector": {"matchLabels": {"app": "front"}}},
        "status": {"replicas": 4, "updatedReplicas": 4, **status},
    }


def values(*numbers: str, at: str = AT) -> Json:
    return {"items": [{"value": number, "timestamp": at} for number in numbers]}


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    one = [({}, lambda _: 12.5)]
    two = [({"a": "1"}, lambda _: 1.0), ({"a": "2"}, lambda _: 2.0)]
    rows = {"one": one, "two": two, "nan": [({}, lambda _: float("nan"))]}
    async with FakePrometheus(rows).serving() as found:
        yield found


async def read(
    api: Api, *metrics: Json, prometheus: FakePrometheus | None = None, store: MemoryStore | None = None,
    hpas: Mapping[str, str] | None = None, ref: Json | None = None,
) -> RoundRead:  # fmt: skip
    spec = spec_of("front")
    if metrics:
        spec["targets"][0]["metrics"] = list(metrics)
    spec["targets"][0]["scaleTargetRef"] |= ref or {}
    scaler = scaler_of(spec)
    assert scaler.problems == ()
    kinds: Any = ServedKinds(api, 1.0)  # type: ignore[arg-type]

    def reads(client: PrometheusClient | None) -> Reads:
        anything: Any = api
        return Reads(
            anything, store or MemoryStore(), Keys(), kinds=kinds, prometheus=client, timeout_s=1.0, wall=lambda: WALL
        )

    work = ReadRound(scaler, 3, hpas or {})
    if prometheus is None:
        return await reads(None).round(work)
    async with PrometheusClient(prometheus.url) as client:
        return await reads(client).round(work)


async def test_a_deployment_is_read_with_its_version_and_its_rollout():
    found = await read(Api())
    assert found.targets["front"] == TargetFact(
        uid="u", resource_version="7", replicas=4, there=4, selector="app=front"
    )
    rolling = await read(Api(**{DEPLOYMENT: deployment(updatedReplicas=1)}))
    assert "1 of 4" in rolling.targets["front"].rollout  # type: ignore[union-attr]


def stateful_set(strategy: Json, *, updated: int, ordinals: Json | None = None) -> Json:
    """Four pods, of two revisions."""
    status = {"replicas": 4, "updatedReplicas": updated, "currentRevision": "a", "updateRevision": "b"}
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "front"}}, "updateStrategy": strategy}
    return {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {**spec, **({"ordinals": ordinals} if ordinals else {})}, "status": status,
    }  # fmt: skip


def rolling(partition: int) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}


@pytest.mark.parametrize(
    ("strategy", "updated", "ordinals", "rollout"),
    [
        ({"type": "RollingUpdate"}, 1, None, True),
        ({"type": "RollingUpdate"}, 4, None, False),  # the controller has yet to say that it is over
        ({}, 3, None, True),
        ({"type": "OnDelete"}, 0, None, False),  # people delete these pods, when they like
        ({"type": "OnDelete"}, 2, None, False),
        (rolling(3), 0, None, True),
        (rolling(3), 1, None, False),  # pods 0, 1 and 2 stay as they are
        (rolling(9), 0, None, False),
        (rolling(0), 3, None, True),
        (rolling(7), 1, {"start": 5}, True),  # pods 5 to 8: 7 and 8 are rolled
        (rolling(7), 2, {"start": 5}, False),
    ],
)
async def test_a_stateful_set_rolls_only_what_its_strategy_rolls(
    strategy: Json, updated: int, ordinals: Json | None, rollout: bool
):
    """At rest under OnDelete or a partition it may be made smaller."""
    path = "/apis/apps/v1/namespaces/shop/statefulsets/front"
    api = Api(**{path: stateful_set(strategy, updated=updated, ordinals=ordinals)})
    found = (await read(api, ref={"kind": "StatefulSet"})).targets["front"]
    assert isinstance(found, TargetFact)
    assert bool(found.rollout) is rollout


@pytest.mark.parametrize(("paused", "rollout"), [(False, True), (True, False)])
async def test_a_paused_deployment_rolls_nothing(paused: bool, rollout: bool):
    """A canary that people keep at two templates: Kubernetes scales both in proportion."""
    body = deployment(updatedReplicas=1)
    body["spec"]["paused"] = paused
    found = (await read(Api(**{DEPLOYMENT: body}))).targets["front"]
    assert isinstance(found, TargetFact)
    assert bool(found.rollout) is rollout


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["b", "a"]}]}, "app in (a,b)"),
        (
            {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]},
            "app=x,tier notin (db)",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
            "a,!b",
        ),
    ],
)
async def test_a_pods_metric_is_asked_of_just_the_pods_that_the_workload_selects(selector: Json, asked: str):
    path, body = f"{CUSTOM}/namespaces/shop/pods/*/requests", deployment()
    body["spec"]["selector"] = selector
    api = Api(**{path: values("60"), DEPLOYMENT: body})
    found = await read(api, {"signal": "arrivals", "type": "Pods", "metric": "requests"})
    assert dict(api.asked)[path] == {"labelSelector": asked}
    assert found.readings["front"][ScalingSignal.ARRIVALS].value == 60


@pytest.mark.parametrize(
    "selector", [{}, None, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, "app=x"]
)
async def test_a_selector_that_cannot_be_said_is_a_bad_reading_and_not_the_whole_namespace(selector: Any):
    path, body = f"{CUSTOM}/namespaces/shop/pods/*/requests", deployment()
    body["spec"]["selector"] = selector
    api = Api(**{path: values("60", "60", "60"), DEPLOYMENT: body})
    found = await read(api, {"signal": "arrivals", "type": "Pods", "metric": "requests"})
    assert "whole namespace" in found.readings["front"][ScalingSignal.ARRIVALS].problem
    assert path not in dict(api.asked)


async def test_what_cannot_be_read_is_said_in_its_place():
    assert str((await read(Api(**{DEPLOYMENT: None}))).targets["front"]).startswith("!there is none")  # type: ignore[arg-type]
    gone = await read(Api(**{DEPLOYMENT: KubeUnknown("no answer")}), hpas={"front": "h"})  # type: ignore[arg-type]
    assert (gone.targets["front"], gone.hpas["front"]) == ("no answer", "no answer")
    assert "cannot be read" in str((await read(Api(**{DEPLOYMENT: b"[1"}))).targets["front"])  # type: ignore[arg-type]


async def test_any_other_kind_is_found_by_discovery_and_read_by_its_scale():
    served = {"resources": [{"name": "rollouts/scale", "kind": "Scale"}, {"name": "rollouts", "kind": "Rollout"}]}
    scale = {"metadata": {"uid": "r", "resourceVersion": "2"}, "spec": {}, "status": {"selector": "app=x"}}
    api = Api(**{"/apis/argo/v1": served, "/apis/argo/v1/namespaces/shop/rollouts/front/scale": scale})
    found = await read(api, ref={"apiVersion": "argo/v1", "kind": "Rollout"})
    assert found.targets["front"] == TargetFact(uid="r", resource_version="2", replicas=0, selector="app=x")
    unknown = await read(api, ref={"apiVersion": "argo/v1", "kind": "Nonesuch"})
    assert "no kind Nonesuch" in str(unknown.targets["front"])


async def test_the_last_record_comes_with_its_revision_and_one_that_is_torn_is_none():
    store, key = MemoryStore(), Keys().autoscaler_last("shop/graph")
    from shared.ports import Put

    record = AutoscaleRecord(uid="scaler-uid", term=5, number=2, at=WALL)
    done = await store.txn([], [Put(key, msgspec.json.encode(record))])
    found = await read(Api(), store=store)
    assert (found.last, found.last_revision, found.store_problem) == (record, done.revision, "")
    done = await store.txn([], [Put(key, b"{torn")])
    torn = await read(Api(), store=store)
    assert (torn.last, torn.last_revision) == (None, done.revision)


async def test_metrics_of_each_kind_are_read_and_brought_to_our_units(prometheus: FakePrometheus):
    api = Api(
        **{
            f"{CUSTOM}/namespaces/shop/pods/*/requests": values("60", "30"),
            f"{CUSTOM}/namespaces/shop/services/front/p95": values("250", "80"),
            f"{EXTERNAL}/namespaces/shop/depth": values("7"),
        }
    )
    found = await read(
        api,
        {"signal": "arrivals", "type": "Pods", "metric": "requests", "unit": "perMinute"},
        {"signal": "latency", "type": "Object", "metric": "p95", "unit": "milliseconds",
         "object": {"resource": "services", "name": "front"}},
        {"signal": "queue", "type": "External", "metric": "depth", "selector": {"matchLabels": {"q": "a"}}},
        {"signal": "failed", "type": "Prometheus", "query": "one"},
        prometheus=prometheus,
    )  # fmt: skip
    readings = found.readings["front"]
    assert {signal: one.value for signal, one in readings.items()} == {
        ScalingSignal.ARRIVALS: 1.5, ScalingSignal.LATENCY: 0.25, ScalingSignal.QUEUE: 7.0, ScalingSignal.FAILED: 12.5,
    }  # fmt: skip
    assert readings[ScalingSignal.QUEUE].at_s == 1_800_000_000.0
    assert {signal: one.pods for signal, one in readings.items() if one.pods is not None} == {ScalingSignal.ARRIVALS: 2}
    asked = dict(api.asked)
    assert asked[f"{CUSTOM}/namespaces/shop/pods/*/requests"] == {"labelSelector": "app=front"}
    assert asked[f"{EXTERNAL}/namespaces/shop/depth"] == {"labelSelector": "q=a"}


@pytest.mark.parametrize(("query", "why"), [("two", "2 series"), ("absent", "empty"), ("nan", "")])
async def test_a_query_that_is_not_one_number_is_told(prometheus: FakePrometheus, query: str, why: str):
    found = await read(Api(), {"signal": "queue", "type": "Prometheus", "query": query}, prometheus=prometheus)
    reading = found.readings["front"][ScalingSignal.QUEUE]
    assert why in reading.problem
    assert reading.value is None or reading.value != reading.value


async def test_a_prometheus_that_refuses_and_one_that_is_not_there_are_told(prometheus: FakePrometheus):
    prometheus.fail = web.json_response({"status": "error", "error": "parse error"}, status=400)
    metric = {"signal": "queue", "type": "Prometheus", "query": "one"}
    told = await read(Api(), metric, prometheus=prometheus)
    assert "parse error" in told.readings["front"][ScalingSignal.QUEUE].problem
    assert "--prometheus" in (await read(Api(), metric)).readings["front"][ScalingSignal.QUEUE].problem


async def test_one_negative_part_is_not_hidden_by_the_sum():
    api = Api(**{f"{EXTERNAL}/namespaces/shop/depth": values("50", "-7")})
    found = await read(api, {"signal": "queue", "type": "External", "metric": "depth"})
    assert found.readings["front"][ScalingSignal.QUEUE].value == -7


async def test_a_token_is_read_anew_for_each_query_and_one_that_is_gone_is_told(
    prometheus: FakePrometheus, tmp_path: Path
):
    """A cluster replaces the tokens that it projects every hour."""
    file = tmp_path / "token"
    async with PrometheusClient(prometheus.url, token_file=file) as client:
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            await client.query("one")
        assert prometheus.tokens == ["Bearer first", "Bearer second"]
        file.write_text("two\nlines")
        with pytest.raises(ConfigError, match="not one line"):
            await client.query("one")
        file.unlink()
        with pytest.raises(ConfigError, match=r"prometheus_token_file: .* cannot be read"):
            await client.query("one")


@pytest.mark.parametrize("kind", [AUTOSCALERS, HPAS, BUDGETS, OWNED_SETS, PODS, NODES])
async def test_only_objects_of_ours_may_be_refused_and_count_as_none(kind: Resource[Any]):
    """Without the right to list HPAs it would write beside one that it does not see; without budgets, below them."""
    asked, posted = asyncio.Event(), asyncio.Event()

    class Refusing:
        async def pages(self, _: Resource[Any], **__: Any) -> AsyncIterator[Any]:
            asked.set()
            raise KubeRejected("forbidden", status=403)
            yield

    api: Any = Refusing()
    watch = next(one for one in sources(api, lambda _: posted.set()) if one.kind is kind)
    task = asyncio.create_task(watch.follow())
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert posted.is_set() == (kind is AUTOSCALERS)
