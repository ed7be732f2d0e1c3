"""The extender's composition root and its listener: watches in, kube-scheduler's questions answered.

    POST /filter, /prioritize   extender/v1; 400 ``invalid_request``, 408, 413, 429, 503 ``not_ready``
    GET  /healthz               200 while the cluster is known as it is, else 503
    GET  /status                figures: what was asked, by what the policy failed

It holds no lease and writes nothing: several may run, each asked by a kube-scheduler of its own or behind one address.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import structlog
from aiohttp import web

from services.extender.core import ExtenderCore, Priorities
from services.extender.protocol import ExtenderQuestion, QuestionInvalid, filtered, prioritized, read_question
from services.extender.settings import ExtenderSettings
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.peers.credentials import server_tls
from shared.errors import ConfigError
from shared.hostport import split_host_port
from shared.kube.resources import NODES, PODS
from shared.policy.domain import PLACEMENT
from shared.policy.observation import Policy
from shared.policy.registry import load_policy, make_policy, ref_of, reference
from shared.policy.weights import decode, digest, policy_of
from shared.runtime.http.callers import Authenticator
from shared.runtime.http.guard import read_body
from shared.runtime.http.limits import RequestLimit
from shared.runtime.http.listener import AUTHENTICATOR, listen
from shared.runtime.http.refusals import RequestRefused, told
from shared.runtime.kube.reflector import CURRENT_S
from shared.runtime.kube.watches import Watches
from shared.runtime.process.plugins import profile_of
from shared.runtime.process.service import Service, boottime
from shared.wire.records import PolicyRef

log = structlog.get_logger()

CHECK_S = 5.0
MOST_BYTES = 32 << 20
"""Of a question. Whole nodes of more are seconds of a loop that also follows the watches, and kube-scheduler waits for
less: it shall send names (``nodeCacheCapable: true``)."""
MOST_AT_ONCE = 16
"""Questions whose bodies are held at once; kube-scheduler asks one after the other."""
STALE_S = 2 * CURRENT_S
"""For how long the API server may be silent; one that works is heard twice in this time."""
ASKERS = "kube-scheduler"
JSON = "application/json"


class ExtenderListener:
    """Answers questions about one core. ``mutual``: who asks must have shown a certificate; ``age_s``: for how long the
    API server has been silent. What is older than ``STALE_S`` is worse than what kube-scheduler knows: it is told 503,
    and leaves an extender out that is ``ignorable``."""

    def __init__(
        self, core: ExtenderCore, policy: str, *, mutual: bool = False, age_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._core, self._policy, self._mutual = core, policy, mutual
        self._age_s = age_s
        self._places = RequestLimit(MOST_AT_ONCE, MOST_AT_ONCE)
        self._failing = False
        self.refused = 0

    def app(self) -> web.Application:
        """The routes."""
        made = web.Application(client_max_size=MOST_BYTES, middlewares=[self._guarded])
        made[AUTHENTICATOR] = Authenticator(mutual_tls=self._mutual)
        made.router.add_post("/filter", self._filter)
        made.router.add_post("/prioritize", self._prioritize)
        made.router.add_get("/healthz", self._health)
        made.router.add_get("/status", self._status)
        return made

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            shown = request.transport is not None and request.transport.get_extra_info("peercert")
            if self._mutual and not shown and request.path != "/healthz":
                raise RequestRefused("show a certificate (tlsConfig of the extender)", code="unauthenticated")
            return await handler(request)
        except RequestRefused as refused:
            return self._refusal(refused)
        except QuestionInvalid as error:
            return self._refusal(RequestRefused(str(error), code=error.code))
        except web.HTTPNotFound:
            return self._refusal(
                RequestRefused(f"no route {request.path[:128]}; ask /filter or /prioritize", code="route_unknown")
            )
        except web.HTTPMethodNotAllowed:
            return self._refusal(RequestRefused(f"{request.method} is not taken here", code="method_not_allowed"))

    def _refusal(self, refused: RequestRefused) -> web.Response:
        self.refused += 1
        answer, headers = told(refused)
        return web.Response(status=refused.status, body=msgspec.json.encode(answer), content_type=JSON, headers=headers)

    async def _question(self, request: web.Request) -> ExtenderQuestion:
        self._check_fresh()
        if not self._places.enter(ASKERS):
            raise RequestRefused("too many questions at once", code="overloaded")
        try:
            body = await read_body(request, MOST_BYTES)
        except RequestRefused as refused:
            if refused.code == "too_large":
                why = f"a question has at most {MOST_BYTES} bytes; set nodeCacheCapable: true, which sends names"
                raise RequestRefused(why, code="too_large") from None
            raise
        finally:
            self._places.leave(ASKERS)
        return read_question(body)

    def _check_fresh(self) -> None:
        if not self._core.ready:
            raise RequestRefused("the cluster is not listed yet; ask again", code="not_ready")
        if (age := self._age_s()) > STALE_S:
            raise RequestRefused(f"the API server has said nothing for {age:.0f} s; ask again", code="not_ready")

    async def _filter(self, request: web.Request) -> web.Response:
        asked = await self._question(request)
        return web.Response(body=filtered(asked, self._core.filter(asked.pod, asked.names)), content_type=JSON)

    async def _prioritize(self, request: web.Request) -> web.Response:
        asked = await self._question(request)
        found = self._core.prioritize(asked.pod, asked.names, time.monotonic())
        self._tell(found)
        return web.Response(body=prioritized(asked.names, found.scores), content_type=JSON)

    def _tell(self, found: Priorities) -> None:
        """When the policy begins to fail, and when it is well again; what lies between is counted."""
        if found.fell != self._failing:
            self._failing = found.fell
            if found.fell:
                why = {kind.value: count for kind, count in self._core.lanes.active.guard.failures.items()}
                log.warning("policy_failed", policy=self._policy, failures=why, scores="the same for every node")
            else:
                log.info("policy_decides_again", policy=self._policy)

    async def _health(self, _: web.Request) -> web.Response:
        self._check_fresh()
        return web.Response(text="ok")

    async def _status(self, _: web.Request) -> web.Response:
        core = self._core
        figures: dict[str, Any] = {
            "policy": self._policy, "nodes": len(core.state.table.row_of), "ready": core.ready, "asked": core.asked,
            "age_s": round(self._age_s(), 1) if core.ready else None,
            "fell": core.fell, "unknown_nodes": core.unknown, "refused": self.refused,
            "failures": {kind.value: count for kind, count in core.lanes.active.guard.failures.items()},
        }  # fmt: skip
        return web.Response(body=msgspec.json.encode(figures), content_type=JSON)


def policy_from(settings: ExtenderSettings) -> tuple[PolicyRef, Policy]:
    """The policy that ranks. Raises ``ConfigError``."""
    if settings.weights is None:
        return ref_of(settings.policy), make_policy(settings.policy)
    try:
        data = settings.weights.read_bytes()
    except OSError as error:
        raise ConfigError(f"weights: {settings.weights}: {error.strerror}; give a file of 'conclave train'") from None
    name, sha256 = policy_of(data, str(settings.weights)), digest(data)
    return reference(decode(data, policy=name, sha256=sha256)), load_policy(name, data=data, sha256=sha256)


async def main(service: Service, settings: ExtenderSettings) -> None:
    """Run until asked to stop. ``ConfigError``: a setting, or a cluster that does not answer or let us read."""
    ref, policy = policy_from(settings)
    core = ExtenderCore(
        ref, policy, random.Random(settings.seed), clock=time.thread_time,
        limits=replace(PLACEMENT.limits, deadline_s=settings.policy_deadline_ms / 1000),
        profile=profile_of(settings.plugins, settings.gpu_shares, settings.power_curves, settings.load_parts),
    )  # fmt: skip
    api = KubeClient(await KubeConfig.load(settings.kubeconfig, context=settings.context or None))
    try:
        await api.check(timeout_s=CHECK_S)
        await api.check_reads(NODES, PODS, timeout_s=CHECK_S)
        watches = Watches(api)
        watches.begin()
        service.spawn("nodes", watches.follow_nodes(core.take))
        service.spawn("pods", watches.follow_pods(core.take))
        listener = ExtenderListener(
            core, ref.title, mutual=settings.tls_cert is not None, age_s=lambda: watches.age_s(boottime())
        )
        await _serve(service, settings, listener)
    finally:
        await api.close()


async def _serve(service: Service, settings: ExtenderSettings, listener: ExtenderListener) -> None:
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None and settings.tls_ca is not None:
        tls = server_tls(ca_file=settings.tls_ca, cert_file=settings.tls_cert, key_file=settings.tls_key)
    host, port = split_host_port(settings.listen)
    found = await listen(listener.app(), host=host, port=port, tls=tls)
    try:
        log.info("extender_listening", host=host, port=found.port, tls=tls is not None)
        await service.stopping.wait()
    finally:
        await found.close()
