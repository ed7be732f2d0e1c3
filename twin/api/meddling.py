"""``/twin/...``: what tests do to a running server (administrator only).

``/twin/faults``: look at, replace and clear the fault plan. ``/twin/compact``: forget all history, so that clients that
resume from it meet a 410. ``/twin/metrics``: look at and replace what the metrics APIs answer (``metrics_data``).
"""

from __future__ import annotations

from aiohttp import web

from twin.api.answers import ResponseMaker
from twin.api.requests import bodies
from twin.faults import FaultPlan, FaultRule
from twin.metrics_data import MetricsData
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError, bad_request, method_not_allowed, path_not_found

PREFIX = "/twin/"
_FAULTS, _COMPACT, _METRICS = "/twin/faults", "/twin/compact", "/twin/metrics"


async def serve(
    request: web.BaseRequest, registry: TwinRegistry, plan: FaultPlan, metrics: MetricsData, out: ResponseMaker
) -> web.Response:
    """One of the paths above. Refused: 400 with the reason, 404, 405."""
    if request.path == _FAULTS:
        return await _faults(request, plan, out)
    if request.path == _METRICS:
        return await _metrics(request, metrics, out)
    if request.path != _COMPACT:
        raise path_not_found()
    if request.method != "POST":
        raise method_not_allowed()
    registry.store.compact(registry.store.revision)
    return out.json({"compacted": registry.store.revision})


async def _faults(request: web.BaseRequest, plan: FaultPlan, out: ResponseMaker) -> web.Response:
    """GET the plan, PUT ``{"rules": [...], "seed": n}``, DELETE all rules."""
    if request.method == "PUT":
        try:
            body = bodies.parse_json(await request.read())
            plan.replace(FaultPlan.parse(body))
        except ValueError as error:
            raise _refused(str(error)) from None
    elif request.method == "DELETE":
        plan.replace(FaultPlan())
    elif request.method != "GET":
        raise method_not_allowed()
    return out.json({"rules": [FaultRule.to_json(rule) for rule in plan.rules]})


async def _metrics(request: web.BaseRequest, metrics: MetricsData, out: ResponseMaker) -> web.Response:
    """GET what was set, PUT other data, DELETE all of it."""
    if request.method == "PUT":
        try:
            body = bodies.parse_json(await request.read())
        except ValueError as error:
            raise bad_request(f"the metrics cannot be used: {error}") from None
        return out.json(metrics.replace(body))
    if request.method == "DELETE":
        return out.json(metrics.replace({}))
    if request.method != "GET":
        raise method_not_allowed()
    return out.json(metrics.shown())


def _refused(message: str) -> ApiError:
    return bad_request(f"the fault plan cannot be used: {message}")
