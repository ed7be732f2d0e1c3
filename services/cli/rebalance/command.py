"""``conclave rebalance``: pods that should stand elsewhere, in batches, and what moving them wins.

The rules are ``shared/rebalance``; this file reads a cluster, prints the plan, and has it carried out.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from services.cli.listing.wanted import DOCUMENTS
from services.cli.server.options import cluster_context
from services.cli.server.watching import output_option, tell
from services.cli.terminal.durations import SECONDS
from services.cli.terminal.output_file import check_writable, whole_file
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.adapters.kube.api import KubeClient
    from shared.kube.pods.standing_pods import SourcedPod
    from shared.rebalance.history import PastMove
    from shared.rebalance.plan import MovePlan
    from shared.rebalance.planner import ClusterSituation, PlanRequest

GOALS = ("load", "fragmentation", "empty-nodes", "latency", "unblock")
APART = {
    frozenset(("load", "empty-nodes")): "load spreads what empty-nodes packs",
    frozenset(("load", "fragmentation")): "load spreads what fragmentation packs",
}
"""Goals that exclude each other, and why."""
LIFTED, EXTRA = ("PodsWithLocalStorage", "SystemCriticalPods", "PodsOfOtherOwners"), ("PodsWithPVC", "PodsWithoutPDB")
FILE = click.Path(path_type=Path)
CAP = click.IntRange(min=0)


@click.command()
@click.option("--goal", "goals", multiple=True, type=click.Choice(GOALS), help="What to come nearer to.")
@click.option("--unit", default="", help="With --goal unblock: NAMESPACE/NAME of the pod or pod group that waits.")
@click.option("--kubeconfig", type=FILE, help="The cluster.  [default: as kubectl]")
@click.option("--context", default="", help="Of the kubeconfig.")
@click.option("--capture", type=FILE, help="Plan over a file instead: a twin file, or JSON as 'explain --batch' reads.")
@click.option("--dry-run", is_flag=True, help="Print the plan, move nobody.")
@click.option("--max-moves", type=CAP, default=100, show_default=True, help="In all; 0: no cap.")
@click.option("--max-per-node", type=CAP, default=0, help="Away from one node.  [default: no cap]")
@click.option("--max-per-namespace", type=CAP, default=0, help="Of one namespace.  [default: no cap]")
@click.option("--max-per-workload", type=CAP, default=0, help="Of one workload.  [default: no cap]")
@click.option("--max-per-hour", type=CAP, default=0, help="With those of earlier runs.  [default: no cap]")
@click.option("--at-once", type=CAP, default=20, show_default=True, help="In one batch; 0: no cap.")
@click.option("--min-gain", type=click.FloatRange(min=0), help="What a move must win.  [default: the goal's own]")
@click.option("--again-after", type=SECONDS, default="1h", show_default=True,
              help="For so long nobody moves twice, nor does a workload go back.")  # fmt: skip
@click.option("--namespace", "-n", "namespaces", multiple=True, help="Only pods of it; may be given again.")
@click.option("--protect", "extra", multiple=True, type=click.Choice(EXTRA), help="These stay too.")
@click.option("--unprotect", "lifted", multiple=True, type=click.Choice(LIFTED), help="These may move too.")
@click.option("--priority-threshold", type=int, help="Pods of this priority and above stay.")
@click.option("--min-replicas", type=CAP, default=0, help="Workloads with fewer pods stay.")
@click.option("--min-pod-age", type=SECONDS, default="0s", help="Younger pods stay.")
@click.option("--scheduler-name", "schedulers", multiple=True, default=("conclave",), show_default=True,
              help="Whose pods may move: their replacements go where room is reserved.")  # fmt: skip
@click.option("--picture", type=FILE, help="Write the plan as a picture (SVG) here.")
@output_option
def rebalance(
    goals: tuple[str, ...],
    unit: str,
    kubeconfig: Path | None,
    context: str,
    capture: Path | None,
    dry_run: bool,
    picture: Path | None,
    output: str,
    **limits: Any,
) -> int:
    """Plan which pods should stand elsewhere, and move them: reserve, evict, watch the replacement come, go on.

    Goals: load (measured use even over nodes), fragmentation (idle GPU in pieces that nobody can use), empty-nodes (as
    few in use as can be), latency (limits that are broken), unblock (room for a --unit that waits). Each move passes
    every filter of the scheduler, and holds to budgets and protections. A second run on the result moves nobody.

    Exit code 0 when the plan is made, and carried out; 1 when some moves were not made, or the unit stands nowhere
    yet; 2 when nothing could be asked.
    """
    asked = _asked(goals, unit, limits)
    check_writable("--picture", picture)
    if capture is not None and kubeconfig is not None:
        raise ConfigError("--capture: a file is planned over, --kubeconfig does not go with it; give one of them")
    if capture is not None and not dry_run:
        raise ConfigError("--capture: nobody can be moved in a file; give --dry-run")
    if capture is not None:
        from services.cli.rebalance.reading import read_file

        there, now = read_file(capture)
        found = _planned(there, asked, now)
        _tell(found, output, picture, dry_run=True)
        return 0
    return asyncio.run(_live(kubeconfig, cluster_context(context), asked, output, picture, dry_run=dry_run))


async def _live(
    kubeconfig: Path | None, context: str, asked: PlanRequest, output: str, picture: Path | None, *, dry_run: bool
) -> int:
    from services.cli.explain.offline import opened_cluster
    from shared.runtime.kube.moves.memory import remembered
    from shared.runtime.kube.moves.reading import read_live

    async with opened_cluster(kubeconfig, context) as api:
        there, raws = await read_live(api)
        try:
            asked = replace(asked, history=await remembered(api, asked.history.again_after_s))
        except ConfigError as error:
            if not dry_run:
                raise
            there = replace(there, notes=(*there.notes, f"not known: {error}"))
        found = _planned(there, asked, time.time())
        _tell(found, output, picture, dry_run=dry_run)
        if dry_run or not found.moves:
            return 0
        return await _carried(api, found, raws, asked.caps.per_hour)


async def _carried(api: KubeClient, found: MovePlan, raws: Sequence[SourcedPod], per_hour: int) -> int:
    """Move them. 0: every move was made, and the unit that it was for stands; 1: some were not, or it does not."""
    from services.cli.rebalance.text import outcome_lines
    from shared.kube.pods.convert import owner_of
    from shared.rebalance.carrying import Carrying, MoveState
    from shared.runtime.kube.moves.carry import CarryOut
    from shared.runtime.kube.moves.memory import remember

    by_uid = {raw.metadata.uid: raw for raw in raws}
    owners = {uid: "/".join(owner_of(raw.metadata)[1:]) for uid, raw in by_uid.items()}
    carrying = Carrying(found.moves, owners, set(by_uid))
    run = uuid4().hex[:8]

    async def write(moves: Sequence[PastMove]) -> None:
        await remember(api, moves, run, per_hour)

    waiting = {f"{raw.metadata.namespace}/{raw.metadata.name}": raw for raw in raws if not raw.spec.node_name}
    unit = [(waiting[key], node) for key, node in sorted(found.unblocked.items()) if key in waiting]
    told = partial(click.echo, err=True)
    out = CarryOut(api, carrying, by_uid, time.monotonic, told, write, run, unit=unit)
    try:
        await until_signal(out.run())
    finally:  # interrupted too
        for line in outcome_lines(carrying):
            click.echo(line, err=True)
    if out.homeless:
        names = ", ".join(sorted(out.homeless.values())[:3])
        click.echo(f"{found.goal}: {len(out.homeless)} of {len(unit)} stand nowhere yet: {names}", err=True)
    return int(bool(out.homeless) or any(one.state is not MoveState.DONE for one in carrying.underway))


def _planned(there: ClusterSituation, asked: PlanRequest, now: float) -> MovePlan:
    from shared.rebalance.planner import plan

    return plan(there, asked, now)


def _asked(goals: tuple[str, ...], unit: str, limits: dict[str, Any]) -> PlanRequest:
    """What was asked. ``ConfigError``: goals that exclude each other, or a unit without its goal."""
    from shared.rebalance.history import MoveHistory
    from shared.rebalance.limits import Caps
    from shared.rebalance.plan import GoalName
    from shared.rebalance.planner import PlanRequest as Question
    from shared.rebalance.protections import Protections

    given = list(dict.fromkeys(goals))
    if not given:
        raise ConfigError(f"--goal: none is given; give one of {', '.join(GOALS)}")
    if len(given) > 1:
        why = next((why for pair, why in APART.items() if pair <= set(given)), "")
        raise ConfigError(
            f"--goal: {' and '.join(given)}{f' exclude each other: {why}' if why else ''}; give one a run"
        )
    if (given[0] == "unblock") is not bool(unit):
        raise ConfigError("--unit: goes with --goal unblock, and with it alone; give NAMESPACE/NAME of what waits")
    if limits["min_gain"] is not None and not math.isfinite(limits["min_gain"]):
        raise ConfigError(f"--min-gain: {limits['min_gain']} is no amount; give a number, or leave it out")
    return Question(
        GoalName(given[0]),
        unit,
        Caps(
            limits["max_moves"], limits["max_per_node"], limits["max_per_namespace"], limits["max_per_workload"],
            limits["max_per_hour"], limits["at_once"], min_gain=limits["min_gain"],
        ),
        Protections(
            limits["lifted"], limits["extra"], limits["priority_threshold"], limits["min_replicas"],
            limits["min_pod_age"], limits["namespaces"], limits["schedulers"],
        ),
        MoveHistory(again_after_s=limits["again_after"]),
    )  # fmt: skip


def _tell(plan: MovePlan, output: str, picture: Path | None, *, dry_run: bool) -> None:
    import msgspec

    from services.cli.rebalance.text import plan_lines
    from shared.rebalance.picture import picture as drawn

    if picture is not None:
        with whole_file("--picture", picture) as sink:
            sink.write(drawn(plan).encode())
    document = msgspec.to_builtins(plan) if output in DOCUMENTS else {}
    tell(output, document, list(plan_lines(plan, dry_run=dry_run)))
