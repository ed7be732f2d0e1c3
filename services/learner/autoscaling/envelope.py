"""``python -m services.learner.autoscaling.envelope FILE``: give weights of karma the envelope of their training.

The trainer does it at its end; this is for weights that were trained before there was one. The network stays as it is;
the file, and with it its digest, changes.
"""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from services.learner.autoscaling.training import KarmaRun, KarmaSettings, envelope_of
from services.learner.training.runner import FIRST_TRAINING_SEED
from shared.autoscaling.networks.karma import NAME
from shared.policy.weights import WeightsFile, decode, encode


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(file: Path) -> None:
    """Play training episodes with the weights in FILE and write the range of each input into their card."""
    weights = decode(file.read_bytes(), policy=NAME)
    seeds = weights.card.trained.get("seeds", {})
    run = KarmaRun(KarmaSettings(seed=int(seeds.get("chosen", FIRST_TRAINING_SEED))))
    card = replace(weights.card, envelope=envelope_of(run, weights))
    data = encode(WeightsFile(weights.arrays, card))
    partial = file.with_name(f"{file.name}.partial")
    partial.write_bytes(data)
    partial.replace(file)
    click.echo(f"{file}: {decode(data, policy=NAME).sha256}")


if __name__ == "__main__":
    main()
