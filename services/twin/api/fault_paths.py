"""``/twin/faults``: look at, replace and clear the fault plan of a running server (administrator only)."""

from __future__ import annotations

from aiohttp import web

from services.twin.api import bodies
from services.twin.api.answers import Answers
from services.twin.faults import FaultPlan, FaultRule
from services.twin.registry.status import ApiError, bad_request, method_not_allowed

PATH = "/twin/faults"


async def serve(request: web.BaseRequest, plan: FaultPlan, out: Answers) -> web.Response:
    """GET the plan, PUT ``{"rules": [...], "seed": n}``, DELETE all rules. Refused: 400 with the reason, 405."""
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


def _refused(message: str) -> ApiError:
    return bad_request(f"the fault plan cannot be used: {message}")
