"""Trains ``hybrid``: the weights of a mixture per class, chosen on the validation seeds, written as a file."""

from __future__ import annotations

import click
import numpy as np

from lab.hybrid.fitting import FEATURES, OBJECTIVE, TEST_SEEDS, VALIDATION_SEEDS, Fit
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest
from lab.rewards.loading import load_reward
from shared.errors import ConfigError
from shared.policy.hybrid.mixture import build
from shared.policy.registry import members_made
from shared.runtime.process.mixture_file import read_mixture

PROPOSALS = 40
SAY_EVERY = 5
LIMITS = [
    "fitted on the thesis' random workload on eight nodes, pods of all classes drawn alike",
]


def train_hybrid(request: TrainRequest) -> None:
    """Fit one search per seed and write the best. Raises ``ConfigError`` on what cannot be used."""
    if not request.mixture:
        raise ConfigError("--mixture: which policies are mixed? give POLICY=WEIGHT,... or a definition's file")
    if request.warm_up or request.resume or request.signals.signals:
        raise ConfigError("--warm-up, --resume, --signal: a mixture is fitted in minutes, from nothing; leave it out")
    mixture = read_mixture(request.mixture, {})
    objective = request.reward or OBJECTIVE
    judge, proposals = load_reward(objective, FEATURES).judge, request.steps or PROPOSALS
    fits = []
    for seed in request.seeds:
        fit = Fit(mixture, members_made, judge, seed)
        for tried in fit.search(proposals):
            if tried % SAY_EVERY == 0 or tried == proposals:
                found = max(one.worth for one in fit.tried)
                click.echo(f"hybrid seed {seed}: {tried} of {proposals} proposals, best {found:.4f}", err=True)
        fits.append((fit.validate(), fit))
    best, fit = max(fits, key=lambda pair: pair[0].worth)
    given = fit.validated[0].worth
    quoted = f"python -m lab.learner train hybrid --mixture {request.mixture} --reward '{objective}' --out DIR"
    file = build(
        mixture.with_weights(best.weights),
        trained={
            "command": quoted,
            "seeds": {"training": list(request.seeds), "chosen": fit.seed, "validation": list(VALIDATION_SEEDS)},
            "settings": {"objective": objective, "proposals": proposals},
        },
        figures={
            "validation, mean of the objective": round(best.worth, 5),
            "the same of the mixture as given": round(given, 5),
        },
        limits=LIMITS,
    )
    written = write_weights(request.out, file)
    rows = ["no class", *(rule.name for rule in mixture.classes)]
    for name, row in zip(rows, best.weights, strict=True):
        shares = ", ".join(f"{member.policy} {share:.2f}" for member, share in zip(mixture.members, row, strict=True))
        click.echo(f"hybrid: {name}: {shares}")
    for told, weights in fit.compared(best.weights):
        worths = fit.worths(weights, TEST_SEEDS)
        click.echo(f"hybrid: {told}: {np.mean(worths):.4f} ± {np.std(worths, ddof=1):.4f} on test seeds 42-51")
    kept = "as given, nothing was better" if np.array_equal(best.weights, mixture.weights) else "found by the search"
    click.echo(f"hybrid: {best.worth:.4f} on validation, {given:.4f} as given ({kept}); weights in {written}")
