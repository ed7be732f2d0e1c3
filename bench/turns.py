"""The longest turn of a leader where one event asks for much: CPU ms of each turn of the pure cores, in virtual time.

    python -m bench.turns [SCENE ...] [--scale 1] [--profile FILE] [--json]

No process, no socket, the garbage collector as services have it. ``limit``, ``nodes``, ``gang``: queues take back what
32,000 running pods borrowed, where a limit, the nodes, or the nodes for a gang hold units back; ``lowered``: a limit
falls to half of what is used; ``simulate``: the parts of one answer beside 10,000 pending units; ``spread``,
``affinity``: a gang of 1,024 whose members have such rules about each other, on as many nodes; ``takeover``: a new
binder finds the intent of a gang of 4,096. ``work_ms``: CPU of all of them together.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.gangs import load
from bench.gangs.world import GangWorld
from bench.saturation.world import PhaseTurns
from bench.stand.figures import lines, quantile
from services.binder.core import events as heard
from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from services.coordinator.inspect.queue_facts import simulated
from services.coordinator.inspect.simulation import Simulated, SimulatedJob
from shared.model.cluster_events import Listed, NodeUpserted, ObjectChanged, PodUpserted
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.runtime.process.garbage import keep_pauses_short
from shared.scheduling.queues.simulate import Parts
from shared.wire.keys import Keys
from shared.wire.records import Intent, IntentPod, gang_key

PER_NODE, PER_VALUE = 32, 512

Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}; all")
    parser.add_argument("--scale", type=float, default=1.0, help="this share of the pods (1)")
    parser.add_argument("--profile", metavar="FILE", default="", help="cProfile of the turns into FILE")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    if unknown := [name for name in options.scenes if name not in SCENES]:
        parser.error(f"{unknown[0]}: no such scene; take of {', '.join(SCENES)}")
    profile = cProfile.Profile() if options.profile else None
    found = {name: SCENES[name](options.scale, profile) for name in options.scenes or SCENES}
    print(json.dumps(found) if options.json else "\n".join(lines(found)))
    if profile is not None:
        profile.dump_stats(options.profile)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(50)


# --- queues ---------------------------------------------------------------------------------------------------------


def limit(scale: float, profile: cProfile.Profile | None) -> Json:
    """A limit above both queues is used up by the borrower."""
    nodes = round(1000 * scale)
    top = cpus(nodes * PER_NODE)
    world = lent(Queue("top", maximum=top, guaranteed=top), nodes=nodes, room=2)
    return taken_back(world, profile, units=64)


def by_nodes(scale: float, profile: cProfile.Profile | None) -> Json:
    """No node has room."""
    return taken_back(lent(Queue("top"), nodes=round(1000 * scale), room=1), profile, units=64)


def gang(scale: float, profile: cProfile.Profile | None) -> Json:
    """No nodes have room for a gang of 256."""
    return taken_back(
        lent(Queue("top"), nodes=round(1000 * scale), room=1), profile, units=round(256 * scale), in_group="train"
    )


def lowered(scale: float, profile: cProfile.Profile | None) -> Json:
    """A maximum falls to half of what is used."""
    nodes = round(1000 * scale)
    world = lent(Queue("top"), nodes=nodes, room=1)
    begin(world, profile)
    fallen = Queue("top", maximum=cpus(nodes * PER_NODE // 2), reclaim=True, generation=2)
    world.post(ObjectChanged("queues", "top", fallen))
    world.run(world.now + 20)
    return {"evicted": len(world.evicted), **figures(world.turns["load"])}


def simulate(scale: float, profile: cProfile.Profile | None) -> Json:
    """The parts of one answer, beside 10,000 units that wait and 32,000 pods that run, in two queues or in 200."""
    nodes = round(1000 * scale)
    found: Json = {}
    for queues in (1, 200):
        names = ["b", *(f"q{number:03}" for number in range(1, queues))]
        world = lent(Queue("top"), nodes=nodes, room=1, names=names)
        for number in range(round(10_000 * scale)):
            name, millis = names[number % queues], 1000 + number % 997
            world.add_pod(small(f"waits-{number:05}", queue=name, millis=millis))
        world.run(world.now + 60)
        keep_pauses_short()
        for queue, members in (("a", 64), ("b", 8)):
            job = SimulatedJob(queue, "default", members, members, (("cpu", 1000),))
            found[f"of {queues + 1} queues, {queue}"] = answered(simulated(world.core, job, world.now), profile)
    return found


def answered(steps: Parts[Simulated], profile: cProfile.Profile | None) -> Json:
    """One answer, part by part."""
    turns = PhaseTurns()
    while True:
        if profile is not None:
            profile.enable()
        began = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            return {"summary": end.value.summary, **figures(turns)}
        finally:
            if profile is not None:
                profile.disable()
            turns.add((time.thread_time() - began) * 1000, 0.0, float(len(turns.cpu_ms)), ())


def lent(top: Queue, *, nodes: int, room: int, names: Sequence[str] = ("b",)) -> GangWorld:
    """Queues (``names``) run on everything, which another is guaranteed a quarter of. ``room``: a node takes so many
    times what runs there."""
    world = GangWorld(agents=1, seed=1)
    world.phase = "fill"
    world.post(ObjectChanged("queues", "top", top))
    world.post(ObjectChanged("queues", "a", Queue("a", "top", guaranteed=cpus(nodes * PER_NODE // 4), reclaim=True)))
    for name in names:
        world.post(ObjectChanged("queues", name, Queue(name, "top")))
    for number in range(nodes):
        body = load.node(number)
        body["status"]["allocatable"] = {"cpu": str(PER_NODE * room), "memory": "512Gi", "pods": "110"}
        world.add_node(body)
        for standing in range(PER_NODE):
            pod = small(f"lent-{number:05}-{standing}", queue=names[number % len(names)])
            pod["spec"]["nodeName"] = body["metadata"]["name"]
            world.add_pod(pod)
    world.begin()
    world.run(world.now + 60)
    return world


def taken_back(world: GangWorld, profile: cProfile.Profile | None, *, units: int, in_group: str = "") -> Json:
    """Units of the other queue come and wait for what is theirs."""
    begin(world, profile)
    if in_group:
        world.add_group(group(in_group, units))
    uids = [world.add_pod(small(f"owner-{number:03}", queue="a", in_group=in_group)) for number in range(units)]
    end = world.now + 120
    while world.now < end and not all(uid in world.bound for uid in uids):
        world.run(world.now + 0.5)
    return {
        "bound": sum(uid in world.bound for uid in uids),
        "evicted": len(world.evicted),
        **figures(world.turns["load"]),
    }


def small(name: str, *, queue: str = "", in_group: str = "", millis: int = 1000) -> Json:
    body = load.pod(name, in_group=in_group, app="turns")
    body["metadata"]["namespace"] = "default"
    if queue:
        body["metadata"]["labels"][QUEUE_LABEL] = queue
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{millis}m"}}
    return body


def cpus(amount: int) -> dict[str, int]:
    return {"cpu": amount * 1000}


# --- gangs ----------------------------------------------------------------------------------------------------------


def spread(scale: float, profile: cProfile.Profile | None) -> Json:
    """Members are spread over the nodes."""
    rule = {"maxSkew": 1, "topologyKey": load.RACK, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "turns"}}}  # fmt: skip
    return together({"topologySpreadConstraints": [rule]}, scale, profile)


def affinity(scale: float, profile: cProfile.Profile | None) -> Json:
    """No two members on one node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "turns"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return together({"affinity": rule}, scale, profile)


