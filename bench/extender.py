"""What an extender costs: CPU and latency of one question, and kube-scheduler's rate with it beside its rate without.

    .venv/bin/python -m bench.extender [--nodes 1000] [--questions 2000] [--policies lb,el,...]
    KUBERNETES_BINARIES=DIR .venv/bin/python -m bench.extender --real [--nodes 1000] [--pods 1000] [--runs 2]

Without ``--real``: ``filter`` and ``prioritize`` for one pod of some classes, in one process with its caller, over HTTP
on loopback; between two questions a pod is bound, as in life. ``cpu_ms``: of the extender's part alone (reading,
judging, writing), at 100 questions a second of its clock; ``wall_ms``: of the whole request. ``names``:
``nodeCacheCapable: true``; ``whole``: with the nodes' objects.

With ``--real``: pods wait on a real kube-apiserver, then kube-scheduler starts; its rate is from the first Binding seen
to the last. With and without the extender take turns, in one run on the same nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import yaml
from aiohttp import web

from bench.saturation import load
from bench.stand.ending import run_to_its_end
from bench.stand.figures import quantile
from services.extender.app import ExtenderListener
from services.extender.core import ExtenderCore
from services.extender.protocol import filtered, prioritized, read_question
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.cluster_events import Listed, NodeUpserted, PodUpserted
from shared.policy.domain import PLACEMENT
from shared.policy.registry import make_policy, ref_of

POLICIES = "lb,el,ee,frag,marl-dqn,least-allocated"
IMAGES = 50
"""Names of images on a node, as kubelets report them: most of what a whole node is."""
BOUND_S = 600.0
Json = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--policy", default="lb", help="with --real")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    print(json.dumps(run_to_its_end(real(options) if options.real else parts(options)), indent=1))


# --- one question -----------------------------------------------------------------------------------------------------


async def parts(options: argparse.Namespace) -> Json:
    """By policy, and once with whole nodes."""
    found: Json = {"nodes": options.nodes, "machine_load": os.getloadavg()[0]}
    for policy in options.policies.split(","):
        found[policy] = {"names": await _asked(policy, options, whole=False)}
    first = options.policies.split(",")[0]
    options.questions = max(20, options.questions // 50)
    found[first]["whole"] = await _asked(first, options, whole=True)
    return found


async def _asked(policy: str, options: argparse.Namespace, *, whole: bool) -> Json:
    rng = Random(2)
    bodies = [_node(number) for number in range(options.nodes)]
    core, served = _core(policy, bodies), _core(policy, bodies)
    named = {"Nodes": {"items": bodies}} if whole else {"NodeNames": [body["metadata"]["name"] for body in bodies]}
    classes = [load.pod(f"new-{cpu}", 100 * cpu, 128 * cpu, app=f"app-{cpu}") for cpu in range(1, 9)]
    questions = [json.dumps({"Pod": pod, **named}).encode() for pod in classes]
    runner = web.AppRunner(ExtenderListener(served, policy).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cpu, wall = {"filter": list[float](), "prioritize": list[float]()}, list[float]()
    async with aiohttp.ClientSession() as session:
        for number in range(options.questions):
            for one in (core, served):
                one.take([_bound(10_000_000 + number, options.nodes, rng)])
            body = questions[number % len(questions)]
            for verb, answer in (("filter", _filter), ("prioritize", _prioritize)):
                began = time.thread_time()
                answer(core, body, number / 100)
                cpu[verb].append(1000 * (time.thread_time() - began))
                began = time.perf_counter()
                async with session.post(f"{url}/{verb}", data=body) as response:
                    await response.read()
                wall.append(1000 * (time.perf_counter() - began))
    await runner.cleanup()
    figures = {f"{verb}_cpu_ms": _quantiles(values) for verb, values in cpu.items()}
    return {"bytes": len(questions[0]), **figures, "wall_ms": _quantiles(wall), "fell": core.fell}


def _core(policy: str, bodies: list[Json]) -> ExtenderCore:
    """Full to a third."""
    rng = Random(1)
    core = ExtenderCore(ref_of(policy), make_policy(policy), Random(1), clock=time.thread_time, limits=PLACEMENT.limits)
    core.take(NodeUpserted(node_from_api(msgspec.convert(body, api.KubeNode))) for body in bodies)
    core.take(_bound(number, len(bodies), rng) for number in range(3 * len(bodies)))
    core.take([Listed("nodes"), Listed("pods")])
    return core


def _filter(core: ExtenderCore, body: bytes, _now: float) -> bytes:
    asked = read_question(body)
    return filtered(asked, core.filter(asked.pod, asked.names))


def _prioritize(core: ExtenderCore, body: bytes, now: float) -> bytes:
    asked = read_question(body)
    return prioritized(asked.names, core.prioritize(asked.pod, asked.names, now).scores)


def _quantiles(values: list[float]) -> Json:
    return {f"p{part}": round(quantile(values, part), 2) for part in (50, 99)}


def _node(number: int) -> Json:
    body = load.node(f"node-{number:05}", number)
    body["status"]["images"] = [
        {"names": [f"registry.example.com/team/app-{one}@sha256:{one:064x}", f"registry.example.com/team/app-{one}:v1"]}
        for one in range(IMAGES)
    ]
    return body


def _bound(number: int, nodes: int, rng: Random) -> PodUpserted:
    body = load.pod(f"pod-{number}", 100, 128, on=f"node-{rng.randrange(nodes):05}")
    body["metadata"]["uid"] = body["metadata"]["name"]
    return PodUpserted(pod_from_api(msgspec.convert(body, api.KubePod)))


# --- a real kube-scheduler --------------------------------------------------------------------------------------------


async def real(options: argparse.Namespace) -> Json:
    """Both in turns. Needs the binaries (``tests/real/plane.py``)."""
    from tests.real.hollow import hollow_node
    from tests.real.plane import Plane, PlaneSettings

    off = (
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    )  # nobody makes accounts, or removes taints
    found: Json = {"nodes": options.nodes, "pods": options.pods, "policy": options.policy, "rates": {}}
    with tempfile.TemporaryDirectory() as folder:
        async with Plane(PlaneSettings(Path(folder), server_only=True, extra=off)) as plane:
            for number in range(options.nodes):
                labels = {"topology.kubernetes.io/zone": f"zone-{number % 3}"}
                node = hollow_node(f"node-{number:05}", cpu="16", memory="64Gi", labels=labels)
                async with plane.session.post("/api/v1/nodes", json=node) as answer:
                    assert answer.status == 201, await answer.text()
            extender, url = await started(plane.kubeconfig, Path(folder), options.policy)
            plain = yaml.safe_load((plane.folder / "scheduler.yaml").read_text())
            for run in range(2 * options.runs):
                name = ("without", "with")[run % 2]
                extenders = {"extenders": [configuration(url)]} if name == "with" else {}
                (plane.folder / "scheduler.yaml").write_text(yaml.safe_dump({**plain, **extenders}))
                found["rates"].setdefault(name, []).append(await _drained(plane, options.pods, run))
            async with aiohttp.ClientSession() as session, session.get(f"{url}/status") as answer:
                found["extender"] = await answer.json()
            extender.terminate()
            await extender.wait()
    rates = found["rates"]
    found["ratio"] = round(sum(rates["with"]) / sum(rates["without"]), 3)
    return found


def configuration(url: str) -> Json:
    """An entry of ``extenders`` as docs/extender.md has it."""
    return {
        "urlPrefix": url, "prioritizeVerb": "prioritize", "weight": 5,
        "nodeCacheCapable": True, "ignorable": True, "httpTimeout": "500ms",
    }  # fmt: skip


async def started(kubeconfig: Path, folder: Path, policy: str) -> tuple[asyncio.subprocess.Process, str]:
    """(an extender that knows the cluster, where it is asked)."""
    with (folder / "extender.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.extender", "--kubeconfig", str(kubeconfig), "--policy", policy,
            "--listen", "127.0.0.1:0", "--follow-parent", "true", stdout=log, stderr=log,
        )  # fmt: skip
    url = ""
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.sleep(0.1)
            assert process.returncode is None, (folder / "extender.log").read_text()
            for line in (folder / "extender.log").read_text().splitlines():
                told = msgspec.json.decode(line) if line.startswith("{") else {}
                if told.get("event") == "extender_listening":
                    url = f"http://{told['host']}:{told['port']}"
            if url:
                async with session.get(f"{url}/healthz") as answer:
                    if answer.status == 200:
                        return process, url


async def _drained(plane: Any, pods: int, run: int) -> float:
    """Pods a second, from the first Binding seen to the last; all pods are gone again."""
    where = f"/api/v1/namespaces/run-{run}/pods"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"run-{run}"}}
    async with plane.session.post("/api/v1/namespaces", json=namespace) as answer:
        assert answer.status == 201, await answer.text()
    for number in range(pods):
        body = load.pod(f"pod-{number}", 100, 128, app=f"app-{number % 8}", scheduler="default-scheduler")
        del body["metadata"]["namespace"], body["spec"]["priority"], body["status"]
        async with plane.session.post(where, json=body) as answer:
            assert answer.status == 201, await answer.text()
    await plane.start("kube-scheduler")
    seen: set[str] = set()
    began = ended = 0.0
    async with (
        asyncio.timeout(BOUND_S),
        plane.session.get(
            where, params={"watch": "true", "resourceVersion": "0"}, timeout=aiohttp.ClientTimeout(total=BOUND_S)
        ) as answer,
    ):
        async for line in answer.content:
            pod = json.loads(line)["object"]
            if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in seen:
                seen.add(pod["metadata"]["uid"])
                ended = time.monotonic()
                began = began or ended
                if len(seen) == pods:
                    break
    await plane.stop("kube-scheduler")
    for number in range(pods):
        params = {"gracePeriodSeconds": "0"}
        async with plane.session.delete(f"{where}/pod-{number}", params=params) as answer:
            assert answer.status == 200, await answer.text()
    return round((pods - 1) / (ended - began), 1)


if __name__ == "__main__":
    main()
