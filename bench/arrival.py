"""Pods that come steadily: how long one takes from its creation to its node, and what it costs.

    .venv/bin/python -m bench.arrival --rate 200 --nodes 5000 --seconds 60 [--kubeconfig FILE] [--kube-scheduler BINARY]
    .venv/bin/python -m bench.arrival --scene status --rate 300 --nodes 5000 --running 5000 --seconds 30

Each contestant in turn is started, warmed up with a few seconds of the same load, then measured. Both moments are those
at which the bench's own watch shows the pod, new and bound, so that what the watch takes is in neither; from the POST's
sending to bound stands beside it. ``--busy N``: so many processes do nothing but compute meanwhile. CPU per pod is that
of the whole process tree over the measured stretch. Nothing is asserted.

``--scene status``: no pod comes; so often a second the status of one that runs changes in what no rule reads, in turn.
Then all that is measured is CPU, for a change and as a share of a core. ``--running``: pods that run already.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from bench.drain.scenes import standing
from bench.saturation.real_run import steadily
from bench.stand.cluster import NAMESPACE, BenchCluster, SeenPods
from bench.stand.contest import (
    Contestant,
    ContestTurn,
    Stand,
    add_arguments,
    by_case,
    conditions,
    contestants,
    opened,
    pods,
    said_of,
    tell,
    turns,
    whole_number,
)
from bench.stand.figures import quantile, spread, table
from bench.stand.writes import changed_by_the_bench, of_pods, per_pod, write_column

WARM_S = 5.0
BOUND_S = 120.0
PERCENTS = (50, 90, 99, 100)
ARRIVAL, STATUS = "arrival", "status"
NOTED = {ARRIVAL: "bound", STATUS: "changed"}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
Figures = dict[str, Any]


async def run(options: argparse.Namespace) -> list[Figures]:
    """Every round with everybody."""
    found: list[Figures] = []
    everybody, running = contestants(options, limit=None), list[str]()
    fresh = itertools.count()
    async with opened(options) as stand:
        async for contestant, turn in turns(options, stand, everybody):
            if not running:
                running = [body["metadata"]["name"] for body in standing(options.running, stand.count)]
                await stand.cluster.add_pods(standing(options.running, stand.count))
            with busy(options.busy):
                if options.scene == STATUS:
                    one = turn | await change(stand, contestant, options, running, fresh)
                else:
                    one = turn | await arrive(stand, contestant, options)
            one |= {"scene": options.scene, "running": len(running)}
            found.append(one)
            what = f"{one['cores']} cores" if options.scene == STATUS else f"ms {one['ms']}"
            print(f"{said_of(one)}: {one['bound']} of {one['pods']} {NOTED[options.scene]}, {what}", file=sys.stderr)
    return found


async def arrive(stand: Stand, contestant: Contestant, options: argparse.Namespace) -> Figures:
    """One contestant; the pods are gone afterwards."""
    cluster = stand.cluster
    async with ContestTurn(stand, contestant) as turn:
        await turn.scheduler.ready()
        warm = await come(cluster, stand.name(), options.rate, WARM_S, options.shapes)
        turn.scheduler.usage.begin()
        writes, server = await stand.writes.so_far(), turn.server_cpu_s()
        seen = await come(cluster, stand.name(), options.rate, options.seconds, options.shapes)
        cpu, ended = turn.scheduler.usage.cpu_by_name(), turn.server_cpu_s()
        rss = turn.scheduler.usage.rss()
    written = per_pod(writes, await stand.writes.so_far(), len(seen.bound))
    cluster.seen = after = SeenPods()
    names = [*warm.created, *seen.created]
    await cluster.remove_pods(names)
    await cluster.until(lambda: len(after.gone) >= len(names), BOUND_S)
    return {
        "pods": len(seen.created), "bound": len(seen.bound),
        "ms": times_ms({name: at - seen.shown[name] for name, at in seen.bound.items()}),
        "ms_from_post": times_ms({name: at - seen.created[name] for name, at in seen.bound.items()}),
        "rss_mb": round(sum(rss.values()), 1), "writes_per_pod": written, "writes_of_pods_per_pod": of_pods(written),
        **_costs(turn, cpu, sum(ended.values()) - sum(server.values()), len(seen.bound), options.seconds),
    }  # fmt: skip


async def change(
    stand: Stand, contestant: Contestant, options: argparse.Namespace, running: Sequence[str], fresh: Iterator[int]
) -> Figures:
    """One contestant while the status of pods that run changes. ``fresh``: numbers that no change has had."""
    cluster = stand.cluster

    async def one(_: int) -> None:
        number = next(fresh)  # what a pod has already would be no change
        name = running[number % len(running)]
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        await cluster.ask("PATCH", f"{PODS}/{name}/status", {"status": {"hostIP": address}})

    async with ContestTurn(stand, contestant) as turn:
        await turn.scheduler.ready()
        await steadily(options.rate, WARM_S, one)
        turn.scheduler.usage.begin()
        writes, server = await stand.writes.so_far(), turn.server_cpu_s()
        await steadily(options.rate, options.seconds, one)
        cpu, ended = turn.scheduler.usage.cpu_by_name(), turn.server_cpu_s()
        rss = turn.scheduler.usage.rss()
    changes, after = round(options.rate * options.seconds), await stand.writes.so_far()
    others = per_pod(writes + changed_by_the_bench(changes), after, changes)
    return {
        "pods": changes, "bound": changes, "ms": times_ms({}), "ms_from_post": times_ms({}),
        "rss_mb": round(sum(rss.values()), 1), "writes_per_pod": per_pod(writes, after, changes),
        "writes_of_pods_per_pod": of_pods(others),
        **_costs(turn, cpu, sum(ended.values()) - sum(server.values()), changes, options.seconds),
    }  # fmt: skip


def _costs(turn: ContestTurn, cpu: dict[str, float], server_s: float, count: int, seconds: float) -> Figures:
    """CPU of each pod, or change, and as a share of a core."""
    of = max(1, count)
    return {
        "cpu_ms_per_pod": round(1000 * sum(cpu.values()) / of, 3),
        "cores": round(sum(cpu.values()) / seconds, 3),
        "cpu_s": {name: round(used, 2) for name, used in sorted(cpu.items())},
        "server_cpu_ms_per_pod": round(1000 * server_s / of, 3),
        "load_before": turn.load_before, "calibration_ms": turn.calibration_ms,
        "load_after": round(os.getloadavg()[0], 2),
    }  # fmt: skip


async def come(cluster: BenchCluster, prefix: str, rate: float, seconds: float, shapes: int) -> SeenPods:
    """A stretch of the load; back when all of it is bound, with what was seen."""
    cluster.seen = seen = SeenPods()
    bodies = list(pods(prefix, round(rate * seconds), shapes))
    await steadily(rate, seconds, lambda number: cluster.add_pod(bodies[number]))
    await cluster.until(lambda: len(seen.bound) >= len(bodies), BOUND_S)
    return seen


def times_ms(times_s: dict[str, float]) -> dict[str, float]:
    """Quantiles."""
    ms = [1000 * taken for taken in times_s.values()]
    return {f"p{percent}": round(quantile(ms, percent), 1) for percent in PERCENTS}


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.wait()


def report(found: list[Figures]) -> list[str]:
    """A table per number of nodes: medians over the rounds."""
    told: list[str] = []
    for runs, of in by_case(found, "scene", "nodes"):
        size = f"{runs[0]['scene']}: {runs[0]['nodes']:,} nodes, {runs[0]['pods']:,} a round"
        size += f" beside {runs[0]['running']:,} that run" if runs[0]["running"] else ""
        told += ["", f"{size}, {conditions(runs)}", ""]
        times = (
            () if runs[0]["scene"] == STATUS else (*(f"p{percent} ms" for percent in PERCENTS), "from POST: p50", "p99")
        )
        head = ("who", *times, "CPU ms of one", "cores", "server's", "RSS MB", "pod writes of one")
        told += table(head, [row(name, ones) for name, ones in of.items()])
        for name, ones in of.items():
            shares = ", ".join(f"{process} {1000 * used / max(1, ones[-1]['bound']):.2f}"
                               for process, used in ones[-1]["cpu_s"].items())  # fmt: skip
            told.append(f"{name}: CPU ms per pod by process, last round: {shares}")
    return told


def row(name: str, runs: list[Figures]) -> list[str]:
    """One contestant."""
    unbound = sum(one["pods"] - one["bound"] for one in runs)
    times = [spread([one["ms"][f"p{percent}"] for one in runs]) for percent in PERCENTS]
    posted = [spread([one["ms_from_post"][part] for one in runs]) for part in ("p50", "p99")]
    others = (("cpu_ms_per_pod", 2), ("cores", 3), ("server_cpu_ms_per_pod", 2), ("rss_mb", 0))
    if runs[0]["scene"] == STATUS:
        times = posted = []
    rest = [spread([one[column] for one in runs], digits) for column, digits in others]
    return [f"{name} ({unbound} NOT BOUND)" if unbound else name, *times, *posted, *rest, write_column(runs)]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.arrival", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--rate", type=float, default=200.0, help="pods a second (200)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scene", choices=[ARRIVAL, STATUS], default=ARRIVAL)
    parser.add_argument("--running", type=partial(whole_number, least=0), default=0, help="pods that run already (0)")
    parser.add_argument("--rounds", type=whole_number, default=1)
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute meanwhile (0)")
    options = parser.parse_args()
    if options.scene == STATUS and not options.running:
        parser.error(f"--scene {STATUS}: --running 0: give the number of pods whose status is to change")
    tell(options, run, report, rate=options.rate, busy=options.busy)


if __name__ == "__main__":
    main()