def together(rule: Json, scale: float, profile: cProfile.Profile | None) -> Json:
    """A gang with the rule among its members, on as many nodes, and on one less."""
    size, found = round(1024 * scale), dict[str, Any]()
    for name, nodes in (("as many nodes", size), ("one node less", size - 1)):
        world = GangWorld(agents=2, seed=1)
        world.phase = "fill"
        for number in range(nodes):
            body = load.node(number)
            body["status"]["allocatable"] = {"cpu": "2", "memory": "32Gi", "pods": "110"}
            world.add_node(body)
        world.begin()
        world.run(world.now + 5)
        begin(world, profile)
        world.add_group(group("train", size))
        for number in range(size):
            body = small(f"member-{number:05}", in_group="train")
            body["spec"] |= rule
            world.add_pod(body)
        world.run(world.now + 30)
        found[name] = {"bound": len(world.bound), **figures(world.turns["load"])}
    return found


def takeover(scale: float, profile: cProfile.Profile | None) -> Json:
    """A gang is committed, nobody of it is bound, and another binder leads."""
    size = round(4096 * scale)
    world = GangWorld(agents=1, seed=1)
    world.phase = "fill"
    for number in range(max(1, size // 16)):
        world.add_node(load.node(number))
    world.begin()
    world.run(world.now + 5)
    stored = committed(world, size)
    nodes = [node for node in world.core.state.cache.table.nodes if node is not None]
    found: Json = {}
    for name, listed in (("as it was", nodes), ("nodes are gone", nodes[: len(nodes) // 2])):
        core, turns = BinderCore(4, BinderCoreSettings(), Keys()), PhaseTurns()
        events: list[heard.Event] = [NodeUpserted(node) for node in listed]
        events += [PodUpserted(pod) for pod in world.pods.values()]
        core.handle_all([*events, Listed("pods"), Listed("nodes")], 100.0)
        keep_pauses_short()
        now, batch = 101.0, list[heard.Event]([heard.IntentsListed(stored)])
        for _ in range(1000):
            if profile is not None:
                profile.enable()
            began = time.thread_time()
            core.handle_all(batch, now)
            turns.add((time.thread_time() - began) * 1000, 0.0, now, batch)
            if profile is not None:
                profile.disable()
            if core.wake_at > now:
                break
            batch = [heard.Tick()]
        found[name] = {"members": len(core.state.in_flight), **figures(turns)}
    return found


def committed(world: GangWorld, size: int) -> dict[str, heard.StoredIntent]:
    """The gang's intent, value by value, as the binder of this world put it."""
    stored: dict[str, heard.StoredIntent] = {}
    pods = []
    for number in range(size):
        world.add_pod(small(f"member-{number:05}", millis=100))
        pod = world.pods[f"uid-member-{number:05}"]
        pods.append(IntentPod(uid=pod.uid, ns=pod.namespace, name=pod.name, rv=pod.resource_version,
                              node=f"node-{number // 16:05}", unit=number + 1))  # fmt: skip
    values = [tuple(pods[at : at + PER_VALUE]) for at in range(0, size, PER_VALUE)]
    for number, members in enumerate(values):
        intent = Intent(plan_id=1, coordinator_term=7, unit=0, pods=members, term=3, group=group("train", size).key,
                        min_count=size, links=len(values) - 1 if not number else 0)  # fmt: skip
        stored[gang_key(7, 0, number)] = heard.StoredIntent(intent, 1)
    return stored


def group(name: str, size: int) -> PodGroup:
    return PodGroup(
        group_key(GroupSource.NATIVE, "default", name), GroupSource.NATIVE, "default", name, gang=True, min_count=size
    )  # fmt: skip


def begin(world: GangWorld, profile: cProfile.Profile | None) -> None:
    """What comes now is measured."""
    world.phase = "load"
    keep_pauses_short()
    world.profile = profile


def figures(turns: PhaseTurns) -> Json:
    """CPU of the turns."""
    return {
        "turns": len(turns.cpu_ms),
        "work_ms": round(sum(turns.cpu_ms)),
        "turn_ms": {"p50": quantile(turns.cpu_ms, 50), "p99": quantile(turns.cpu_ms, 99),
                    "longest": quantile(turns.cpu_ms, 100)},
        "above_50_ms": sum(ms > 50 for ms in turns.cpu_ms),
        "longest": turns.longest[:2],
    }  # fmt: skip


Scene = Callable[[float, cProfile.Profile | None], Json]

SCENES: dict[str, Scene] = {
    "limit": limit,
    "nodes": by_nodes,
    "gang": gang,
    "lowered": lowered,
    "simulate": simulate,
    "spread": spread,
    "affinity": affinity,
    "takeover": takeover,
}


if __name__ == "__main__":
    main()
