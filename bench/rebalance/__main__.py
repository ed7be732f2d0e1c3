"""What ``conclave rebalance`` wins on decayed states, beside what no rearrangement could do better.

    .venv/bin/python -m bench.rebalance --scene nodes [--seeds 50]
    .venv/bin/python -m bench.rebalance --scene openb --trace-dir DIR [--seeds 5] [--share 0.8] [--max-moves 300]
        [--anew]
    .venv/bin/python -m bench.rebalance --scene size [--nodes 5000] [--pods 50000]
    .venv/bin/python -m bench.rebalance --scene consolidation [--nodes 500]
    .venv/bin/python -m bench.rebalance --scene unblock

``nodes``: states of 20 nodes; nodes that ``empty-nodes`` frees, of those that the exact programme (MILP, HiGHS) frees.
``openb``: its GPU nodes filled to a share by kube-scheduler's least requested, then 10,000 random departures, each
followed by arrivals; by how much FGD's fragment falls, of what a linear programme allows; a second run on the result.
``size``: CPU seconds of a plan of each goal. ``consolidation``: KAI's scene (500 nodes of 8 GPUs, a single-GPU pod on
each; 41 gangs of 10 members of a whole node come one after the other), planned. ``unblock``: a gang of 8 that fits
nowhere, from the command to the last member bound, on a mesh of processes. Same seeds, same states; only times depend
on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from bench.rebalance.states import SHAPES, SIZES, Decaying, large_state, openb_state, plain_state
from bench.rebalance.units import GPUS, MEMBERS, UNITS, consolidation, unblock
from lab.bounds.moves_bound import fewest_nodes, least_fragment
from lab.suites.openb import NODE_LIST
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.model.resources import CPU, MEMORY, PODS
from shared.policy.frag.fragmentation import typical_demand
from shared.rebalance.goals.fragmentation import Fragments
from shared.rebalance.history import MoveHistory, PastMove
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName, MovePlan
from shared.rebalance.planner import ClusterSituation, PlanRequest, plan
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial

GIB = 1 << 30
FREE = Caps(moves=0, at_once=0, workload_part=1.0)


def planned(there: ClusterSituation, goal: GoalName, caps: Caps = FREE) -> tuple[MovePlan, float]:
    """The plan, and its CPU seconds."""
    begun = time.process_time()
    found = plan(there, PlanRequest(goal, caps=caps), 0.0)
    return found, time.process_time() - begun


def moved(there: Decaying, found: MovePlan) -> ClusterSituation:
    """The cluster with the moves made."""
    state = there.state
    for batch in found.batches:
        pods = [(move, state.index.get(move.uid)) for move in batch]
        rooms = {}
        for move, pod in pods:  # rooms are reserved while nobody has left
            assert pod is not None
            state.observe(replace(pod, uid=f"{move.uid}+", node_name=move.target, devices=()))
            rooms[move.uid] = state.cache.accounts[f"{move.uid}+"].devices
        for move, _ in pods:
            state.forget(f"{move.uid}+")
            state.forget(move.uid)
        for move, pod in pods:
            assert pod is not None
            state.observe(replace(pod, node_name=move.target, devices=rooms[move.uid]))
    assert not list(there.state.validate())
    return there.situation()


def told(name: str, values: list[float], digits: int = 1) -> str:
    """Mean and standard deviation."""
    return f"{name} {np.mean(values):.{digits}f} ± {np.std(values, ddof=min(1, len(values) - 1)):.{digits}f}"


def nodes_scene(options: argparse.Namespace) -> None:
    """``empty-nodes`` beside the exact programme."""
    freed, exact, spared, second, proven, moves = 0, 0, [], 0, 0, []
    for seed in range(42, 42 + options.seeds):
        there = plain_state(20, seed, 0.75, 0.45)
        table = there.state.table
        counts = Counter(there.of.values())
        asked = np.array([[cpu, memory * GIB, 1] for cpu, memory in SIZES])
        has = table.allocatable[[table.column_of[name] for name in (CPU, MEMORY, PODS)], : table.rows].T
        number = np.array([counts[index] for index in range(len(SIZES))])
        least, sure = fewest_nodes(asked, number, has, np.ones((len(SIZES), table.rows), np.bool_))
        found, _ = planned(there.situation(), GoalName.EMPTY_NODES)
        freed, exact = freed + int(found.before - found.after), exact + int(found.before) - least
        proven += sure
        moves.append(float(len(found.moves)))
        spared.append(found.before - found.after)
        second += len(planned(moved(there, found), GoalName.EMPTY_NODES)[0].moves)
    print(f"{options.seeds} states of 20 nodes of {SHAPES}: seeds 42-{41 + options.seeds}")
    print(
        f"{told('freed', spared)}; {freed} of the {exact} that the exact programme frees: {100 * freed / exact:.1f} %"
    )
    print(f"{told('moves', moves)}; optimum proven on {proven}; a second run: {second} moves")


def anew(there: ClusterSituation) -> float:
    """What is in fragments where all pods are taken off and placed anew, the largest first, each where the least more
    is in fragments: an arrangement that there is, however many moves lie between."""
    trial = ClusterTrial(there.state)
    for one in there.residents:
        trial.take(one.uid)
    measure = Fragments(trial, [one.pod for one in there.residents])

    def size(one: Resident) -> tuple[int, int]:
        request = measure.request(one.pod.pod_class)
        return -request.gpu, -request.cpu

    for one in sorted(there.residents, key=size):
        rows = np.flatnonzero(trial.feasibility.of(one.replacement.pod_class).mask)
        if not len(rows):
            trial.undo(0)
            return float("nan")
        row = int(rows[int(measure.coming(one, rows).argmin())])
        trial.put(one.replacement, row)
        measure.moved(one, np.array([row]))
    found = measure.value()
    trial.undo(0)
    return found


def openb_scene(options: argparse.Namespace) -> None:
    """``fragmentation`` beside the bound."""
    nodes = parse_gpu_nodes((options.trace_dir / NODE_LIST).read_text(), NODE_LIST)
    name = "openb_pod_list_default.csv"
    pods = parse_gpu_pods((options.trace_dir / name).read_text(), name, nodes)
    falls, parts, counts, seconds, left, ends, all_moves = [], [], [], [], [], [], []
    remembers: list[float] = []
    for seed in range(42, 42 + options.seeds):
        there = openb_state(nodes, pods, seed, options.share, options.departures)
        standing = Counter(there.of.values())
        number = np.array([standing[index] for index in range(len(pods.classes))])
        demand = typical_demand(pods.classes, number)
        bound = least_fragment(nodes.states, pods.classes, number, demand)
        found, cpu = planned(there.situation(), GoalName.FRAGMENTATION, replace(FREE, moves=options.max_moves))
        falls.append(100 * (1 - found.after / found.before))
        parts.append(100 * (found.before - found.after) / (found.before - bound))
        counts.append(float(len(found.moves)))
        seconds.append(cpu)
        if options.anew:
            print(f"seed {seed}: all pods placed anew: {anew(there.situation()):.1f} GPUs", flush=True)
        whole, _ = planned(there.situation(), GoalName.FRAGMENTATION)
        ends.append(100 * (1 - whole.after / whole.before))
        all_moves.append(float(len(whole.moves)))
        again = moved(there, whole)
        left.append(float(len(planned(again, GoalName.FRAGMENTATION)[0].moves)))
        past = tuple(PastMove(move.workload, move.source, move.target, 0.0, move.uid) for move in whole.moves)
        request = PlanRequest(GoalName.FRAGMENTATION, caps=FREE, history=MoveHistory(past))
        remembers.append(float(len(plan(again, request, 60.0).moves)))
        print(
            f"seed {seed}: {len(there.of)} pods, {found.before:.1f} -> {found.after:.1f} GPUs, {len(found.moves)} moves"
            f" (bound {bound:.1f}); without a cap {whole.after:.1f} in {len(whole.moves)}", flush=True,
        )  # fmt: skip
    print(f"openb, {100 * options.share:g} % of GPUs, {options.departures} departures, seeds 42-{41 + options.seeds}")
    print(f"{told('falls by', falls)} % within {options.max_moves} moves, {told('', parts)} % of what the bound allows")
    print(f"without a cap {told('', ends)} % in {told('', all_moves)} moves; a second run: {told('moves', left)}")
    print(f"a second run that knows who was moved, as on a cluster: {told('moves', remembers)}")
    print(told("CPU s", seconds))


def size_scene(options: argparse.Namespace) -> None:
    """CPU seconds of plans."""
    for goal in (GoalName.LOAD, GoalName.FRAGMENTATION, GoalName.EMPTY_NODES):
        there = large_state(options.nodes, options.pods, 42)
        found, cpu = planned(there.situation(), goal, Caps(moves=options.max_moves))
        print(
            f"{goal}: {options.nodes} nodes, {len(there.of)} pods, {len(found.moves)} moves in {len(found.batches)} "
            f"batches: {cpu:.1f} s CPU", flush=True,
        )  # fmt: skip


def consolidation_scene(options: argparse.Namespace) -> None:
    """KAI's scene, planned unit by unit."""
    found, moves, cpu = consolidation(options.nodes)
    short = "all have room" if found is not None and not found.after else f"stopped: {found and found.stopped}"
    print(f"{options.nodes} nodes of {GPUS} GPUs, {UNITS} gangs of {MEMBERS}: {moves} moves, {short}; {cpu:.1f} s CPU")


def unblock_scene(options: argparse.Namespace) -> None:  # noqa: ARG001
    """A gang of 8 on a running mesh."""
    took, told = asyncio.run(unblock())
    print(f"gang of 8 bound {took:.1f} s after the command began ({told})")


SCENES: dict[str, Callable[[argparse.Namespace], None]] = {
    "nodes": nodes_scene, "openb": openb_scene, "size": size_scene, "consolidation": consolidation_scene,
    "unblock": unblock_scene,
}  # fmt: skip


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.rebalance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", choices=sorted(SCENES), required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--departures", type=int, default=10_000)
    parser.add_argument("--max-moves", type=int, default=300)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--anew", action="store_true", help="of openb: also place all pods anew")
    parser.add_argument("--trace-dir", type=Path)
    options = parser.parse_args()
    if options.scene == "openb" and options.trace_dir is None:
        parser.error("--trace-dir: --scene openb needs the folder with the openb trace")
    if options.nodes is None:
        options.nodes = 500 if options.scene == "consolidation" else 5000
    SCENES[options.scene](options)


if __name__ == "__main__":
    main()
