"""``conclave twin``, less ``serve``: ``capture`` records a real cluster into a twin file, ``replay`` plays one in the
cluster model, ``trace`` makes nodes and pods for the demo, ``series`` records a service graph.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from services.cli.terminal.durations import SECONDS
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.cli.twin.capture_services import SeriesSettings


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True, help="Which cluster.")
@click.option("--context", help="Context of the kubeconfig; default: its current one.")
@click.option("--prometheus", help="URL of the Prometheus that scrapes the cluster's node-exporters.")
@click.option("--prometheus-token-file", type=click.Path(path_type=Path), help="A bearer token for it.")
@click.option("--prometheus-ca", type=click.Path(path_type=Path), help="CA that signs its certificate (PEM).")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The twin file, such as twin.json.gz.")
@click.option("--duration", type=SECONDS, default="0", show_default=True, help="Watch for so long, as in 90s or 10m.")
@click.option("--history", type=SECONDS, default="1h", show_default=True, help="How far back the metrics reach.")
@click.option("--step", type=SECONDS, default="15s", show_default=True, help="Time between two metrics.")
@click.option(
    "--services",
    help="Record the series of a service graph instead: NAMESPACE/NAME of a ResilientAutoscaler, or its manifest.",
)
@click.option("--scenario", help="With --services: a word for what goes on meanwhile; default: live.")
@click.option("--quiet", is_flag=True, help="No progress.")
def capture(
    kubeconfig: Path,
    context: str | None,
    prometheus: str | None,
    prometheus_token_file: Path | None,
    prometheus_ca: Path | None,
    out: Path,
    duration: float,
    history: float,
    step: float,
    services: str | None,
    scenario: str | None,
    quiet: bool,
) -> None:
    """Record a cluster's nodes and pods, and what its nodes really use, into a twin file. Reads only.

    Ctrl-C ends --duration early; what was seen until then is written. With --services it is the series of a service
    graph, as CSV, every --step until --duration is over or Ctrl-C; a file that is there is gone on with.
    """
    from lab.cli.twin.capture import CaptureSettings, capture_cluster
    from lab.cli.twin.capture_services import SeriesSettings
    from lab.worlds.learned.series import LIVE
    from services.cli.terminal.output_file import check_writable, write_whole
    from services.cli.terminal.progress import RunProgress
    from shared.runtime.observe.logging import configure
    from twin.model.capture import encode

    configure("cli", level="error")
    if step < 1:
        raise ConfigError(f"--step: {step:g} s is too short; node-exporters are scraped every 15 s, give 1s or more")
    check_writable("--out", out)
    token = "" if prometheus_token_file is None else _read("--prometheus-token-file", prometheus_token_file).strip()
    if services is not None:
        record_services(
            SeriesSettings(
                kubeconfig=kubeconfig, context=context, services=services, prometheus=prometheus, token=token,
                ca=prometheus_ca, duration_s=duration, step_s=step, scenario=scenario or LIVE,
            ), out, quiet=quiet,
        )  # fmt: skip
        return
    if scenario is not None:
        raise ConfigError("--scenario: only --services has one; add that, or leave it out")
    settings = CaptureSettings(
        kubeconfig=kubeconfig,
        context=context,
        prometheus=prometheus,
        token=token,
        ca=prometheus_ca,
        duration_s=duration,
        history_s=history,
        step_s=step,
    )
    with RunProgress(quiet=quiet) as progress:
        found = asyncio.run(capture_cluster(settings, progress))
    data = encode(found)
    write_whole("--out", out, data)
    click.echo(
        f"{out}: {len(found.nodes)} nodes, {len(found.pods)} pods, {len(found.series)} nodes with metrics,"
        f" {found.length_s:.0f} s, {len(data)} bytes"
    )
    for note in found.notes:
        click.echo(f"  {note}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--policy", help="Also say what this policy would have made of the same pods.")
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Breaks the policy's ties."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here.")
def replay(file: Path, policy: str | None, seed: int, json_file: Path | None) -> None:
    """Play a twin file in the cluster model and say how far the twin's utilisation is from the recorded one.

    The error is the mean absolute difference in percent of what the node offers, over the second half of the file.
    """
    from lab.cli.twin.replay import figures_of, lines_of, replay_file
    from services.cli.terminal.output_file import check_writable, write_whole

    check_writable("--json", json_file)
    found = replay_file(file, policy=policy, seed=seed)
    if json_file is not None:
        write_whole("--json", json_file, f"{json.dumps(figures_of(found), indent=2)}\n".encode())
    for line in lines_of(found):
        click.echo(line)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder for the two files.")
@click.option("--nodes", type=int, default=60, show_default=True, help="How many nodes.")
@click.option("--pods", type=int, default=600, show_default=True, help="How many pods, as far as they fill 85 %.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=42, show_default=True, help="Same seed, same trace.")
def trace(out: Path, nodes: int, pods: int, seed: int) -> None:
    """Make a trace of openb's form: a cluster with GPUs, and pods for it, for 'conclave demo --workload openb'."""
    from random import Random

    from lab.cli.demo.workload import NODE_LIST, POD_LIST
    from lab.traces.maker import make_trace
    from services.cli.terminal.output_file import write_whole

    made = make_trace(Random(seed), nodes=nodes, pods=pods)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out: {out}: {error.strerror}; give a folder that can be written") from None
    for name, text in zip((NODE_LIST, POD_LIST), made, strict=True):
        write_whole("--out", out / name, text.encode())
        click.echo(f"{out / name}: {text.count(chr(10)) - 1} rows")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here.")
