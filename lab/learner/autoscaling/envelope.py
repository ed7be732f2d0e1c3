"""``python -m lab.learner.autoscaling.envelope FILE``: give weights of karma the envelope of their training.

The trainer does it at its end; this is for weights that were trained before there was one. The network stays as it is;
the file, and with it its digest, changes.
"""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from lab.learner.autoscaling.training import KarmaRun, KarmaRunSettings, envelope_of
from lab.learner.training.runner import FIRST_TRAINING_SEED
from shared.autoscaling.networks.karma import NAMES
from shared.policy.weights import WeightsFile, decode, encode, policy_of

OF_EPISODES = ("agents", "binding", "missions", "seconds", "strength")
"""Settings on a card that decide which episodes were played, and by whom."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    """Play training episodes with the weights in FILE and write the range of each input into their card."""
    data = file.read_bytes()
    policy = policy_of(data, str(file))
    if policy not in NAMES.values():
        raise click.ClickException(f"{file} is of {policy}; give weights of {' or '.join(NAMES.values())}")
    weights = decode(data, policy=policy)
    trained = weights.card.trained.get("settings", {})
    if trained.get("files"):
        raise click.ClickException(f"{file} was trained on files of your own; train again, its card has the range then")
    seed = int(weights.card.trained.get("seeds", {}).get("chosen", FIRST_TRAINING_SEED))
    run = KarmaRun(KarmaRunSettings(seed=seed, **{name: trained[name] for name in OF_EPISODES if name in trained}))
    card = replace(weights.card, envelope=envelope_of(run, weights))
    data = encode(WeightsFile(weights.arrays, card))
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(data)
    partial.replace(file)
    click.echo(f"{file}: {decode(data, policy=policy).sha256}")


if __name__ == "__main__":
    main()
