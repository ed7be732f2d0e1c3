"""What each trick of deciding earns: everything as it is, and each changed, in one process and one run.

    python -m bench.ablations [--only NAME,...] [--nodes 440] [--pods 192] [--json FILE]

Counts are the same on every machine: opcodes of coordinator and agents per pod, rows of the node table that policies
scored per pod (numpy's work, which opcodes do not see), dry runs of preemption; pods a second of virtual time, in which
a turn takes 1 ms, an agent 3 and a plan 8. Quality: regret of each placement (``bench.quality``: points of 100 below
the best node at its commit, mean and 99th percentile), pods on the fullest node, victims. What no setting switches off
is patched here and nowhere else; the reduced scan of Goedel's paper (SoCC 2023) is in no code of ours but here.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.in_process.meters import OpcodeMeter
from bench.in_process.switches import settings_of
from bench.quality.scenes import SCENES, fill
from bench.quality.world import QualityWorld
from bench.scenes.scenes import PODS, preemptors, urgent
from bench.scenes.world import TURN_S, SceneWorld, count_cores, counting
from bench.stand.contest import whole_number
from bench.stand.figures import quantile, table
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle import constraints
from services.coordinator.cycle.candidates import Candidates
from services.coordinator.preemption.search import KNOWN_PER_DRY_RUN, Preemptor, Tried
from shared.model.constraints import Norms, PodClass
from shared.model.pod import Pod
from shared.policy.guard import PlacementGuard
from shared.policy.observation import Observation
from shared.policy.ranking import INFEASIBLE, Ranker, Ranking
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.preemption.resolvable import Openable
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.room.counted import Counted

REDUCED = 50
"""Feasible nodes beyond one for each unit, at which a reduced scan ends."""
REST_S = 600.0
Figures = dict[str, float]
Patch = tuple[Any, str, Any]


# --- what is switched off without a setting ------------------------------------------------------------------------

_ranking = Ranker._ranking


def _forgetting(ranker: Ranker, *arguments: Any, **named: Any) -> Ranking:
    """The scores of a class are not kept: every node is judged for each answer."""
    ranker._classes.clear()
    return _ranking(ranker, *arguments, **named)


def _reduced(ranker: Ranker, pod_class: PodClass, norms: Norms, seen: PodClass, *, units: int = 1) -> Ranking:
    """Units + 50 feasible nodes are judged, from a random one on, and the best of those taken."""
    at, guard = ranker.table, ranker.guard
    rows = np.flatnonzero(ranker.feasibility.of(pod_class).mask)
    known = Ranking(np.full(at.rows, INFEASIBLE), None, norms, at.clock, at.clock, context=guard.context(at))
    ranker._classes[seen] = known
    if len(rows) > units + REDUCED:
        rows = np.roll(rows, -int(ranker._rng.random() * len(rows)))[: units + REDUCED]
    if len(rows):
        verdicts, known.fallen = guard.decide(Observation(at, seen, rows, norms, units), ranker._rng)
        ranker._put(known, rows, verdicts)
    return known


def _tried_again(preemptor: Preemptor, pod: Pod, row: int) -> tuple[Tried, int]:
    """What a dry run found is not remembered."""
    return preemptor._candidate(pod, row), KNOWN_PER_DRY_RUN


def _every_node(state: ClusterState, _: FeasibilityCache, __: Prefiltered) -> Openable:
    """Evicting is tried everywhere, also where nothing that may leave would do."""
    return Openable(state.table.live_rows().tolist(), Counter())


@dataclass(frozen=True, slots=True)
class Ablation:
    """``what`` is otherwise, by ``settings`` or ``patches``, and measured in these scenes. ``agents``: as many as it
    takes that it makes a difference: fewer than 100 nodes each, and all of them are asked about a class."""

    name: str
    what: str
    scenes: tuple[str, ...]
    settings: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    agents: int = 2


LIKE, UNEVEN, FULL = ("like",), ("used",), ("preemption", "full-urgent")
BURSTS = (*LIKE, "unlike", *UNEVEN)
AS_IT_IS = "as it is"
ABLATIONS = (
    Ablation("candidate-cache", "scores of a class are not kept", BURSTS, patches=((Ranker, "_ranking", _forgetting),)),
    Ablation("reduced-scan", f"a random {REDUCED} feasible nodes beyond the units", BURSTS,
             patches=((Ranker, "_ranking", _reduced),)),
    Ablation("next-best", "no node beyond one per unit is offered", BURSTS, ("extra_candidates=0",)),
    Ablation("rescoring", "candidates that changed are not scored again", UNEVEN,
             patches=((Candidates, "refresh", lambda _: None),), agents=6),
    Ablation("counting", "an agent does not count what its answers before are given", BURSTS,
             patches=((Counted, "add", lambda *_: None),)),
    Ablation("batch-1", "a cycle of one unit, not 64", BURSTS, ("batch_units=1",)),
    Ablation("batch-256", "a cycle of 256 units", BURSTS, ("batch_units=256",)),
    Ablation("broadcast", "every agent is asked about every class", BURSTS, ("dispatch=broadcast",)),
    Ablation("plan-alone", "one plan at the binder at a time, not 3", LIKE, ("plans_in_flight=1",)),
    Ablation("overlap", "four cycles open at a time, not 1", LIKE, ("open_cycles=4",), agents=4),
    Ablation("dry-runs", "dry runs are not remembered", FULL, patches=((Preemptor, "_known_or_tried", _tried_again),)),
    Ablation("openable", "evicting is tried on every node", FULL, patches=((constraints, "openable", _every_node),)),
)  # fmt: skip


# --- a scene ---------------------------------------------------------------------------------------------------------


class JudgedWorld(QualityWorld):
    """``QualityWorld`` with turns of a fixed length, and a meter."""

    turn_s = TURN_S


@dataclass(slots=True)
class SceneTally:
    """What happened while a scene was played."""

    rows: int = 0
    dry_runs: int = 0


@contextmanager
def tallied(tally: SceneTally) -> Iterator[None]:
    """Rows that policies score, and dry runs, are added up."""
    decide, candidate = PlacementGuard.decide, Preemptor._candidate

    def deciding(guard: PlacementGuard, observation: Observation, *more: Any) -> Any:
        tally.rows += len(observation.rows)
        return decide(guard, observation, *more)

    def trying(preemptor: Preemptor, pod: Pod, row: int) -> Tried:
        tally.dry_runs += 1
        return candidate(preemptor, pod, row)

    with patch.object(PlacementGuard, "decide", deciding), patch.object(Preemptor, "_candidate", trying):
        yield


def burst(scene: str, agents: int, settings: CoreSettings, options: argparse.Namespace) -> Figures:
    """Pods at once, judged one by one as they are committed."""
    world, meter, tally = (
        JudgedWorld(policy="kube-default", agents=agents, seed=1, settings=settings),
        OpcodeMeter(),
        SceneTally(),
    )
    count_cores(meter, world.core, world._agents.values())
    fill(world, scene, options.nodes, options.pods)
    began = world.now
    with counting(meter), tallied(tally):
        if not world.rest(REST_S) or len(world.bound) != options.pods:
            raise AssertionError(f"{scene}: {len(world.bound)} of {options.pods} pods are bound")
    return {
        "opcodes": sum(meter.spent.values()) / options.pods, "rows scored": tally.rows / options.pods,
        "virtual pods/s": options.pods / (max(world.bound.values()) - began),
        "regret": fmean(world.judge.regrets), "regret p99": quantile(world.judge.regrets, 99),
        "fullest": float(max(world.on.values())),
    }  # fmt: skip


def full(scene: str, agents: int, settings: CoreSettings, _: argparse.Namespace) -> Figures:
    """Preemptors onto full nodes."""
    world, tally = SceneWorld(agents=agents, settings=settings), SceneTally()
    play = partial(preemptors, "plain") if scene == "preemption" else partial(urgent, others=PODS)
    with tallied(tally):
        count = play(world)
    return {
        "opcodes": sum(world.meter.spent.values()) / count, "dry runs": tally.dry_runs / count,
        "victims": len(world.evicted) / count,
    }  # fmt: skip


def played(scene: str, agents: int, ablation: Ablation | None, options: argparse.Namespace) -> Figures:
    """One scene with the ablation, or as it is."""
    settings, _ = settings_of(ablation.settings if ablation is not None else ())
    play: Callable[..., Figures] = burst if scene in SCENES else full
    _warmed(play, scene, agents)
    with ExitStack() as patched:
        for owner, name, instead in ablation.patches if ablation is not None else ():
            patched.enter_context(patch.object(owner, name, instead))
        return {name: round(value, 3) for name, value in play(scene, agents, settings, options).items()}


@cache
def _warmed(play: Callable[..., Figures], scene: str, agents: int) -> None:
    """Played in small once: imports and caches of the process are there then, and the first figures like all."""
    play(scene, agents, CoreSettings(), argparse.Namespace(nodes=12, pods=12))


def measured(chosen: Sequence[Ablation], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Each scene as it is, and with each ablation that is measured in it."""
    found = []
    cases = dict.fromkeys((scene, one.agents) for one in chosen for scene in one.scenes)
    for scene, agents in cases:
        of = [None, *(one for one in chosen if scene in one.scenes and one.agents == agents)]
        for ablation in of:
            name = AS_IT_IS if ablation is None else ablation.name
            figures = played(scene, agents, ablation, options)
            found.append({"scene": scene, "agents": agents, "ablation": name, "figures": figures})
            print(scene, agents, name, figures, flush=True)
    return found


