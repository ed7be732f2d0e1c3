"""Made-up units and queues, in the shapes of the admin API. ``text`` is put where strangers can write."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
GIB = 2**30
PHASES = ("waiting", "placing", "running", "broken")


def units(nodes: list[str], text: str, since: str) -> list[Json]:
    """A lone pod on its way, and gangs in every phase."""
    lone = unit("web", "shop-1", nodes, text, since=since)
    found = [lone | {"source": "pod", "key": "uid-1", "phase": "placing", "state": "planned", "min_member": 1}]
    for number in range(24):
        phase = PHASES[number % 4]
        name = f"train-{number}{text}"
        found.append(unit("batch", name, nodes, text, since=since, phase=phase, position=number + 1))
    return found


def unit(
    namespace: str,
    name: str,
    nodes: list[str],
    text: str,
    *,
    since: str = "",
    phase: str = "waiting",
    position: int = 1,
) -> Json:
    bound = {"waiting": 0, "placing": 2, "running": 8, "broken": 3}[phase]
    waits = phase in ("waiting", "broken")
    pods = [
        {"namespace": namespace, "name": f"{name}-{n}", "uid": f"{name}-{n}", "node": nodes[n] if n < bound else ""}
        for n in range(8)
    ]
    return {
        "key": f"podgroup:{namespace}/{name}", "source": "podgroup", "namespace": namespace, "name": name,
        "phase": phase, "queue": f"vision{text}", "place": "unschedulable", "state": "", "priority": 100,
        "min_member": 6, "members": 8, "bound": bound, "position": position if waits else None, "pods": pods,
        "reason": "NodeResourcesFit" if waits else "", "since": since, "waiting_s": 63.1 if waits else None,
        "message": f"5 of at least 6 members fit: 110 Insufficient nvidia.com/gpu{text}" if waits else "",
    }  # fmt: skip


def whole(namespace: str, name: str, nodes: list[str], text: str) -> Json:
    """One gang that waits, with victims."""
    listed = [
        {
            "name": f"{name}-{n}", "uid": f"u{n}", "state": "bound" if n > 5 else "unschedulable",
            "node": nodes[n] if n > 5 else "", "nominated_node": nodes[n] if n == 0 else "", "priority": 100,
            "attempts": 3, "waiting_s": 63.1, "message": f"0/120 nodes are available{text}",
        }
        for n in range(8)
    ]  # fmt: skip
    victims = [{"pod": f"web/old{text}", "node": nodes[3], "priority": 0, "outcome": "evicted", "ago_s": 4.0}]
    return unit(namespace, name, nodes, text) | {
        "api_version": "scheduling.k8s.io/v1beta1", "gang": True, "whole": True, "on_broken": "keep",
        "timeout_s": 300.0, "missing": 0, "states": {"unschedulable": 6, "bound": 2}, "nodes": {}, "created": "",
        "topology": {"key": f"rack{text}", "required": True, "domain": f"r7{text}"}, "problem": text, "listed": listed,
        "condition": {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable",
                      "message": f"no room{text}"},
        "victims": victims,
    }  # fmt: skip


def explained(namespace: str, name: str, nodes: list[str], text: str) -> Json:
    """What an attempt at it would give: two members fail alike."""
    failed = {
        "pods": [f"{namespace}/{name}-{n}{text}" for n in range(2)], "count": 2, "plugins": ["NodeResourcesFit"],
        "why": f"0/120 nodes are available: 120 Insufficient nvidia.com/gpu{text}",
        "nearest": [{"node": nodes[0], "lacks": {"nvidia.com/gpu": "2"}}],
        "change": f"free 2 nvidia.com/gpu on {nodes[0]}{text}",
    }  # fmt: skip
    now = {
        "group": name, "gang": True, "min_count": 6, "bound": 2, "pending": 6, "placed": 4, "lacking": 2,
        "reached": False, "reordered": False, "topology": f"rack{text}", "domain": "",
        "summary": "4 of 6 waiting members fit together, 2 run: 6 are needed, so none is placed",
        "change": f"for each of 2 member(s) more: {failed['change']}", "failed": [failed],
        "domains": [{"value": f"r7{text}", "members": 4}, {"value": "r8", "members": 1}],
        "preemption": {"helps": True, "summary": f"evict web/old{text}", "victims": [f"web/old{text}"], "count": 1,
                       "violations": 1, "broken": [f"batch/poor{text}"]},
    }  # fmt: skip
    return {
        "unit": f"{namespace}/{name}", "phase": "waiting", "summary": now["summary"], "reason": "NodeResourcesFit",
        "message": text, "queue": f"vision{text}", "blocked": f"queue research: cpu 48 of maximum 48 is used{text}",
        "now": now,
    }  # fmt: skip


def queues(text: str) -> list[Json]:
    """A tree of four, one of them broken."""
    return [
        queue(f"research{text}", [], 40_000, text=text), queue(f"vision{text}", [f"research{text}"], 30_000, text=text),
        queue(f"speech{text}", [f"research{text}"], 8_000, text=text),
        queue(f"lost{text}", [], 0, problem=f"spec.parent: there is no Queue base{text}", text=text),
    ]  # fmt: skip


def queue(name: str, above: list[str], used: int, *, problem: str = "", text: str = "") -> Json:
    use = {"used": used, "guaranteed": 24_000, "maximum": 48_000, "borrowed": max(0, used - 24_000)}
    memory = {"used": used << 20, "guaranteed": None, "maximum": None, "borrowed": 0, "share": 0.2}
    return {
        "name": name, "parent": above[-1] if above else "", "path": [*above, name], "depth": len(above),
        "order": "Priority", "strategy": "DRF", "weight": "3/2", "share": 0.31, "dominant": "cpu_millis",
        "resources": [
            {"name": "cpu_millis", "share": 0.31, **use}, {"name": "memory_bytes", **memory},
            {"name": f"fpga.example/x{text}", **memory, "maximum": 8},
        ],
        "pods": 310, "pending_units": 12, "blocked_units": 2, "parked_pods": 3, "problem": problem,
        "deleting": bool(problem), "warnings": [f"spec.guaranteed[cpu]: too much{text}"] if problem else [],
    }  # fmt: skip


def queue_whole(name: str, text: str) -> Json:
    """One queue with the units that wait in it."""
    waiting = [
        {
            "position": n + 1, "key": f"podgroup:batch/train-{n}", "namespace": "batch", "name": f"train-{n}{text}",
            "source": "podgroup", "priority": 100, "members": 8, "waiting_s": 40.0, "requests": {"cpu_millis": 8000},
            "blocked": f"queue research: cpu 48 of maximum 48 is used{text}" if n % 2 else "", "reason": text,
        }
        for n in range(6)
    ]  # fmt: skip
    return queue(name, [f"research{text}"], 30_000, text=text) | {
        "namespaces": [f"vision{text}"], "children": [f"vision-a{text}"], "borrowing": {"cpu_millis": 8000},
        "lending": None, "reclaim": True, "reclaim_after_s": 60.0, "min_run_s": 300.0, "half_life_s": 3600.0,
        "past": {"cpu_millis": 9000}, "units": waiting,
    }  # fmt: skip
