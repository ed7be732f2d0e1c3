"""What a snapshot costs: of a made cluster the file's bytes, and CPU seconds of reading, hiding, packing and unpacking.

    .venv/bin/python -m bench.snapshot [--nodes 5000] [--pods 50000] [--replay]

Objects come as the API server's pages and are decoded as ``conclave snapshot`` does it; the network is not in it.
``leader_ms``: CPU of the longest piece of the leader's part, which is one turn of its loop, with all nodes measured,
4,096 decisions remembered and a tenth of the pods pending. ``--replay``: also until the mesh has decided about those.
CPU of this process alone, so another load on the machine does not count.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import time
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from bench.saturation import load
from lab.mesh.replayed import deciding, replay
from services.cli.snapshot.reading import document
from services.coordinator.core.decisions import LIMIT, Considered, PastDecision, Recent
from services.coordinator.http.routes import snapshot as route
from services.coordinator.usage.measured import MeasuredNode, UsagePart
from shared.kube.objects import KubeNode, KubePod
from shared.wire.snapshot import decode_snapshot, encode_snapshot

AT = "2026-11-29T05:00:00.000+00:00"
PAGE = 500
PENDING = 10
"""One pod in so many is on no node."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--replay", action="store_true")
    options = parser.parse_args()
    print(json.dumps(run(options.nodes, options.pods, replayed=options.replay), indent=1))


def run(nodes: int, pods: int, *, replayed: bool = False) -> dict[str, Any]:
    """The figures."""
    rng = Random(1)
    node_pages = _pages([_uid(load.node(f"node-{number:05}", number)) for number in range(nodes)])
    pod_pages = _pages([_pod(number, nodes, rng) for number in range(pods)])
    leader_ms, facts = _leader(nodes, pods)
    found: dict[str, Any] = {
        "nodes": nodes,
        "pods": pods,
        "leader_ms": leader_ms,
        "api_bytes": sum(map(len, pod_pages)),
    }
    began = time.process_time()
    objects = {"nodes": _read(node_pages, KubeNode), "pods": _read(pod_pages, KubePod)}
    found["read_s"], began = _since(began)
    head, _ = document(objects, facts, [], hashed=True, at=AT, kubernetes="v1.36.2")
    found["hide_s"], began = _since(began)
    data = encode_snapshot(head)
    found["pack_s"], began = _since(began)
    found["write_cpu_s"] = round(found["read_s"] + found["hide_s"] + found["pack_s"], 2)
    found["file_bytes"], found["json_bytes"] = len(data), len(gzip.decompress(data))
    del objects, head
    began = time.process_time()
    snapshot = decode_snapshot(data, "file")
    found["unpack_s"], began = _since(began)
    if replayed:
        result = replay(snapshot, deciding(snapshot, "", None))
        found["replay_s"], began = _since(began)
        found["placed"], found["waiting"] = len(result.placed), len(result.waiting)
    found["rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return found


def _since(began: float) -> tuple[float, float]:
    now = time.process_time()
    return round(now - began, 2), now


def _uid(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["uid"] = body["metadata"]["name"]
    return body


def _pod(number: int, nodes: int, rng: Random) -> dict[str, Any]:
    """With what pods of controllers carry beside what a scheduler reads."""
    app, on = f"service-{rng.randrange(500)}", "" if number % PENDING == 0 else f"node-{rng.randrange(nodes):05}"
    body = load.pod(f"{app}-{rng.getrandbits(40):010x}-{rng.getrandbits(20):05x}", 100, 128, app=app, on=on)
    meta, spec = body["metadata"], body["spec"]
    meta["uid"] = f"{rng.getrandbits(128):032x}"
    meta["creationTimestamp"] = f"2026-11-29T0{rng.randrange(10)}:{rng.randrange(60):02}:00Z"
    meta["labels"] |= {"pod-template-hash": f"{number % 500:09x}", "team.example.com/cost-centre": f"c{number % 40}"}
    meta["annotations"] = {"example.com/checksum": f"{rng.getrandbits(256):064x}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-{number % 500:09x}", "controller": True}
    meta["ownerReferences"] = [{**owner, "uid": f"{number % 500:032x}"}]
    selector = {"matchLabels": {"app": app}}
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    spec["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    spec["containers"][0]["env"] = [{"name": f"VARIABLE_{one}", "value": "x" * 40} for one in range(20)]
    spec["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return body


def _pages(bodies: list[dict[str, Any]]) -> list[bytes]:
    return [msgspec.json.encode({"items": bodies[at : at + PAGE]}) for at in range(0, len(bodies), PAGE)]


def _read(pages: list[bytes], kind: type[Any]) -> list[dict[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, list[kind]])  # type: ignore[valid-type]
    return [msgspec.to_builtins(item) for page in pages for item in decoder.decode(page)["items"]]


def _leader(nodes: int, pods: int) -> tuple[float, dict[str, Any]]:
    """(CPU milliseconds of the longest piece, what it all says)."""
    recent = Recent()
    for number in range(LIMIT):
        seen = tuple(Considered(f"node-{(number + more) % nodes:05}", 100.0 - more, True) for more in range(6))
        recent.remember(
            f"u{number}",
            PastDecision(float(number), number, seen[0].node, "kube-default", 1, seen, f"u{number}", "d", "p"),
        )
    used = {
        f"node-{number:05}": MeasuredNode(
            [UsagePart(0.5, 1.0, "sensor")] * 4, latencies={f"target-{one}": (900, 10) for one in range(3)}
        )
        for number in range(nodes)
    }
    queue = SimpleNamespace(entries=[f"{number:032x}" for number in range(pods // PENDING)])
    core: Any = SimpleNamespace(state=SimpleNamespace(recent=recent, queue=queue), variants=SimpleNamespace(used=used))
    longest, said = 0.0, {}
    parts = {
        "queue": route.queued(core), "measured": route.measured(core, 5.0),
        "decisions": route.decided(core, lambda _: AT),
    }  # fmt: skip
    for name, items in parts.items():
        told, body = route.pieces(items), b""
        while True:
            began = time.thread_time()
            piece = next(told, None)
            longest = max(longest, time.thread_time() - began)
            if piece is None:
                break
            body += piece
        said[name] = msgspec.json.decode(b"[" + body + b"]")
    facts: dict[str, Any] = {"agents": [{"node": ""}] * 3, "drained": [], "settings": {}, **said}
    return round(longest * 1000, 2), facts


if __name__ == "__main__":
    main()
