"""A case of the HPA corpus's form, played through the live autoscaler: its watches' facts, its reads, its core.

The API server is a stand-in that holds just what a step lists. ``play`` answers as ``conclave autoscale hpa --batch``
does, so that both can be held to the same expectations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from services.autoscaler.core import gates
from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.core.events import (
    KINDS,
    Event,
    RecordCommitted,
    ReplicasWrote,
    RoundRead,
    ScaledListed,
    ScaledPodGone,
    ScalerSeen,
    SetSeen,
    StatusTold,
)
from services.autoscaler.core.instructions import CommitRecord, Instruction, ReadRound, TellStatus, Write
from services.autoscaler.core.state import ScalerCoreSettings
from services.autoscaler.io.follow import events_of, pod_fact
from services.autoscaler.io.reads import Reads, ServedKinds
from services.autoscaler.io.weights import PolicyFiles
from shared.autoscaling.hpa.batch import step_json
from shared.autoscaling.hpa.values import duration_s, seconds
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.label_selectors import parse_label_selector
from shared.kube.objects import KubePod, ObjectMeta
from shared.kube.resources import PODS, Upserted
from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api
from shared.model.controllers.autoscaler import Autoscaler, Go
from shared.ports import Put
from shared.turns import Tick
from shared.wire.keys import Keys
from shared.wire.records import AutoscaleRecord, ScaledTo
from tests.memory_store import MemoryStore

Json = dict[str, Any]
PLURALS = {"Service": "services", "Ingress": "ingresses.networking.k8s.io"}
OPERATORS = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2/", "/apis/external.metrics.k8s.io/v1beta1/"


class Server:
    """Answers what a step lists; ``others``: the selectors of other targets."""

    def __init__(self, others: list[str]) -> None:
        self.step: Json = {}
        self.others = others

    async def read(
        self, route: str, path: str, *, query: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> bytes:
        return msgspec.json.encode(self._answer(unquote(path), dict(query or {})))

    def _answer(self, path: str, query: Json) -> Json:
        metrics = self.step.get("metrics") or {}
        if path == "/apis/example.com/v1":
            return {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": True}]}
        if path == "/apis/networking.k8s.io":
            return {"preferredVersion": {"version": "v1"}}
        if path == "/apis/networking.k8s.io/v1":
            return {"resources": [{"name": "ingresses", "kind": "Ingress"}]}
        if path.startswith("/apis/apps/v1/"):
            return self._deployment()
        if path.startswith("/apis/example.com/v1/"):
            return self._scale(path.split("/")[-2])
        if path.startswith("/apis/metrics.k8s.io/"):
            return _listed(metrics, "resource")
        if path.startswith(CUSTOM):
            *_, resource, name, metric = path.split("/")
            chosen = query.get("metricLabelSelector", "")
            items = [one for one in _listed(metrics, "custom")["items"] if one["metric"]["name"] == metric]
            return {"items": [one for one in items if _chosen(one, chosen) and _described(one, resource, name)]}
        if path.startswith(EXTERNAL):
            chosen = query.get("labelSelector", "")
            found = _listed(metrics, "external")["items"]
            items = [one for one in found if one["metricName"] == path.rsplit("/", maxsplit=1)[-1]]
            return {"items": [one for one in items if _matches(chosen, one.get("metricLabels"))]}
        raise KubeRejected("not found", status=404)

    def _deployment(self) -> Json:
        scale = self.step["scale"]
        if scale.get("error"):
            raise KubeUnknown(scale["error"])
        text = scale["selector"]
        expressions = [
            {"key": one.key, "operator": OPERATORS[one.operator], "values": sorted(one.values)}
            for one in (parse_label_selector(text).requirements if text else ())
        ]
        return {
            "metadata": {"name": "web", "uid": "web-uid", "resourceVersion": "1"},
            "spec": {"replicas": scale["replicas"], "selector": {"matchExpressions": expressions} if text else None},
            "status": {"replicas": scale["statusReplicas"], "updatedReplicas": scale["statusReplicas"]},
        }

    def _scale(self, name: str) -> Json:
        scale = self.step["scale"]
        selector = scale["selector"] if name == "web" else self.others[int(name.removeprefix("other-"))]
        return {
            "metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": "1"},
            "spec": {"replicas": scale["replicas"]},
            "status": {"replicas": scale["statusReplicas"], "selector": selector},
        }

    async def get(self, resource: Any, *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        raise KubeUnknown("there are no HPAs here")


def _listed(metrics: Json, kind: str) -> Json:
    if metrics.get(f"{kind}Error"):
        raise KubeUnknown(metrics[f"{kind}Error"])
    return {"items": metrics.get(kind) or []}


def _matches(selector: str, labels: Mapping[str, str] | None) -> bool:
    parsed = parse_label_selector(selector)
    return parsed is None or parsed.matches(labels or {})


def _chosen(one: Json, selector: str) -> bool:
    return _matches(selector, (one["metric"].get("selector") or {}).get("matchLabels"))


def _described(one: Json, resource: str, name: str) -> bool:
    described = one["describedObject"]
    if name == "*":
        return bool(described["kind"] == "Pod")
    if name == "metrics":  # namespaces/NAME/metrics/METRIC
        return bool(described["kind"] == "Namespace")
    return PLURALS.get(described["kind"]) == resource and bool(described["name"] == name)


def settings_of(given: Json) -> Json:
    """The hpa policy's settings for a HorizontalPodAutoscaler and its controller's flags."""
    spec, flags = given["hpa"]["spec"], given.get("controller") or {}
    found: Json = {"sync_s": 0.001}
    for name in ("metrics", "behavior"):
        if spec.get(name):
            found[name] = spec[name]
    if "tolerance" in flags:
        found["tolerance"] = flags["tolerance"]
    for name, field in (
        ("downscaleStabilizationWindow", "down_window_s"), ("cpuInitializationPeriod", "cpu_initialization_s"),
        ("initialReadinessDelay", "initial_readiness_s"),
    ):  # fmt: skip
        if name in flags:
            found[field] = duration_s(flags[name], name)
    if (given.get("featureGates") or {}).get("HPAScaleToZero"):
        found["scale_to_zero"] = True
    return found


def object_of(name: str, targets: list[Json], **spec: Any) -> Autoscaler:
    """A ResilientAutoscaler with safeguards that hold nobody back."""
    limits = {"upPods": 100_000, "downPods": 100_000, "nodesGrow": True, "failOverSeconds": 1}
    whole = {"mode": "act-on-scale", "limits": limits, "targets": targets, **spec}
    meta = ObjectMeta(name=name, namespace="default", uid=f"{name}-object", generation=1, resource_version="1")
    found = autoscaler_from_api(AutoscalerObject(meta, whole))
    assert found.problems == (), found.problems
    return found


async def play(given: Json) -> list[Json]:
    """Each step's answer."""
    live = _Live(given)
    return [await live.step(step) for step in given["steps"]]


