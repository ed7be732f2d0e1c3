"""Made-up answers of the admin API, in its shapes. ``text`` is put into every field that strangers can write."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

Json = dict[str, Any]
CANDIDATE = {"name": "marl-dqn", "version": 7, "sha256": "ab" * 32}
ACTIVE = {"name": "kube-default", "version": 1, "sha256": ""}


def clock(ago_s: float = 0.0) -> str:
    """RFC 3339, so long ago."""
    at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=ago_s)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Figures:
    """A mesh that does not exist."""

    def __init__(self, *, nodes: int, text: str, role: str) -> None:
        self.rng = random.Random(7)
        self.text = text
        self.role = role
        self.leader: str | None = "coordinator-0"
        self.term = 40
        self.paused = False
        self.bound = 0
        self.names = [f"node-{number:04d}{text}" for number in range(nodes)]
        self.shares = [self.rng.betavariate(4, 3) for _ in range(nodes)]

    def answer(self, path: str, *, limit: int = 100, service: str = "") -> Json | None:
        """The answer of a GET route; None: there is no such route."""
        match path.split("/")[2:]:
            case ["whoami"]:
                return {"role": self.role, "name": "ann"}
            case ["overview"]:
                return self.overview()
            case ["leader"]:
                return {**self.led(), "admin_url": "", "lease_ttl_s": 3.0}
            case ["partitions"]:
                return {"epoch": 3, "agents": [{"id": f"agent-{n}", "nodes": 30} for n in range(4)], "unowned": []}
            case ["nodes", "map"]:
                return self.map()
            case ["nodes", _]:
                pod = {"namespace": "web", "name": f"shop-1{self.text}", "uid": "u", "priority": 0, "ours": True}
                return {**self.node(3), "pods": [pod], "pod_count": 1}
            case ["pods", namespace, name, "explain"]:
                return self.explained(namespace, name)
            case ["policies"]:
                return self.policies()
            case ["members"]:
                return listed([one for one in self.members() if service in ("", one["service"])])
            case ["queue"]:
                return {**listed([self.queued()]), "counts": self.places()}
            case parts:
                items = self.items("/".join(parts), limit)
                return None if items is None else listed(items)

    def items(self, route: str, limit: int) -> list[Json] | None:
        """Lists that come in pages."""
        match route:
            case "nodes":
                return [self.node(number) for number in range(min(len(self.names), limit))]
            case "decisions":
                return [self.decision() for _ in range(20)]
            case "terms":
                return [self.ended(number) for number in range(3)]
            case "units":
                pods = [{**self.queued(), "node": self.text}]
                return [
                    {"key": f"a/b{self.text}", "pods": pods, "min_member": 2, "state": "planned", "since": clock(1)}
                ]
            case "policies/history":
                return [{"at": clock(900), "pointer": self.policies()["pointer"]}]
            case "audit":
                change = {"role": "operator", "route": "POST /v1/scheduling/pause", "request_id": "r"}
                strange = {"by": f"ann{self.text}", "target": self.text, "reason": f"firmware{self.text}"}
                return [{"number": 1, "time": clock(90), **change, **strange}]
        return None

    def overview(self) -> Json:
        self.bound += 30
        wave = self.rng.uniform(0.7, 1.3)
        paused = {"paused": self.paused, "by": f"operator:ann{self.text}", "reason": self.text or "firmware"}
        return {
            "time": clock(),
            "leader": self.led() if self.leader else None,
            "scheduling": {**paused, "since": clock(90)},
            "queue": self.places(),
            "pods": {"bound": self.bound},
            "rates": {"pods_per_s_10s": 30 * wave, "decisions_per_s_10s": 1900 * wave},
            "latency_ms": {"p50": 41 * wave, "p99": 180 * wave},
            "round_ms": {"p50": 9 * wave, "p99": 31 * wave},
            "conflicts": self.bound // 50,
            "refusals": self.bound // 90,
            "members": {"coordinator": 2, "binder": 2, "agent": 4, "learner": 1},
            "nodes": {"total": len(self.names), "drained": 1, "unowned": 2},
            "policy": {"active": "kube-default@1", "candidate": "marl-dqn@7", "stage": "canary", "percent": 10},
        }

    def places(self) -> Json:
        return {"active": 40, "backoff": 12, "unschedulable": 31, "in_flight": 64}

    def led(self) -> Json:
        return {"id": f"{self.leader}{self.text}", "url": "http://127.0.0.1:1", "term": self.term, "since": clock(720)}

    def ended(self, number: int) -> Json:
        by = f"coordinator-{(number + 1) % 2}{self.text}" if number else ""
        who = f"coordinator-{number % 2}{self.text}"
        return {"term": self.term - number, "id": who, "url": "", "began": clock(720 + 9000 * number), "ended_by": by}

    def members(self) -> list[Json]:
        one = {"url": "http://10.0.0.7:8700", "term": 0, "node": "", "nodes": 30, "version": "0.1.0", "admin_url": ""}
        calm = {**one, "leading": False, "suspect": False, "warnings": []}
        return [
            {**calm, "service": "coordinator", "id": f"coordinator-0{self.text}", "leading": True, "term": self.term},
            {**calm, "service": "coordinator", "id": "coordinator-1"},
            {**calm, "service": "agent", "id": "agent-0", "suspect": True, "warnings": [f"is silent{self.text}"]},
            {**calm, "service": "binder", "id": "binder-0", "leading": True, "term": 12},
        ]

    def map(self) -> Json:
        flags = [{3: 1, 9: 2, 5: 4, 6: 4}.get(number, 0) for number in range(len(self.names))]
        cpu = [round(share, 3) for share in self.shares]
        return {"names": self.names, "cpu": cpu, "memory": [round(share * 0.8, 3) for share in cpu], "flags": flags}

    def node(self, number: int) -> Json:
        share = self.shares[number]
        drained = {"by": "operator:ann", "reason": self.text or "disk", "since": clock(300)}
        return {
            "name": self.names[number],
            "agent": "" if number in (5, 6) else f"agent-{number % 4}{self.text}",
            "schedulable": number != 9,
            "drained": drained if number == 3 else None,
            "taints": [f"dedicated=ml{self.text}:NoSchedule"] if number % 7 == 0 else [],
            "pods": 17,
            "allocatable": {"cpu_millis": 32000, "memory_bytes": 128 << 30, "pods": 110},
            "requested": {"cpu_millis": int(32000 * share), "memory_bytes": int((128 << 30) * share), "pods": 17},
            "used": {"cpu_millis": 9000, "memory_bytes": 20 << 30, "age_s": 3.2} if number % 2 else None,
        }

    def queued(self) -> Json:
        return {
            "namespace": "batch", "name": f"train-1{self.text}", "uid": "q1", "place": "backoff", "priority": 0,
            "attempts": 4, "waiting_s": 63.1, "retry_in_s": 2.4, "plugins": ["NodeResourcesFit"],
            "nominated_node": self.text,
        }  # fmt: skip

    def decision(self) -> Json:
        number = self.rng.randrange(10_000)
        nodes = self.rng.sample(self.names, min(4, len(self.names)))
        scored = [{"node": node, "score": 91.5 - 7 * at, "accepted": at < 3} for at, node in enumerate(nodes)]
        return {
            "time": clock(), "namespace": "web", "name": f"shop-{number:04x}{self.text}", "uid": f"u-{number}",
            "node": nodes[0], "policy": f"marl-dqn@7{self.text}", "attempt": self.bound, "considered": scored,
        }  # fmt: skip

    def policies(self) -> Json:
        rows = [(ACTIVE, "active", 90, "built in"), (CANDIDATE, "canary", 10, "published")]
        told = {"reason": f"3 windows not worse{self.text}", "by": f"rollout{self.text}", "number": 4}
        window = {"value": 0.8123, "active_value": 0.7911, "samples": 61, "agreed": 39, "p99_ms": 3.2}
        return {
            "pointer": {
                "active": ACTIVE, "previous": None, "candidate": CANDIDATE, "stage": "canary", "percent": 10, **told,
            },
            "items": [{**ref, "role": role, "percent": share, "from": where} for ref, role, share, where in rows],
            "comparison": {
                "windows": 5, "good": 2, "bad": 0, "samples": 14, "failures": {},
                "last_window": {
                    **window, "active_p99_ms": 0.4, "fallbacks": 0, "rejected": 1, "active_fallbacks": 0,
                    "active_rejected": 0,
                },
            },
        }  # fmt: skip

    def explained(self, namespace: str, name: str) -> Json:
        text, nodes = self.text, self.names
        moved = [
            {"feature": f"cpu requested{text}", "value": 0.31, "others": 0.62, "effect": 0.41},
            {"feature": "disk in use", "value": 0.7, "others": 0.3, "effect": -0.12},
        ]
        short = {"resource": "cpu", "requested": 64000, "allocatable": 32000, "free": 1500, "short_by": 62500}
        victim = {"pod": f"a/b{text}", "priority": 0, "breaks_budget": False}
        return {
            "pod": f"{namespace}/{name}", "uid": "4f0c", "state": "pending", "summary": f"110 nodes lack cpu{text}",
            "priority": 5, "node": None, "nominated_node": None, "policy": f"marl-dqn@7{text}",
            "condition": {"status": "False", "reason": "Unschedulable", "message": f"0/120 nodes{text}"},
            "queue": {
                "place": "backoff", "ahead": None, "attempts": 3, "waiting_s": 42.0, "next_retry_s": 3.1,
                "rejected_by": ["NodeResourcesFit"],
            },
            "decision": {
                "ago_s": 12.0, "unit": 9, "node": nodes[0], "policy": "marl-dqn", "policy_version": 7,
                "candidates": [
                    {"node": nodes[0], "score": 9.5, "accepted": True},
                    {"node": nodes[1], "score": 7, "accepted": False},
                ],
            },
            "nodes": {
                "nodes": 120, "feasible": 10, "unowned": 2, "agents": 4,
                "candidates": [{"name": nodes[7], "total": 90, "scores": {"NodeResourcesFit": 90}}],
                "groups": [{
                    "plugin": "NodeResourcesFit", "code": "Unschedulable", "stage": "Filter", "count": 110,
                    "reasons": [f"Insufficient cpu{text}"], "change": f"free 62500m more cpu{text}",
                    "nodes": [{"name": nodes[6], "shortages": [short], "numbers": [{"text": f"one{text}"}]}],
                }],
            },
            "preemption": {
                "helps": True, "summary": f"would evict one pod{text}", "curable": 110, "tried": 100, "protected": 0,
                "candidates": [{"node": nodes[2], "count": 1, "allowed": True, "victims": [victim]}],
            },
            "reasons": {
                "policy": "marl-dqn@7", "ahead_by": 0.12, "moved": moved, "decisive": moved[:1],
                "chosen": {"node": nodes[0], "score": 1.2, "q_accept": 0.9, "q_reject": -0.3},
                "runner_up": {"node": nodes[1], "score": 1.08, "q_accept": 0.7, "q_reject": -0.2},
            },
        }  # fmt: skip


def listed(items: list[Json]) -> Json:
    """A page that is the last one."""
    return {"items": items, "continue": ""}
