"""The part of a design that begins with recorded series: capture them, fit a twin to them, judge it.

    capture   the object; series as given (CSV of 'conclave twin capture --services'), or recorded from the cluster
    fit       the graph, hours to learn from and hours held back, the load, and the twin, by the learner
    judge     what the twin makes of the hours that were held back

What comes after trains in the twin, and is analysed in it. Each stage is also a command of its own: ``twin capture``,
``twin divide``, ``train services-twin``, ``twin judge``, ``train karma --twin``, ``autoscale analyse --twin``.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from lab.cli.autoscale.stages import Stages
from lab.cli.train.command import TRAINER
from lab.cli.twin.judging import judged, judgement_lines, write_judgement
from services.cli.terminal.output_file import write_whole
from shared.errors import ConclaveError, ConfigError

if TYPE_CHECKING:
    from lab.autoscaling.fitting import CapturedScaler
    from lab.worlds.learned.series import RecordedSeries
    from lab.worlds.services.topology import ServiceGraph

SERIES, GRAPH, TOPOLOGY, TRAIN, HELD, LOAD, TWIN, JUDGEMENT = (
    "series.csv", "graph.yaml", "topology.yaml", "train.csv", "held.csv", "load.csv", "services-twin.npz",
    "judgement.json",
)  # fmt: skip
HEAD = b"scenario,episode,time_s,service"
EXIT_INTERRUPTED = 130
ENOUGH = 0.95
"""Of the time that is to be recorded: so much must be there."""


class ChildEnded(ConclaveError):
    """A child, or a recording, did not reach its end; ``exit_code`` is its own."""

    code = "training_ended"

    def __init__(self, exit_code: int, why: str = "") -> None:
        super().__init__(why or f"the trainer ended with {exit_code}, and says why above")
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class SeriesRecording:
    """How the cluster is recorded: seconds in all and between two looks; ``services``: the object, as was given."""

    services: str
    kubeconfig: Path
    context: str
    prometheus: str
    token: str
    ca: Path | None
    duration_s: float
    step_s: float
    quiet: bool

    def told(self) -> dict[str, Any]:
        """What decides the stage's digest."""
        return {"duration_s": self.duration_s, "step_s": self.step_s, "prometheus": self.prometheus}


def holds_series(data: bytes) -> bool:
    """Whether these are series of a service graph, and no trace of rates."""
    if data[:2] == b"\x1f\x8b":
        import zlib

        try:
            data = zlib.decompressobj(wbits=31).decompress(data, len(HEAD))
        except zlib.error:
            raise ConfigError("--series: it begins as gzip and is none; give the file again") from None
    return data.startswith(HEAD)


def record(recording: SeriesRecording, out: Path) -> None:
    """Record what is missing of the time in ``out``. ``ChildEnded``: it was interrupted before."""
    from lab.cli.twin.capture_services import SeriesSettings
    from lab.cli.twin.command import record_services
    from lab.worlds.learned.series import LIVE

    left_s = recording.duration_s - _so_far(out).seconds(recording.step_s)
    record_services(
        SeriesSettings(
            kubeconfig=recording.kubeconfig, context=recording.context or None, services=recording.services,
            prometheus=recording.prometheus or None, token=recording.token, ca=recording.ca,
            duration_s=max(left_s, recording.step_s), step_s=recording.step_s, scenario=LIVE,
        ), out, quiet=recording.quiet,
    )  # fmt: skip
    if (found_s := _so_far(out).seconds(recording.step_s)) < ENOUGH * recording.duration_s:
        raise ChildEnded(
            EXIT_INTERRUPTED, f"{found_s:.0f} of {recording.duration_s:.0f} s are recorded; the same command goes on"
        )


@dataclass(frozen=True, slots=True)
class _SoFar:
    """What a file of series holds. ``step_s``: the median of the times between two moments; None: no two follow."""

    services: frozenset[str] = frozenset()
    moments: int = 0
    step_s: float | None = None

    def seconds(self, step_s: float) -> float:
        """How much time it covers, gaps not counted; by ``step_s`` where it does not tell its own."""
        return self.moments * (self.step_s or step_s)


def check_gone_on(out: Path, services: Iterable[str], step_s: float) -> None:
    """``ConfigError``: what is in ``out`` is of other services or at another step, so that no twin could be learned of
    it and of what would be recorded behind it."""
    from lab.worlds.learned.series import UNEVEN

    remedy = "move it away, or give another folder"
    if out.exists() and out.stat().st_size and not _begins_plainly(out):
        raise ConfigError(f"--out: {out} holds no series that a recording can go on with; {remedy}")
    found = _so_far(out)
    other = found.step_s is not None and abs(found.step_s - step_s) > UNEVEN * min(found.step_s, step_s)
    if found.moments and (other or found.services != frozenset(services)):
        every = f" every {found.step_s:.3g} s" if found.step_s is not None else ""
        raise ConfigError(
            f"--out: {out} holds {found.seconds(step_s) / 3600:.1f} h of services {', '.join(sorted(found.services))}"
            f"{every}; asked for are {', '.join(sorted(services))} every {step_s:g} s: {remedy}"
        )


