"""``python -m lab.learner train POLICY``: train a policy from nothing, or go on after an interruption.

What ``conclave train`` starts. A trainer takes a ``TrainRequest`` and writes weights, card and curves itself. Exit
codes: 0 trained, 2 bad input, 130 interrupted with a checkpoint kept.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import sys
from pathlib import Path

import click
import torch

from lab.evaluation.seeds import parse_seeds
from lab.learner.autoscaling.trainer import train_baseline, train_karma
from lab.learner.autoscaling.twin_trainer import train_services_twin
from lab.learner.deepsets.trainer import train_deep_sets
from lab.learner.frag.trainer import train_frag
from lab.learner.hybrid.trainer import train_hybrid
from lab.learner.jobs.trainer import train_jobs
from lab.learner.marl.trainer import train_marl
from lab.learner.training.run_files import run_folder
from lab.learner.training.runner import (
    ALGORITHMS,
    FIRST_TRAINING_SEED,
    Algorithm,
    SignalSource,
    Trainer,
    TrainRequest,
    Variant,
)
from lab.worlds.services.attacker import AttackerTerms
from shared.errors import ConclaveError, ConfigError
from shared.runtime.process.service import PROGRAM

TRAINERS: dict[str, Trainer] = {
    "aware": train_baseline,
    "dqn": train_baseline,
    "ee": train_deep_sets,
    "el": train_deep_sets,
    "frag": train_frag,
    "hybrid": train_hybrid,
    "jobs-dl2": train_jobs,
    "jobs-sets": train_jobs,
    "karma": train_karma,
    "karma-single": train_karma,
    "lb": train_deep_sets,
    "marl-dqn": train_marl,
    "marl-dqn-per-node": train_marl,
    "marl-dqn-published": train_marl,
    "services-twin": train_services_twin,
    "single-dqn": train_marl,
}

TAUGHT_BY = {"power": "frag"}
"""Policies without weights of their own, and whose theirs are."""
BY_ALGORITHM = (train_deep_sets, train_marl)
ON_CLUSTERS = (train_deep_sets, train_frag, train_marl)
PLACING = "ee, el, frag, lb, marl-dqn"
BAD_INPUT, INTERRUPTED = 2, 130
FILE = click.Path(path_type=Path)


@click.group()
def main() -> None:
    """The learner: training from the command line."""


@main.command()
@click.argument("policy", type=click.Choice([*sorted(TRAINERS), *TAUGHT_BY]))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Weights, logs, state.")
@click.option("--seeds", help="One run each, such as 1000-1002; default: those the shipped weights come from.")
@click.option("--resume", is_flag=True, help="Go on from the state in --out.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, help="Processes to train in.")
@click.option("--ray", default="", help="Play episodes on the Ray cluster at this address, or local.")
@click.option("--warm-up", default="", help="First imitate this policy, or what this file recorded.")
@click.option("--steps", type=click.IntRange(min=1), help="How long; default: as the shipped weights.")
@click.option("--mixture", default="", help="Of hybrid: POLICY=WEIGHT,POLICY=WEIGHT or a definition's file.")
@click.option("--series", type=FILE, help="Of services-twin: the recorded series.")
@click.option("--topology", type=FILE, help="Of services-twin and karma: the service graph.")
@click.option("--trace", type=FILE, help="Of karma: train on this load.")
@click.option("--twin", type=FILE, help="Of karma: train in this learned twin.")
@click.option("--reward", default="", help="Learn from this expression, or plug-in, instead of the shipped reward.")
@click.option("--signal", "signals", multiple=True, help="NAME=QUERY: a value that --reward reads; repeatable.")
@click.option("--prometheus", default="", help="Who is asked for signals.")
@click.option("--prometheus-token-file", "token_file", type=click.Path(path_type=Path), help="A bearer token for it.")
@click.option("--agents", type=click.Choice(["multi", "single"]), help="Of karma: one a service, or one.")
@click.option("--roles", type=click.Choice(["hard", "soft", "none"]), help="Of karma: how roles bind.")
@click.option("--missions", type=click.Choice(["on", "off"]), help="Of karma: whether they are rewarded.")
@click.option("--start", type=click.Choice(["imitation", "scratch"]), help="Of karma: what it begins with.")
@click.option("--episode-seconds", type=click.IntRange(120, 7200), help="Of karma: length of a training episode.")
@click.option("--trials", type=click.IntRange(1, 1000), help="Of karma: look for settings first, by short trainings.")
@click.option("--organisation", type=FILE, help="Of karma: roles and missions of your own, YAML.")
@click.option("--attacker", type=float, help="Of karma: in this share of the episodes an attacker learns along.")
@click.option("--attacker-budget", type=float, help="Its unwanted requests for each genuine one.")
@click.option("--attacker-rate", type=float, help="At most so many times the genuine requests at once.")
@click.option("--attacker-plain", is_flag=True, help="Its requests cost no more work than genuine ones.")
@click.option("--cluster", type=FILE, help="Learn on the cluster of this capture.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="What it learns by; default: its own choice.")
@click.option("--per", help="Of marl-dqn on a cluster: a network for each value of this label of nodes.")
def train(
    policy: str,
    out: Path,
    seeds: str | None,
    resume: bool,
    workers: int,
    ray: str,
    warm_up: str,
    steps: int | None,
    mixture: str,
    series: Path | None,
    topology: Path | None,
    trace: Path | None,
    twin: Path | None,
    reward: str,
    signals: tuple[str, ...],
    prometheus: str,
    token_file: Path | None,
    trials: int | None,
    cluster: Path | None,
    algorithm: Algorithm | None,
    per: str | None,
    organisation: Path | None,
    attacker: float | None,
    attacker_budget: float | None,
    attacker_rate: float | None,
    attacker_plain: bool,
    **choices: str | int | None,
) -> None:
    """Train POLICY and write its weights and card to --out."""
    torch.set_num_threads(1)
    try:
        if (teacher := TAUGHT_BY.get(policy)) is not None:
            raise ConfigError(f"{policy}: has no weights of its own, it places by those of {teacher}; train {teacher}")
        if (reward or signals) and TRAINERS[policy] not in (train_deep_sets, train_hybrid):
            raise ConfigError(f"--reward: {policy} learns from its own alone; leave it out, or train ee, el or lb")
        if mixture and TRAINERS[policy] is not train_hybrid:
            raise ConfigError(f"--mixture: {policy} is none; leave it out, or train hybrid")
        variant = Variant(**{name: str(value or "") for name, value in choices.items()})
        if (variant != Variant() or trials) and TRAINERS[policy] is not train_karma:
            own = "--agents, --roles, --missions, --start, --episode-seconds, --trials"
            raise ConfigError(f"{own}: not for {policy}; leave them out")
        terms = _terms(attacker, attacker_budget, attacker_rate, plain=attacker_plain)
        if (organisation or terms) and TRAINERS[policy] is not train_karma:
            raise ConfigError(f"--organisation, --attacker: {policy} has none; leave them out, or train karma")
        if ray and TRAINERS[policy] not in (train_marl, train_karma, train_baseline, train_jobs):
            raise ConfigError(f"--ray: {policy} plays one episode after the other; leave it out")
        if signals and not reward:
            raise ConfigError("--signal: only --reward reads it; add that, or leave it out")
        if series and TRAINERS[policy] is not train_services_twin:
            raise ConfigError(f"--series: {policy} learns from no series; leave it out")
        if topology and TRAINERS[policy] not in (train_services_twin, train_karma):
            raise ConfigError(f"--topology: {policy} takes no graph of yours; leave it out")
        if (trace or twin) and TRAINERS[policy] is not train_karma:
            raise ConfigError(f"--trace, --twin: {policy} plays in its own twin alone; leave them out, or train karma")
        if cluster and TRAINERS[policy] not in ON_CLUSTERS:
            raise ConfigError(f"--cluster: {policy} places no pods by what it learns there; train one of {PLACING}")
        if algorithm and TRAINERS[policy] not in BY_ALGORITHM:
            raise ConfigError(
                f"--algorithm: {policy} learns by its own alone; leave it out, or train ee, el, lb or marl-dqn"
            )
        if per == "":
            raise ConfigError("--per: is empty; name a label of nodes, or leave it out")
        if per and TRAINERS[policy] is not train_marl:
            raise ConfigError(f"--per: {policy} has one network for all nodes; leave it out, or train marl-dqn")
        source = SignalSource(signals, prometheus, token_file)
        chosen = parse_seeds(seeds) if seeds is not None else (FIRST_TRAINING_SEED,)
        with run_folder(out, chosen, resume=resume):
            TRAINERS[policy](
                TrainRequest(
                    policy,
                    out,
                    chosen,
                    resume=resume,
                    workers=workers,
                    warm_up=warm_up,
                    steps=steps,
                    mixture=mixture,
                    reward=reward,
                    signals=source,
                    ray=ray,
                    variant=variant,
                    trials=trials or 0,
                    series=series,
                    topology=topology,
                    trace=trace,
                    twin=twin,
                    cluster=cluster,
                    algorithm=algorithm or "",
                    per=per or "",
                    organisation=organisation,
                    attacker=terms,
                )
            )
    except ConclaveError as error:
        click.echo(f"{PROGRAM}{error}", err=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        kept = any(out.glob("*.ckpt"))
        told = "the last checkpoint is kept, go on with --resume" if kept else "no checkpoint yet, start from scratch"
        click.echo(f"interrupted; {told}", err=True)
        sys.exit(INTERRUPTED)


def _terms(share: float | None, budget: float | None, rate: float | None, *, plain: bool) -> AttackerTerms | None:
    """What the attacker may do; None: there is none. ``ConfigError``: out of range, or terms without an attacker."""
    if share is None:
        if budget is not None or rate is not None or plain:
            raise ConfigError("--attacker-budget, --attacker-rate, --attacker-plain: of --attacker; add that")
        return None
    usual = AttackerTerms()
    return AttackerTerms(
        share, usual.budget if budget is None else budget, usual.rate if rate is None else rate, not plain
    )


def run(arguments: list[str]) -> int:
    """The exit code of ``python -m lab.learner ARGUMENTS``; what is wrong with them is one line."""
    try:
        main.main(arguments, prog_name="python -m lab.learner", standalone_mode=False)
    except click.ClickException as error:
        click.echo(f"{PROGRAM}{' '.join(error.format_message().split())} (see --help)", err=True)
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