class _Live:
    """One case's autoscaler."""

    def __init__(self, given: Json) -> None:
        spec = given["hpa"]["spec"]
        others = [one["selector"] for one in given.get("otherHPASelectors") or ()]
        custom = {"apiVersion": "example.com/v1", "kind": "Widget"} if others else {}
        target = {
            "name": "web", "scaleTargetRef": {"name": "web", **custom},
            "minReplicas": spec.get("minReplicas", 1), "maxReplicas": spec["maxReplicas"],
        }  # fmt: skip
        policy = {"name": "hpa", "settings": settings_of(given)}
        self.server, self.pods = Server(others), list[str]()
        self.store = MemoryStore()
        self.now = 0.0
        self.desired = (given["hpa"].get("status") or {}).get("desiredReplicas", 0)
        self.core = AutoscalerCore(1, ScalerCoreSettings(decide_every_s=0.001), PolicyFiles(None).make, now=0.0)
        anything: Any = self.server
        self.reads = Reads(
            anything, self.store, Keys(), kinds=ServedKinds(anything, 1.0), prometheus=None, timeout_s=1.0,
            wall=lambda: self.now,
        )  # fmt: skip
        self.scaler = object_of("web", [target], policy=policy)
        self.before = [
            object_of(f"other-{number}", [{**target, "scaleTargetRef": {"name": f"other-{number}", **custom}}])
            for number in range(len(others))
        ]
        self.told = (given["hpa"].get("status") or {}).get("conditions") or ()
        self.asleep = any(one["type"] == "ScaledToZero" and one["status"] == "True" for one in self.told)

    async def step(self, step: Json) -> Json:
        """One round of every object; what it decides is written, and the answer is the rule's."""
        at_s = seconds(step["at"], "at")
        assert at_s is not None
        self.server.step = step
        if not self.now:
            await self._begin(at_s)
        self.now = at_s
        events: list[Event] = [ScaledPodGone(uid) for uid in self.pods]
        selector = parse_label_selector(step["scale"]["selector"] or "none=none")
        raw = []
        for one in step.get("pods") or ():
            meta = {**one["metadata"], "uid": one["metadata"]["name"]}
            if selector is not None and selector.matches(meta.get("labels") or {}):
                meta["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web", "uid": "set", "controller": True}]
            raw.append(msgspec.convert({**one, "metadata": meta}, KubePod))
        self.pods = [one.metadata.uid for one in raw]
        events += events_of(PODS, [Upserted(one) for one in raw], _seen, lambda meta: ScaledPodGone(meta.uid))
        await self._turn(events)
        watched = self.core.state.objects["default/web"]
        outcome = watched.policy.outcomes.get("web")  # type: ignore[union-attr]
        if step["scale"].get("error"):
            return {"desired": self.desired, "reason": "FailedGetScale"}
        assert outcome is not None, watched.status
        self.desired = outcome.status.desired
        found = step_json(outcome)
        if self.told:
            del found["conditions"]  # those of an HPA that was there before are no memory of ours
        return found

    async def _begin(self, at_s: float) -> None:
        self.now = at_s - 1
        for one in self.before:
            self.core.handle_all([ScalerSeen(one)], self.now)
        listed = [SetSeen("set", "web-uid"), *(ScaledListed(kind) for kind in KINDS)]
        await self._turn(listed)
        self.now = at_s - 0.5
        await self._turn([ScalerSeen(self.scaler)])
        digest = gates.digest(self.core.state.objects["default/web"])
        await self._turn([ScalerSeen(replace(self.scaler, go=Go("ada", digest, "now")))])
        if self.asleep and self.server.step["scale"]["replicas"] == 0:  # an earlier leader took the last one away
            record = AutoscaleRecord(
                uid=self.scaler.uid, term=0, number=1, at=self.now, services={"web": ScaledTo(1, 0)},
                go=("ada", digest, "now"),
            )  # fmt: skip
            await self.store.txn([], [Put(Keys().autoscaler_last("default/web"), msgspec.json.encode(record))])

    async def _turn(self, events: list[Event]) -> None:
        waiting: list[Instruction] = self.core.handle_all([*events, Tick()], self.now)
        while waiting:
            answer = await self._done(waiting.pop(0))
            if answer is not None:
                waiting += [one for one in self.core.handle_all([answer], self.now) if not isinstance(one, ReadRound)]
            assert self.core.validate() == []

    async def _done(self, work: Instruction) -> Event | None:
        match work:
            case ReadRound():
                found: RoundRead = await self.reads.round(work)
                return found
            case CommitRecord():
                return RecordCommitted(work.key, work.number, "ok")
            case Write():
                return ReplicasWrote(work.key, work.number, {one.service: ("ok", "") for one in work.writes})
            case TellStatus():
                return StatusTold(work.scaler.key)
            case _:
                return None


def _seen(pod: KubePod) -> Event:
    from services.autoscaler.core.events import ScaledPodSeen

    return ScaledPodSeen(pod_fact(pod))
