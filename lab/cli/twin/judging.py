"""``conclave twin divide`` and ``judge``: hours held back of recorded series, and what a learned twin makes of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from services.cli.terminal.output_file import check_distinct, check_writable, write_whole

if TYPE_CHECKING:
    from lab.autoscaling.judging import TwinGoals, TwinJudgement
    from lab.worlds.services.topology import ServiceGraph

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--train", type=FILE, required=True, help="The hours to learn from, CSV.")
@click.option("--held", type=FILE, required=True, help="The hours to judge by, CSV.")
@click.option(
    "--share", type=click.FloatRange(0.05, 0.5), default=0.2, show_default=True, help="How much is held back."
)
def divide(file: Path, train: Path, held: Path, share: float) -> None:
    """Divide recorded series: the last part of each scenario is held back, to judge a twin by what it never saw."""
    from lab.files import read_series
    from lab.worlds.learned.splitting import held_back

    outputs = {"--train": train, "--held": held}
    check_distinct(outputs, {"FILE": file})
    for flag, out in outputs.items():
        check_writable(flag, out)
    parts = held_back(read_series("FILE", file), str(file), share=share)
    for (flag, out), part in zip(outputs.items(), parts, strict=True):
        write_whole(flag, out, part)
        click.echo(f"{out}: {part.count(10) - 1} rows")


@click.command()
@click.argument("twin", type=FILE)
@click.option("--series", type=FILE, required=True, help="Hours that were held back, CSV of 'conclave twin divide'.")
@click.option("--topology", type=FILE, help="The service graph of the twin; default: KARMA's chain.")
@click.option("--json", "json_file", type=FILE, help="Write what was found here; default: judgement.json beside TWIN.")
@click.option("--require-goals", is_flag=True, help="Exit with 1 when a goal is not met.")
def judge(twin: Path, series: Path, topology: Path | None, json_file: Path | None, require_goals: bool) -> int:
    """Say how far a learned twin (the folder of 'train services-twin') is from hours that it was not trained on.

    What is found lies beside the twin, where 'autoscale analyse --twin' reads it: a twin that missed its goals is a
    no go for whatever was trained in it.
    """
    from lab.autoscaling.judging import FILE as JUDGEMENT
    from lab.autoscaling.judging import TwinGoals
    from lab.files import read_series, read_topology

    out = json_file or (twin if twin.is_dir() else twin.parent) / JUDGEMENT
    check_writable("--json", out)
    graph = read_topology(topology)
    found = judged(twin, read_series("--series", series), graph, f"--series: {series}")
    write_judgement(found, out)
    goals = TwinGoals()
    for line in judgement_lines(found, goals):
        click.echo(line)
    click.echo(f"written: {out}")
    return 1 if require_goals and not all(one.met for one in found.checks(goals)) else 0


def judged(twin: Path, series: bytes, graph: ServiceGraph, name: str) -> TwinJudgement:
    """What a twin's file makes of held back series. ``ConfigError``: they do not belong together."""
    from lab.autoscaling.judging import judge as run
    from lab.files import read_twin
    from lab.worlds.learned.series import parse_series
    from lab.worlds.learned.world import check_graph

    found, digest = read_twin("TWIN", twin)
    check_graph(found, graph, "TWIN")
    held = parse_series(series, name, services=found.header.services)
    return run(found, held, graph, twin_digest=digest, series_digest=hashlib.sha256(series).hexdigest())


def write_judgement(found: TwinJudgement, out: Path) -> None:
    """Write it, whole."""
    import msgspec

    write_whole("--json", out, msgspec.json.format(msgspec.json.encode(found, order="deterministic"), indent=1) + b"\n")


def judgement_lines(found: TwinJudgement, goals: TwinGoals) -> list[str]:
    """For a terminal."""
    lines = [f"a twin on {found.moments} moments that were held back"]
    for one in found.checks(goals):
        met = "met    " if one.met else "NOT met"
        value = "unknown" if one.found is None else f"{one.found:.2f}"
        lines.append(f"  {met} {one.name}: {value}, wanted {one.wanted:g}: {one.meaning}")
    lines += [
        f"  {name}: reward {found.recorded[name]:.1f} recorded, {found.said[name]:.1f} said, gap {gap:.1f} %"
        for name, gap in found.gaps.items()
    ]
    return lines
