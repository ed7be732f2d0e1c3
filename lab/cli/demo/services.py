"""``conclave demo --workload services``: HPA and one of our policies on the same episode of the service twin, live.

Nothing is started and nothing is written but the picture and the figures: the episode runs in this process. One
decision of both sides is shown at a time, at ``--speed`` virtual seconds a second.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lab.cli.demo.board import DemoProgress
from services.cli.terminal.output_file import check_distinct, check_writable, write_whole
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.autoscaling.duel import Duel, DuelStep

SPEED = 18.0
"""The half-hour of an episode takes a minute and forty seconds."""
OURS = "karma"
SCENARIO = "mixed"
PICTURES = (".png", ".svg")
SHOWN = ("success", "latency_compliance", "availability", "recovery_s", "replica_hours", "oscillation", "reward")
UNITS = {"recovery_s": " s", "replica_hours": " h", "oscillation": "", "reward": ""}
USED = ("workload", "scenario", "policy", "seed", "speed", "json_file", "picture", "quiet")
"""Options of the demo that this workload has a use for."""


@dataclass(frozen=True, slots=True)
class ServicesDemo:
    """What was asked for. ``picture``: its ending says which form."""

    scenario: str
    policy: str
    seed: int
    speed: float
    json_file: Path | None
    picture: Path
    quiet: bool


def check_used(here: click.Context) -> None:
    """``ConfigError``: an option was given that means nothing without a mesh, or the other way round."""
    services = here.params["workload"] == "services"
    for option in here.command.params:
        if here.get_parameter_source(str(option.name)) is not click.core.ParameterSource.COMMANDLINE:
            continue
        if services and option.name not in USED:
            raise ConfigError(f"{option.opts[0]}: the workload services has no mesh; leave it out")
        if not services and option.name == "scenario":
            raise ConfigError("--scenario: it is of service graphs; give --workload services beside it")


def services_demo(settings: ServicesDemo) -> int:
    """One demo. ``ConfigError``: no such scenario or policy, or a file that cannot be written."""
    from lab.autoscaling.duel import Duel
    from lab.autoscaling.episode import Setup
    from lab.autoscaling.policies import BASELINE, make
    from lab.autoscaling.suite import experiments
    from lab.worlds.services.topology import default_topology

    if settings.picture.suffix.lower() not in PICTURES:
        raise ConfigError(f"--out: {settings.picture} is neither a .png nor a .svg file; name one of them")
    check_writable("--out", settings.picture)
    check_distinct({"--json": settings.json_file, "--out": settings.picture}, {})
    if settings.policy == BASELINE:
        raise ConfigError(f"--policy: {BASELINE} is the one to compare with; choose another")
    (played,) = experiments(own_files=False, scenario=settings.scenario)
    setup = Setup(default_topology(), played.scenario, played.intensity)
    sides = {name: make(name) for name in (BASELINE, settings.policy)}
    duel = Duel(setup, sides, settings.seed)
    asyncio.run(until_signal(_watch(duel, settings)))
    figures = {name: one.figures for name, one in duel.played().items()}
    title = f"{settings.scenario}, seed {settings.seed}: " + ", ".join(
        f"{name} answered {one['success']:.1f} %" for name, one in figures.items()
    )
    write_picture(duel, settings.picture, title=title)
    if settings.json_file is not None:
        told = {
            "workload": "services", "scenario": settings.scenario, "intensity": played.intensity,
            "seed": settings.seed, "seconds": setup.seconds, "policies": figures, "picture": str(settings.picture),
        }  # fmt: skip
        write_whole("--json", settings.json_file, (json.dumps(told, indent=2) + "\n").encode())
    if not settings.quiet:
        _report(figures, settings)
    return 0


async def _watch(duel: Duel, settings: ServicesDemo) -> None:
    began = time.monotonic()
    hours = dict.fromkeys(duel.policies, 0.0)
    with DemoProgress(quiet=settings.quiet) as progress:
        for moments in duel.moments():
            for name, moment in moments.items():
                hours[name] += moment.replicas * duel.setup.decide_s / 3600
            now_s = next(iter(moments.values())).at_s
            await asyncio.sleep(max(0.0, began + now_s / settings.speed - time.monotonic()))
            progress.draw(
                f"conclave demo: {settings.scenario}, {now_s} of {duel.setup.seconds} s",
                ("", *moments),
                rows(duel, moments, hours, now_s),
                plain=plain(moments),
            )


def rows(duel: Duel, moments: dict[str, DuelStep], hours: dict[str, float], now_s: int) -> list[tuple[str, ...]]:
    """What is shown of one moment: a row's name, then a text for each side."""
    from lab.autoscaling.duel import happening

    sides = list(moments.values())
    found: list[tuple[str, ...]] = [
        ("what happens", *([", ".join(happening(duel.events, now_s)) or "nothing"] * len(sides))),
        ("requests/s", *(f"{one.load:.0f}" for one in sides)),
        ("answered well", *(f"{one.answered:.0%}" for one in sides)),
        ("since the start", *(f"{one.success:.1%}" for one in sides)),
        ("replicas, hours", *(f"{one.replicas}, {hours[name]:.2f}" for name, one in moments.items())),
    ]
    for number, service in enumerate(sides[0].services):
        found.append((f"service {service.name}", *(_service(one, number, name) for name, one in moments.items())))
    return found


