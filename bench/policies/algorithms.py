"""Learning algorithms compared: the same experiments, rewards, networks and length, several training seeds each.

    python -m bench.policies.algorithms                        # a short look: three minutes of a quiet core
    python -m bench.policies.algorithms --objectives lb,el --steps 8000 --rounds 20 --seeds 1001-1004

One decider for all nodes (``ee``, ``lb``, ``el``: ``--steps`` placements each): DQN, Double DQN (what ``lb`` ships),
distributional (QR-DQN), PPO (what ``ee`` and ``el`` ship). An agent per node (the thesis' experiment: ``--rounds``
rounds each): agents with one network each, with one for all (what ``marl-dqn`` ships), VDN, QMIX, IPPO. What else was
tried is in ADR 0093. Weights are chosen by the validation seeds within a run; nothing is chosen among runs. Told are
means and s.d. over training seeds, on validation seeds 500-509 and test seeds 42-51, and the CPU time of training.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from lab.evaluation.seeds import TEST_SEEDS, parse_seeds
from lab.evaluation.statistics import sample_sd
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import DeepSetsSettings, settings_for
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.marl import settings as marl
from lab.learner.marl.ippo import IppoRun
from lab.learner.marl.learner import AgentsSettings
from lab.learner.marl.training import Ground, MarlRun
from lab.learner.training.runner import check_seed
from lab.suites import deepsets
from lab.suites.suites import SuiteInput
from lab.workers import Workers
from shared.errors import ConclaveError

NODES, SHARE = (3, 10), 0.2
"""Of the deepsets suite's experiments: enough to tell algorithms apart."""
VALIDATIONS = 2
"""Per run; the best of them is kept."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run: lower is better for both figures."""

    validation: float
    test: float
    cpu_s: float


def plain(settings: DeepSetsSettings) -> DeepSetsSettings:
    """Deep Q-learning, whatever the policy is trained by."""
    return replace(settings, ppo=None)


Deciders = Mapping[str, Callable[[DeepSetsSettings], DeepSetsRun | PpoRun]]
DECIDERS: Deciders = {
    "DQN": lambda s: DeepSetsRun(replace(plain(s), dqn=replace(s.dqn, double=False))),
    "Double DQN": lambda s: DeepSetsRun(plain(s)),
    "distributional (QR), double": lambda s: DeepSetsRun(replace(plain(s), head="quantile")),
    "PPO": PpoRun,
}
Agents = Mapping[str, Callable[[int, int], MarlRun | IppoRun]]


def _agents(policy: str = marl.NAME, mixing: AgentsSettings | None = None) -> Callable[[int, int], MarlRun]:
    def run(seed: int, rounds: int) -> MarlRun:
        settings = replace(marl.settings_for(policy, seed, rounds), validate_every=-(-rounds // VALIDATIONS))
        return MarlRun(settings if mixing is None else replace(settings, agents=mixing))

    return run


def _by_ppo(seed: int, rounds: int) -> IppoRun:
    return IppoRun(replace(marl.settings_for(marl.NAME, seed, rounds), validate_every=-(-rounds // VALIDATIONS)))


AGENTS: Agents = {
    "single DQN, central": _agents(marl.SINGLE),
    "independent, a network each": _agents(marl.PER_NODE),
    "independent, one network (as shipped)": _agents(),
    "VDN": _agents(mixing=AgentsSettings("sum")),
    "QMIX": _agents(mixing=AgentsSettings("monotonic")),
    "IPPO": _by_ppo,
}


def decider_row(name: str, objective: str, seed: int, steps: int) -> RunRow:
    """Train and measure one decider."""
    settings = replace(settings_for(objective, seed, steps), validate_every=max(1, steps // VALIDATIONS))
    run = DECIDERS[name](settings)
    started_s = time.process_time()
    for _ in run.run():
        pass
    trained_s = time.process_time() - started_s
    weights = run.weights(version=1)
    planned = [
        replace(one, deciders=(objective, "oracle"))
        for one in deepsets.experiments(NODES, share=SHARE, objectives=[objective])
        if one.promised
    ]
    given = SuiteInput(TEST_SEEDS, "bench.policies.algorithms", (objective,), weights={objective: weights})
    metrics = deepsets.run_suite(given, planned=planned).policies[objective]
    regret = fmean(metric.mean for key, metric in metrics.items() if key.endswith("/regret"))
    return RunRow(run.best_regret, regret, trained_s)


def agents_row(name: str, seed: int, rounds: int) -> RunRow:
    """Train and measure one team."""
    run = AGENTS[name](seed, rounds)
    started_s = time.process_time()
    for _ in run.run():
        pass
    trained_s = time.process_time() - started_s
    return RunRow(run.best_imbalance, Ground(run.settings).imbalance(run.best, Workers(), TEST_SEEDS), trained_s)


def lines_of(title: str, figure: str, rows: Mapping[str, Sequence[RunRow]]) -> Iterator[str]:
    """A Markdown table."""
    yield f"\n**{title}**\n"
    yield f"| algorithm | {figure}, validation | {figure}, test | CPU s |"
    yield "| --- | --- | --- | --- |"
    for name, some in rows.items():
        yield f"| {name} | {told([r.validation for r in some])} | {told([r.test for r in some])} | {seconds(some)} |"


def told(values: Sequence[float]) -> str:
    """Mean ± s.d. over training seeds."""
    return f"{fmean(values):.4f} ± {sample_sd(values):.4f}"


def seconds(rows: Sequence[RunRow]) -> str:
    """The mean CPU time of one training."""
    return f"{fmean(row.cpu_s for row in rows):.0f}"


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description="Learning algorithms compared on the same experiments and budget.")
    parser.add_argument("--objectives", default="el", help="of one decider for all nodes; comma-separated, or empty")
    parser.add_argument("--agents", default="thesis", help="thesis, or empty: no team of agents")
    parser.add_argument("--steps", type=int, default=2_000, help="placements per run")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of 16 episodes per run of a team")
    parser.add_argument("--seeds", default="1001-1002", help="training seeds")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        seeds = parse_seeds(given.seeds)
        for seed in seeds:
            check_seed(seed)
        for objective in filter(None, given.objectives.split(",")):
            found = {}
            for name in DECIDERS:
                print(f"{objective}, {name}", file=sys.stderr)
                found[name] = [decider_row(name, objective, seed, given.steps) for seed in seeds]
            title = f"{objective}: {given.steps} placements, training seeds {given.seeds}"
            print("\n".join(lines_of(title, "regret", found)), flush=True)
        if given.agents:
            teams = {}
            for name in AGENTS:
                print(f"agents, {name}", file=sys.stderr)
                teams[name] = [agents_row(name, seed, given.rounds) for seed in seeds]
            title = f"an agent per node: {given.rounds} rounds, training seeds {given.seeds}"
            print("\n".join(lines_of(title, "imbalance", teams)), flush=True)
    except ConclaveError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