# --- the command -----------------------------------------------------------------------------------------------------


def report(found: Sequence[dict[str, Any]]) -> list[str]:
    """A table of each scene."""
    told: list[str] = []
    what = {one.name: one.what for one in ABLATIONS}
    for scene, agents in dict.fromkeys((one["scene"], one["agents"]) for one in found):
        rows = [one for one in found if (one["scene"], one["agents"]) == (scene, agents)]
        before = rows[0]["figures"]
        told += ["", f"{scene}, {agents} agents", ""]
        told += table(("changed", "what", *before), [_row(one, before, what) for one in rows])
    return told


def _row(one: dict[str, Any], before: Figures, what: dict[str, str]) -> list[str]:
    cells = []
    for name, value in one["figures"].items():
        digits = 2 if value < 100 else 0
        more = (
            f" ({100 * (value / before[name] - 1):+.0f} %)"
            if name == "opcodes" and before is not one["figures"]
            else ""
        )
        cells.append(f"{value:,.{digits}f}{more}")
    return [one["ablation"], what.get(one["ablation"], ""), *cells]


def ablations(text: str) -> list[Ablation]:
    """By name. ``argparse.ArgumentTypeError``: there is no such one."""
    known = {one.name: one for one in ABLATIONS}
    for name in text.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is no ablation; there are {', '.join(known)}")
    return [known[name] for name in text.split(",")]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.ablations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(one.name for one in ABLATIONS)
    parser.add_argument("--only", type=ablations, default=list(ABLATIONS), help=f"of {names}; several by comma; all")
    parser.add_argument("--nodes", type=whole_number, default=440, help="of the bursts (440)")
    parser.add_argument("--pods", type=whole_number, default=192, help="of the bursts (192)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="the figures, also as JSON")
    options = parser.parse_args()
    found = measured(options.only, options)
    print(*report(found), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