def _service(moment: DuelStep, number: int, policy: str) -> str:
    one = moment.services[number]
    change = one.wanted - one.replicas
    counts = f"{one.ready} of {one.replicas} ready" + (f", {change:+d}" if change else "")
    if one.acted is not None:
        return f"{counts}: {one.acted.role} ({one.acted.why})"
    return f"{counts}: {policy}" if change else counts


def plain(moments: dict[str, DuelStep]) -> str:
    """One line for where there is no terminal."""
    return "; ".join(
        f"{name}: answered {one.answered:.0%} of {one.load:.0f}/s, {one.success:.1%} so far, {one.replicas} replicas"
        for name, one in moments.items()
    )


def _report(figures: dict[str, dict[str, float]], settings: ServicesDemo) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", *figures, title=f"conclave demo: {settings.scenario}, seed {settings.seed}")
    for metric in SHOWN:
        values = [one.get(metric, float("nan")) for one in figures.values()]
        table.add_row(metric.replace("_", " "), *(f"{value:.1f}{UNITS.get(metric, ' %')}" for value in values))
    Console(width=min(shutil.get_terminal_size((110, 24)).columns, 140), highlight=False).print(table)
    click.echo(f"picture: {settings.picture}")
    click.echo("one seed is no figure: conclave evaluate --suite autoscaling --scenario mixed plays ten")


def write_picture(duel: Duel, file: Path, *, title: str) -> None:
    """Load, answers and replicas of all sides over time, and the roles of the last side's services, as PNG or SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    past = duel.past
    first = next(iter(past.values()))
    figure, (load, answered, replicas, roles) = plt.subplots(
        4, 1, figsize=(10, 9), sharex=True, height_ratios=[1.2, 1.5, 1.5, 1.5], layout="constrained"
    )
    load.fill_between([one.at_s for one in first], [one.load for one in first], alpha=0.5, color="tab:gray")
    load.set_ylabel("requests/s")
    for name, moments in past.items():
        times = [one.at_s for one in moments]
        answered.plot(times, [100 * one.answered for one in moments], label=name, linewidth=1.2)
        replicas.step(times, [one.replicas for one in moments], where="post", label=name, linewidth=1.2)
    answered.set_ylabel("answered well, %")
    answered.legend(loc="lower left", fontsize="small", ncols=2)
    replicas.set_ylabel("replicas")
    for axes in (load, answered, replicas):
        axes.set_ylim(bottom=0)
    _draw_roles(roles, list(past.values())[-1], duel.setup.decide_s)
    roles.set_ylabel(f"roles of {list(past)[-1]}")
    roles.set_xlabel("seconds of the episode")
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _draw_roles(axes: Any, moments: Sequence[DuelStep], width_s: int) -> None:
    names = [one.name for one in moments[0].services] if moments else []
    acted = sorted({one.acted.role for moment in moments for one in moment.services if one.acted is not None})
    for colour, role in enumerate(acted):
        for row, _ in enumerate(names):
            spans = [
                (moment.at_s, width_s)
                for moment in moments
                if (held := moment.services[row].acted) is not None and held.role == role
            ]
            axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=f"C{colour}", label=role if row == 0 else None)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, max(len(names), 1) + 0.3)  # the legend above them
    if acted:
        axes.legend(loc="upper left", fontsize="small", ncols=4)
