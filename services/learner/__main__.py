"""``python -m services.learner train POLICY``: train a policy from nothing, or go on after an interruption.

What ``conclave train`` starts. A trainer takes the seed, the output directory and whether to resume, and raises
``ConfigError`` for what it cannot use; it writes weights and card itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
import torch

from services.learner.deepsets_trainer import train_deep_sets
from shared.errors import ConclaveError

Trainer = Callable[[str, tuple[int, ...], Path, bool, int | None], None]
"""(policy, seeds, out, resume, decisions or None for the trainer's own number)."""

TRAINERS: dict[str, Trainer] = {
    "ee": train_deep_sets,
    "lb": train_deep_sets,
    "el": train_deep_sets,
}

BAD_INPUT, INTERRUPTED = 2, 130


@click.group()
def main() -> None:
    """The learner: training from the command line."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """``1000``, ``1000,1001`` or ``1000-1002``. Raises ``click.BadParameter``."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last) if dash else int(first)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no list of seeds; give such as 1000-1002 or 1000,1007") from None
        seeds.extend(range(low, high + 1))
    if not seeds or len(seeds) > 1000:
        raise click.BadParameter(f"{text!r} names {len(seeds)} seeds; give 1 to 1000, the smaller number first")
    return tuple(dict.fromkeys(seeds))


@main.command()
@click.argument("policy", type=click.Choice(sorted(TRAINERS)))
@click.option("--seeds", default="1000-1002", show_default=True, help="One run each; the best validated one is kept.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Weights, logs, state.")
@click.option("--resume", is_flag=True, help="Go on from the state in --out.")
@click.option("--decisions", type=click.IntRange(min=1), help="Placements to learn from (default: as shipped).")
def train(policy: str, seeds: str, out: Path, resume: bool, decisions: int | None) -> None:
    """Train POLICY and write its weights and card to --out."""
    torch.set_num_threads(1)
    try:
        TRAINERS[policy](policy, parse_seeds(seeds), out, resume, decisions)
    except ConclaveError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        click.echo("interrupted; the last checkpoint is kept, go on with --resume", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main(prog_name="python -m services.learner")
