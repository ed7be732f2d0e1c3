"""Made-up answers of the admin API, in its shapes. ``text`` is put into every field that strangers can write."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from typing import Any

from tests.e2e import admin_jobs, admin_load, admin_scaled, admin_units

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
        self.findings: list[Json] = []
        self.waiting = 3
        self.classes: list[int] = []
        self.groups = admin_load.groups(40, nodes, text)
        self.names = [f"node-{number:04d}{text}" for number in range(nodes)]
        self.shares = [self.rng.betavariate(4, 3) for _ in range(nodes)]

    def answer(self, path: str, query: Mapping[str, str]) -> Json | None:
        """The answer of a GET route; None: there is no such route."""
        limit, service = int(query.get("limit", 100)), query.get("service", "")
        match path.split("/")[2:]:
            case ["whoami"]:
                return {"role": self.role, "name": "ann"}
            case ["overview"]:
                return self.overview()
            case ["health"]:
                return {**admin_load.health(self.findings, clock(720)), "measured": admin_load.measured()}
            case ["history"]:
                return admin_load.history(self.term, clock(4000), int(query.get("since", 0)))
            case ["pending"]:
                return admin_load.pending(self.groups, query, clock())
            case ["leader"]:
                return {**self.led(), "admin_url": "", "lease_ttl_s": 3.0}
            case ["partitions"]:
                return {"epoch": 3, "agents": [{"id": f"agent-{n}", "nodes": 30} for n in range(4)], "unowned": []}
            case ["nodes", "map"]:
                return self.map(query.get("groupBy", ""))
            case ["nodes", _]:
                pod = {"namespace": "web", "name": f"shop-1{self.text}", "uid": "u", "priority": 0, "ours": True}
                return {**self.node(3), "pods": [pod], "pod_count": 17, "conditions": self.conditions()}
            case ["pods", namespace, name, "explain"]:
                return self.explained(namespace, name)
            case ["policies"]:
                return self.policies()
            case ["members"]:
                return listed([one for one in self.members() if service in ("", one["service"])])
            case ["queue"]:
                return {
                    **self.page([self.queued(number) for number in range(self.waiting)], query),
                    "counts": self.places(),
                }
            case ["autoscalers", _, name]:
                return admin_scaled.scaled_whole(name, clock, self.text)
            case ["autoscalers"]:
                return self.page(admin_scaled.scaled(clock, self.text), query)
            case ["units", namespace, name, "explain"]:
                return admin_units.explained(namespace, name, self.names, self.text)
            case ["units", namespace, name]:
                return admin_units.whole(namespace, name, self.names, self.text)
            case ["queues", name]:
                return admin_units.queue_whole(name, self.text)
            case ["units"]:
                return self.page(admin_units.units(self.names, self.text, clock(40)), query)
            case ["jobs"]:
                return admin_jobs.board(self.text)
            case ["jobs", "policy"]:
                return admin_jobs.policy(self.text)
            case ["rebalance"]:
                return admin_jobs.rebalance(self.text)
            case ["rebalance", "policy"]:
                return admin_jobs.policy(self.text) | {"candidate": f"empty-nodes{self.text}"}
            case ["queues"]:
                return self.page(admin_units.queues(self.text), query)
            case ["nodes"]:
                return self.page([self.node(number) for number in range(len(self.names))], query)
            case parts:
                items = self.items("/".join(parts), limit)
                return None if items is None else listed(items)

    def items(self, route: str, limit: int) -> list[Json] | None:
        """Lists that come in pages."""
        match route:
            case "decisions":
                return [self.decision() for _ in range(20)]
            case "terms":
                return [self.ended(number) for number in range(3)]
            case "policies/windows":
                return [self.window(number) for number in range(60, 0, -1)]
            case "policies/history":
                return [{"at": clock(900), "pointer": self.policies()["pointer"]}]
            case "audit":
                change = {"role": "operator", "route": "POST /v1/scheduling/pause", "request_id": "r"}
                strange = {"by": f"ann{self.text}", "target": self.text, "reason": f"firmware{self.text}"}
                return [{"number": 1, "time": clock(90), **change, **strange}]
        return None

    @staticmethod
    def page(items: list[Json], query: Mapping[str, str]) -> Json:
        """A page of a list, as the API cuts it."""
        limit, after = int(query.get("limit", 100)), int(query.get("continue") or 0)
        more = str(after + limit) if after + limit < len(items) else ""
        return {"items": items[after : after + limit], "continue": more}

    def overview(self) -> Json:
        self.bound += 30
        wave = self.rng.uniform(0.7, 1.3)
        paused = {"paused": self.paused, "by": f"operator:ann{self.text}", "reason": self.text or "firmware"}
        return {
            "time": clock(),
            "leader": self.led() if self.leader else None,
            "scheduling": {**paused, "since": clock(90)},
            "queue": self.places(),
            "units": {"waiting": 3, "placing": 1, "running": 12, "broken": 1},
            "queues": {"total": 4, "waiting_units": 9, "blocked_units": 2, "problems": 1},
            "cluster": {"name": f"prod-eu{self.text}", "uid": "6f0c", "named_by": "setting"},
            "health": admin_load.health(self.findings, clock(720)),
            "pods": {"bound": 90_000 + self.bound, "bound_in_term": self.bound, "running": 5012},
            "rates": {"pods_per_s_10s": 30 * wave, "decisions_per_s_10s": 1900 * wave},
            "latency_ms": {"p50": 41 * wave, "p99": 180 * wave},
            "round_ms": {"p50": 9 * wave, "p99": 31 * wave},
            "conflicts": self.bound // 50,
            "refusals": self.bound // 90,
            "members": {"coordinator": 2, "binder": 2, "agent": 4, "learner": 1},
            "nodes": {
                "total": len(self.names),
                "drained": 1,
                "unowned": 2,
                "cordoned": 1,
                "not_ready": 1,
                "pressure": 1,
            },
            "resources": self.resources(),
            "policy": {"active": "kube-default@1", "candidate": "marl-dqn@7", "stage": "canary", "percent": 10},
        }

    def resources(self) -> list[Json]:
        nodes = len(self.names)
        rows = [("cpu_millis", 32_000 * nodes, 0.97, nodes), ("memory_bytes", (128 << 30) * nodes, 0.61, nodes)]
        rows += [("nvidia.com/gpu", 8 * (nodes // 10), 0.94, nodes // 10), (f"fpga.example/x{self.text}", 0, 0.0, 0)]
        return [
            {
                "name": name, "allocatable": most, "requested": int(most * share), "nodes": count,
                "share": share if most else None,
            }
            for name, most, share, count in rows
        ]  # fmt: skip

    def places(self) -> Json:
        return {"active": 40, "backoff": 12, "unschedulable": 31, "in_flight": 64, "gated": 5, "unsupported": 2}

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

    def map(self, group_by: str = "") -> Json:
        count = len(self.names)
        flags = [{3: 1, 9: 2, 5: 4, 6: 4, 12: 8, 14: 16}.get(number, 0) for number in range(count)]
        cpu = [round(share, 3) for share in self.shares]
        gpu = [cpu[number] if number % 10 == 0 else None for number in range(count)]
        keys = ["zone", "pool", f"label:disktype{self.text}"]
        found = {"names": self.names, "cpu": cpu, "memory": [round(share * 0.8, 3) for share in cpu], "flags": flags}
        found |= {"shares": {f"nvidia.com/gpu{self.text}": gpu}, "group_keys": keys, "group": [], "groups": []}
        if group_by:
            names = [self.zone(number) if group_by == "zone" else self.pool(number) for number in range(count)]
            groups = sorted(set(names))
            found |= {"groups": groups, "group": [groups.index(name) for name in names]}
        return found

    def zone(self, number: int) -> str:
        return f"eu-1{'abc'[number % 3]}{self.text}"

    def pool(self, number: int) -> str:
        return f"gpu-a100{self.text}" if number % 10 == 0 else "general"

    def conditions(self) -> list[Json]:
        told = {"reason": f"KubeletNotReady{self.text}", "message": f"disk is full{self.text}", "since": clock(90)}
        return [{"type": "Ready", "status": "False", **told}]

    def node(self, number: int) -> Json:
        share = self.shares[number]
        gpus = {"nvidia.com/gpu": 8} if number % 10 == 0 else {}
        drained = {"by": "operator:ann", "reason": self.text or "disk", "since": clock(300)}
        return {
            "name": self.names[number],
            "agent": "" if number in (5, 6) else f"agent-{number % 4}{self.text}",
            "schedulable": number != 9,
            "drained": drained if number == 3 else None,
            "taints": [f"dedicated=ml{self.text}:NoSchedule"] if number % 7 == 0 else [],
            "pods": 17,
            "ready": number != 12,
            "cordoned": number == 9,
            "deleting": False,
            "pressure": ["memory"] if number == 14 else [],
            "conditions": [],
            "zone": self.zone(number),
            "region": "eu-1",
            "pool": self.pool(number),
            "labels": {f"disktype{self.text}": f"ssd{self.text}"},
            "allocatable": {"cpu_millis": 32000, "memory_bytes": 128 << 30, "pods": 110, **gpus},
            "requested": {
                "cpu_millis": int(32000 * share), "memory_bytes": int((128 << 30) * share),
                **({"nvidia.com/gpu": int(8 * share)} if gpus else {}),
            },
            "used": {"cpu_millis": 9000, "memory_bytes": 20 << 30, "age_s": 3.2} if number % 2 else None,
        }  # fmt: skip

    def queued(self, number: int = 0) -> Json:
        return {
            "namespace": "batch", "name": f"train-{number}{self.text}", "uid": f"q{number}", "place": "backoff",
            "priority": 100 * (number % 2), "attempts": 4, "waiting_s": 63.1 + number, "retry_in_s": 2.4,
            "plugins": ["NodeResourcesFit"] if number % 3 else ["NodeAffinity"], "nominated_node": self.text,
            "class": f"{self.classes[number % len(self.classes)] if self.classes else number:08x}",
        }  # fmt: skip

    def decision(self) -> Json:
        number = self.rng.randrange(10_000)
        nodes = self.rng.sample(self.names, min(4, len(self.names)))
        scored = [{"node": node, "score": 91.5 - 7 * at, "accepted": at < 3} for at, node in enumerate(nodes)]
        return {
            "time": clock(), "namespace": "web", "name": f"shop-{number:04x}{self.text}", "uid": f"u-{number}",
            "node": nodes[0], "policy": f"marl-dqn@7{self.text}", "attempt": self.bound, "considered": scored,
            "id": f"{self.term}-{self.bound}", "evicted": [f"batch/old{self.text}"] if number % 9 == 0 else [],
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
                "windows": 5, "good": 2, "bad": 0, "samples": 14, "failures": {}, "promotion": "manual",
                "goal": "balance", "min_samples": 20,
                "rules": [{
                    "kind": "promote", "then": f"canary 50 %{self.text}", "automatic": False, "needed": 3, "so_far": 2,
                    "rule": f"3 good windows in a row{self.text}", "in_s": 12.0, "at": clock(-12),
                }],
                "last_window": {
                    **window, "active_p99_ms": 0.4, "fallbacks": 0, "rejected": 1, "active_fallbacks": 0,
                    "active_rejected": 0,
                },
            },
        }  # fmt: skip

    def window(self, number: int) -> Json:
        values = [("balance", 0.79, 0.81), ("neutral", 0.72, 0.7)]
        return {
            "number": number, "time": clock(30 * (61 - number)), "active": f"kube-default@1{self.text}",
            "candidate": f"marl-dqn@7{self.text}", "stage": "canary", "percent": 10, "samples": 40, "agreed": 22,
            "values": [
                {"goal": goal, "active": active + number / 900, "candidate": mine - number / 900}
                for goal, active, mine in values
            ],
            "verdict": "good", "why": "", "conduct": None,
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
                "candidates": [
                    {"name": nodes[7], "total": 190, "scores": {"NodeResourcesFit": 90, "TaintToleration": 100}},
                    {"name": nodes[8], "total": 160, "scores": {"NodeResourcesFit": 60, "TaintToleration": 100}},
                ],
                "score_rules": {
                    "NodeResourcesFit": {"weight": 1, "most": 100}, "TaintToleration": {"weight": 3, "most": 100},
                },
                "groups": [{
                    "plugin": "NodeResourcesFit", "code": "Unschedulable", "stage": "Filter", "count": 110,
                    "reasons": [f"Insufficient cpu{text}"], "change": f"free 62.5 more cpu{text}", "count_only": 90,
                    "nodes": [{
                        "name": nodes[6], "shortages": [short], "numbers": [{"text": f"one{text}"}],
                        "failing": [
                            {"plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]},
                            {"plugin": "TaintToleration", "reasons": [f"untolerated taint dedicated{text}"]},
                        ],
                    }],
                }],
            },
            "preemption": {
                "helps": True, "summary": f"would evict one pod{text}", "curable": 110, "tried": 100, "protected": 0,
                "candidates": [{"node": nodes[2], "count": 1, "allowed": True, "victims": [victim]}],
            },
            "evicted": [{
                "pod": f"batch/old{text}", "uid": "o", "priority": 0, "node": nodes[2], "ago_s": 4.0,
                "outcome": "evicted",
            }],
            "victim_of": {"pod": f"web/shop-9{text}", "uid": "v", "priority": 1000, "node": nodes[3], "ago_s": 90.0},
            "reasons": {
                "policy": "marl-dqn@7", "ahead_by": 0.12, "moved": moved, "decisive": moved[:1],
                "chosen": {"node": nodes[0], "score": 1.2, "q_accept": 0.9, "q_reject": -0.3},
                "runner_up": {"node": nodes[1], "score": 1.08, "q_accept": 0.7, "q_reject": -0.2},
            },
        }  # fmt: skip


def listed(items: list[Json]) -> Json:
    """A page that is the last one."""
    return {"items": items, "continue": ""}
