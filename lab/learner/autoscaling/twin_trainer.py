"""``conclave train services-twin``: reads the series, trains an ensemble and writes the twin's file."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import click
import msgspec

from lab.files import read_series, read_topology
from lab.learner.autoscaling.twin_training import EPOCHS, NAME, TwinRun, TwinSettings
from lab.learner.training.run_files import write_file
from lab.learner.training.runner import TrainRequest, train_seeds
from lab.worlds.learned.model import FILE, encode
from lab.worlds.learned.series import parse_series
from shared.errors import ConfigError


def train_services_twin(request: TrainRequest) -> None:
    """Train one seed to its end and write the twin. Raises ``ConfigError`` on what cannot be used."""
    if request.series is None:
        raise ConfigError(
            "--series: a twin learns from recorded series; make some with conclave twin series, or capture"
        )
    if request.warm_up or len(request.seeds) > 1:
        raise ConfigError("--seeds, --warm-up: a twin is trained on one seed and imitates nobody; leave them out")
    topology = read_topology(request.topology)
    data = read_series("--series", request.series)
    series = parse_series(data, f"--series: {request.series}", services=topology.order)
    digest = hashlib.sha256(data).hexdigest()
    settings = TwinSettings(request.seeds[0], request.steps or EPOCHS, series=digest)
    (run,) = train_seeds(request, [partial(TwinRun, settings, series, topology)])
    command = f"conclave train {NAME} --series {request.series.name} --seeds {settings.seed} --out DIR"
    twin = run.twin(
        {"command": command, "settings": dict(settings.as_json()), "held_out_loss": round(run.best_loss, 4)}
    )
    write_file(request.out / FILE, encode(twin))
    write_file(request.out / f"{NAME}.json", json.dumps(msgspec.to_builtins(twin.header), indent=2).encode() + b"\n")
    told = f"{series.transitions} steps of {len(series.scenarios)} scenarios"
    click.echo(f"{NAME}: {told}, held-out loss {run.best_loss:.4f} nats per class; {request.out / FILE}")