def lost(file: Path, json_file: Path | None) -> None:
    """Minutes that services lost in recorded series, by what ailed them: what is worth automating first."""
    from lab.files import read_series
    from lab.worlds.learned.lost import lost_minutes, table_of
    from services.cli.terminal.output_file import check_distinct, check_writable, write_whole

    check_distinct({"--json": json_file}, {"FILE": file})
    check_writable("--json", json_file)
    losses = lost_minutes(read_series("FILE", file), str(file))
    if json_file is not None:
        write_whole("--json", json_file, f"{json.dumps([asdict(one) for one in losses], indent=2)}\n".encode())
    for line in table_of(losses):
        click.echo(line)


def record_services(settings: SeriesSettings, out: Path, *, quiet: bool) -> None:
    from lab.cli.twin.capture_services import capture_services
    from lab.files import read_series
    from lab.worlds.learned.lost import lost_minutes, table_of
    from services.cli.terminal.progress import RunProgress

    with RunProgress(quiet=quiet) as progress:
        found = asyncio.run(capture_services(settings, out, progress))
    click.echo(f"{out}: {found.moments} moments more, {found.missed} missed")
    if found.missed:
        click.echo(f"  the last one: {found.why}")
    for line in table_of(lost_minutes(read_series("--out", out), str(out))):
        click.echo(line)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The series' file, CSV.")
@click.option(
    "--topology", type=click.Path(path_type=Path), help="A service graph of your own; default: KARMA's chain."
)
@click.option("--scenario", "scenarios", multiple=True, help="Only this one, or calm; repeatable.")
@click.option("--seeds", default="5000-5011", show_default=True, help="From 1000 on: those below are for reporting.")
@click.option("--quiet", is_flag=True, help="No progress.")
def series(out: Path, topology: Path | None, scenarios: tuple[str, ...], seeds: str, quiet: bool) -> None:
    """Record series for 'conclave train services-twin' from a service graph whose true parameters are hidden.

    Each scenario is played by six policies on every seed. For those of a live cluster: 'twin capture --services'.
    """
    from lab.autoscaling.recording import RECORDED, RECORDERS, record
    from lab.evaluation.seeds import parse_seeds
    from lab.worlds.services.topology import default_topology, parse_topology
    from services.cli.terminal.output_file import check_writable, whole_file
    from services.cli.terminal.progress import RunProgress

    graph = default_topology() if topology is None else parse_topology(_read("--topology", topology), "--topology")
    chosen, played = parse_seeds(seeds), scenarios or RECORDED
    check_writable("--out", out)
    total = len(chosen) * len(played) * len(RECORDERS)
    with whole_file("--out", out) as sink, RunProgress(quiet=quiet) as progress:
        for done, (told, rows) in enumerate(record(graph, chosen, scenarios=played), 1):
            sink.write(rows.encode())
            progress(done, total, told)
    click.echo(f"{out}: {total} episodes of {len(played)} scenarios")


def _read(flag: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {file}: {error}; give a readable text file") from None
