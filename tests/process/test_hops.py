"""A pod's way through a real mesh goes by one cause id: in three logs, on the pod and its event, and in a trace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shared.model.pod import CAUSE_ANNOTATION
from shared.runtime.observe.hops import PARENTS
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from tests.scenarios.world import World

pytestmark = [pytest.mark.process, pytest.mark.etcd]


class Collector:
    """An OTLP/HTTP sink: spans by trace id, as they come."""

    def __init__(self) -> None:
        self.spans: dict[str, list[tuple[str, str]]] = {}
        self.came = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        body = ExportTraceServiceRequest.FromString(await request.read())
        async with self.came:
            for resource in body.resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self.spans.setdefault(span.trace_id.hex(), []).append((about["service.name"], span.name))
            self.came.notify_all()
        return web.Response(content_type="application/x-protobuf")


def hops_in(log: Path, cause: str) -> set[str]:
    """The events that a service logged under the cause id."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return {line["event"] for line in lines if line.get("cause_id") == cause}


async def test_one_cause_id_leads_through_logs_pod_event_and_trace(tmp_path: Path) -> None:
    collector, app = Collector(), web.Application(client_max_size=2**24)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    told = ["--log-level", "debug", "--otel-endpoint", url]
    flags = dict.fromkeys(("coordinator", "agent", "binder"), told)
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
    try:
        async with Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags, environ=environ) as mesh:
            world = World(mesh)
            watching = asyncio.create_task(world.follow(asyncio.Event()))
            try:
                await world.add_node("n0")
                await world.add_pod("a")
                await world.until(lambda c: c.bound("a"), within_s=30, what="the pod is bound")
                pod = await world.call("GET", "/api/v1/namespaces/default/pods/a")
                cause = pod["metadata"]["annotations"][CAUSE_ANNOTATION]
                term, _, unit = cause.partition("-")
                trace = f"{int(term, 16):016x}{int(unit, 16):016x}"
                async with asyncio.timeout(PATIENCE_S), collector.came:
                    await collector.came.wait_for(lambda: len(collector.spans.get(trace, ())) >= len(PARENTS))
                events = await world.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            logs = {name: running.log for name, running in mesh.services.items()}
            assert hops_in(logs["coordinator-0"], cause) >= {"unit_offered", "unit_planned", "pod_placed"}
            assert hops_in(logs["agent-0"], cause) == {"unit_judged"}
            assert hops_in(logs["binder-0"], cause) >= {"unit_committed", "pod_bound"}
    finally:
        await runner.cleanup()
    assert sorted(collector.spans[trace]) == sorted(
        [
            ("conclave-coordinator", "schedule"), ("conclave-coordinator", "offer"), ("conclave-coordinator", "plan"),
            ("conclave-agent", "decide"), ("conclave-binder", "commit"), ("conclave-binder", "bind"),
        ]
    )  # fmt: skip
    scheduled = [event for event in events["items"] if event["reason"] == "Scheduled"]
    assert [event["metadata"]["annotations"][CAUSE_ANNOTATION] for event in scheduled] == [cause]