def _begins_plainly(out: Path) -> bool:
    with out.open("rb") as file:
        return file.read(len(HEAD)) == HEAD


def _so_far(out: Path) -> _SoFar:
    """What a file of series holds by now; a line that was cut short is none."""
    if not out.exists() or not out.stat().st_size:
        return _SoFar()
    services, times = set[str](), dict[str, set[float]]()
    try:
        with out.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if None not in row.values():
                    services.add(row["service"])
                    times.setdefault(row["episode"], set()).add(float(row["time_s"]))
    except ValueError as error:
        raise ConfigError(f"--out: {out}: {error}; take that line out, or move the file away") from None
    gaps = [after - before for one in times.values() for before, after in pairwise(sorted(one))]
    return _SoFar(frozenset(services), sum(map(len, times.values())), median(gaps) if gaps else None)


@dataclass(frozen=True, slots=True)
class FittedTwin:
    """What comes of it: the graph's text, and the folder of the twin; ``judgement``: its file."""

    topology: str
    folder: Path
    judgement: Path


def twin_of(
    stages: Stages, found: CapturedScaler, data: bytes, graph: str, *, epochs: int, child: Callable[[list[str]], int]
) -> FittedTwin:
    """The stages ``fit`` and ``judge`` of captured series. ``graph``: a service graph of the user's own, "": as the
    series tell it. ``ChildEnded``: the learner was stopped, or failed."""
    from lab.autoscaling.fitting import fitted, graph_of
    from lab.worlds.learned.series import parse_series
    from lab.worlds.learned.splitting import held_back
    from lab.worlds.services.topology import parse_topology

    name = f"--series: {stages.folder / 'capture' / SERIES}"
    series = parse_series(data, name, services=tuple(found.services))
    text = fitted(found, graph or graph_of(found, series, _requests(data, name)), "--topology" if graph else "--series")
    topology = parse_topology(text, "--topology")
    train, held = held_back(data, name)

    def fit(folder: Path) -> list[str]:
        parts = {TOPOLOGY: text.encode(), TRAIN: train, HELD: held, LOAD: load_of(series, topology)}
        for file, content in parts.items():
            write_whole("--out", folder / file, content)
        more = ["--resume"] if any(folder.glob("*.ckpt")) else []
        code = child(
            [sys.executable, "-m", TRAINER, "train", "services-twin", "--out", str(folder), "--series",
             str(folder / TRAIN), "--topology", str(folder / TOPOLOGY), "--steps", str(epochs), *more]
        )  # fmt: skip
        if code:
            raise ChildEnded(code)
        return [*parts, TWIN]

    def judge(folder: Path) -> list[str]:
        write_judgement(judged(where / TWIN, held, topology, name), folder / JUDGEMENT)
        return [JUDGEMENT]

    where = stages.run("fit", {"epochs": epochs}, fit)
    judging = stages.run("judge", {}, judge)
    return FittedTwin(text, where, judging / JUDGEMENT)


def tell_judgement(twin: FittedTwin) -> None:
    """The judgement on a terminal."""
    import msgspec

    from lab.autoscaling.judging import TwinGoals, TwinJudgement

    found = msgspec.json.decode(twin.judgement.read_bytes(), type=TwinJudgement)
    for line in judgement_lines(found, TwinGoals()):
        click.echo(line, err=True)


def load_of(series: RecordedSeries, topology: ServiceGraph) -> bytes:
    """The recorded load of the entries, a time and a rate each, stretch after stretch."""
    from lab.autoscaling.judging import rates_of

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("second", "requests_per_second"))
    at = 0.0
    for one in series.episodes:
        for rate in rates_of(one, series.services, topology).tolist():
            rows.writerow((f"{at:g}", f"{rate:.6g}"))
            at += series.step_s
    return text.getvalue().encode()


def _requests(data: bytes, name: str) -> Mapping[str, float]:
    """Cores that a pod of each service requests, where the series tell it: the last that was told."""
    from math import isfinite

    from lab.worlds.learned.series import rows_of

    found: dict[str, float] = {}
    for moments in rows_of(data, name).values():
        for moment in moments.values():
            found |= {
                service: row.number("cpu_request")
                for service, row in moment.items()
                if isfinite(row.number("cpu_request"))
            }
    return found


def check_recording(duration_s: float, step_s: float) -> None:
    """``ConfigError``: too short to hold some back, or steps too near."""
    if step_s < 1:
        raise ConfigError(f"--step: {step_s:g} s is too short; give 1s or more")
    if duration_s / step_s < 60:
        raise ConfigError(f"--duration: {duration_s / step_s:.0f} moments are too few to learn from; record for longer")
