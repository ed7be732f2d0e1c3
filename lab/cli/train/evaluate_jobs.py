"""``conclave evaluate --suite jobs``: its flags, the processes it plays in, and any workload of the same form.

With ``--workload`` the file's jobs are played on ``--cluster`` by one policy, once per seed, instead of the suite. The
schedule is checked by code of its own before anything is told or written; Ctrl-C ends all processes and writes nothing.
"""

from __future__ import annotations

import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from lab.evaluation.results import Progress, ResultMetric, SuiteResult
from lab.jobs.clusters import POLLUX, JobsCluster, parse_cluster
from lab.suites.suites import Each
from services.cli.inputs import read_trace
from services.cli.terminal.output_file import write_whole
from shared.errors import ConclaveError, ConfigError

if TYPE_CHECKING:
    from lab.jobs.playing import PlayedRun
    from lab.worlds.training.simulation import SimulationSettings

T = TypeVar("T")
U = TypeVar("U")
SUITE = "jobs"
SUITE_A = "jobs-twin-a"
OF_A = ("--lag", "--speed-error", "--processes")
"""Flags of this suite that the other one takes too."""
FILE = click.Path(path_type=Path)
BATCHES = ("fixed", "adaptive")
MEASURED_TYPE = "t4"
"""The GPU of Pollux' tables."""
NOTES = (
    "hours from submission to end; a job that did not end counts as long as the run lasted",
    "schedules were checked: nobody ends twice, no node has more GPUs in use than it has",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFlags:
    """The flags of this suite, as given."""

    workload: Path | None
    cluster: Path | None
    schedule: Path | None
    tables: Path | None
    workloads: str | None
    loads: str | None
    batch: str | None
    interference: float | None
    lag: int | None
    speed_error: float | None
    events: bool
    second_set: bool
    learned_speeds: bool

    def given(self) -> dict[str, object]:
        """What was given, by flag; None: not."""
        fields = {f"--{name.replace('_', '-')}": getattr(self, name) for name in self.__dataclass_fields__}
        return {flag: None if value is False else value for flag, value in fields.items()}

    def settings(self) -> SimulationSettings:
        """How the cluster behaves, and what a policy sees of it."""
        from lab.worlds.training.simulation import SimulationSettings

        return SimulationSettings(
            interference=self.interference or 0.0,
            lag_rounds=self.lag or 0,
            speed_error=self.speed_error or 0.0,
            events=self.events,
        )


def jobs_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags; the command gets them by name."""
    options = (
        click.option(
            "--workload",
            type=FILE,
            help="Of --suite jobs: play this workload alone, by --policy; .csv[.gz], or twin-a.",
        ),
        click.option("--cluster", type=FILE, help="The nodes of --workload, YAML; default: 16 nodes of 4 GPUs."),
        click.option("--schedule", type=FILE, help="Write who had which GPUs when in --workload, as CSV."),
        click.option(
            "--tables",
            type=FILE,
            help="Folder of measured tables, or example; default: data/dljobs in $CONCLAVE_SHARED.",
        ),
        click.option("--workloads", help="Of --suite jobs: only these of the workloads 1-8, as in 1-3,6."),
        click.option("--loads", help="Of --suite jobs: only these of 0.5, 1.0, 1.5 and 2.0, comma-separated."),
        click.option(
            "--batch", type=click.Choice(BATCHES), help="Who chooses batches; default: as the policy is made."
        ),
        click.option("--interference", type=click.FloatRange(0.0, 0.9), help="Slowing of jobs that share their nodes."),
        click.option("--lag", type=click.IntRange(0, 1000), help="So many rounds old is what jobs report."),
        click.option(
            "--speed-error", type=click.FloatRange(0.0, 0.9), help="How far speeds that a policy sees are off."
        ),
        click.option("--events", is_flag=True, help="Ask the policy at each arrival and end too, not at rounds alone."),
        click.option(
            "--second-set", is_flag=True, help="Of --suite jobs: NCF replaced by CIFAR10, on 64 GPUs of three types."
        ),
        click.option("--learned-speeds", is_flag=True, help="Policies know no tables, only what jobs report."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def silent_libraries() -> Iterator[None]:
    """Nothing of the block's, nor of processes begun in it, reaches standard output.

    HiGHS prints lines of its own there now and then, whatever it is told; what we print comes after.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def parse_names(flag: str, text: str | None) -> tuple[str, ...]:
    """Names with commas between. ``ConfigError``: none."""
    names = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    if text is not None and not names:
        raise ConfigError(f"{flag}: {text!r} names nothing; give names with commas between, or leave it out")
    return names


def evaluate_workload(
    flags: JobFlags,
    *,
    policy: str | None,
    seeds: Sequence[int],
    tables: Mapping[str, str],
    command: str,
    each: Each,
    progress: Progress,
) -> SuiteResult:
    """Play ``--workload`` by ``policy`` once per seed. ``ConfigError`` naming the flag, file or job it cannot use."""
    from lab.jobs.playing import RunOrder, WorkloadSource, play
    from lab.jobs.twin_a import NAME as TWIN_A
    from lab.jobs.twin_a import cluster as twin_a_cluster
    from shared.jobs.registry import POLICIES

    if flags.workload is None or policy is None:
        raise ConfigError("--policy: --workload needs a policy; name one")
    if flags.second_set:
        raise ConfigError("--second-set: --workload says which jobs come; leave one of them out")
    POLICIES.entry(policy)
    if flags.workload == Path(TWIN_A):
        played = list(_played_on_twin_a(flags, policy, seeds, each, progress))
        gpus = {node.name: node.gpus for node in twin_a_cluster().nodes}
        return _told(flags, policy, seeds, played, gpus, command)
    source = WorkloadSource.of(read_trace("--workload", flags.workload, "give a workload"), str(flags.workload), tables)
    keys = list(source.read())
    if len(keys) > 1:
        raise ConfigError(f"--workload: {flags.workload} holds {len(keys)} workloads; give the rows of one")
    cluster = _cluster(flags.cluster) if flags.cluster is not None else POLLUX
    order = RunOrder(
        source=source,
        workload=keys[0],
        cluster=cluster,
        policy=policy,
        seed=0,
        adaptive=None if flags.batch is None else flags.batch == "adaptive",
        settings=replace(flags.settings(), gpu_types=_speeds(cluster, tables)),
        learned_speeds=flags.learned_speeds,
        clock=time.thread_time,
    )
    orders = [replace(order, seed=seed) for seed in seeds]
    played = []
    for one in each(play, orders):
        played.append(one)
        progress(len(played), len(orders), f"{policy}, seed {seeds[len(played) - 1]}")
    return _told(flags, policy, seeds, played, {node.name: node.gpus for node in order.cluster.nodes}, command)


def _played_on_twin_a(
    flags: JobFlags, policy: str, seeds: Sequence[int], each: Each, progress: Progress
) -> Iterator[PlayedRun]:
    """Each seed is a workload of Twin A. ``ConfigError``: a flag that it does not take."""
    from lab.jobs.twin_a import TwinOrder, play_twin

    strange = {"--cluster": flags.cluster, "--batch": flags.batch, "--interference": flags.interference}
    given = [flag for flag, value in strange.items() if value is not None]
    if given or flags.events:
        raise ConfigError(f"{given[0] if given else '--events'}: Twin A says that itself; leave it out")
    orders = [
        TwinOrder(
            policy=policy,
            seed=seed,
            speed_error=flags.speed_error or 0.0,
            lag_rounds=flags.lag or 0,
            clock=time.thread_time,
        )
        for seed in seeds
    ]
    for done, one in enumerate(each(play_twin, orders), 1):
        progress(done, len(orders), f"{policy}, seed {seeds[done - 1]}")
        yield one


def _told(
    flags: JobFlags,
    policy: str,
    seeds: Sequence[int],
    played: Sequence[PlayedRun],
    gpus: Mapping[str, int],
    command: str,
) -> SuiteResult:
    """The figures of these runs; the schedule is checked, and written where it is wanted."""
    from lab.jobs.playing import quantiles

    assert flags.workload is not None
    lines = _schedule(seeds, [one.changes for one in played], gpus)
    if flags.schedule is not None:
        write_whole("--schedule", flags.schedule, ("\n".join(lines) + "\n").encode())
    figures = [one.figures() for one in played]
    notes = [
        f"seed {seed}: {len(one.refused)} decisions refused, first at {one.refused[0]}"
        for seed, one in zip(seeds, played, strict=True)
        if one.refused
    ]
    notes += [
        f"seed {seed}: {len(one.unfinished)} jobs had not ended when the run was given up, first {one.unfinished[0]}"
        for seed, one in zip(seeds, played, strict=True)
        if one.unfinished
    ]
    return SuiteResult(
        suite=f"jobs {flags.workload.name}",
        command=command,
        seeds=tuple(seeds),
        policies={policy: {name: ResultMetric.of([one[name] for one in figures]) for name in figures[0]}},
        notes=(*NOTES, *notes),
        distributions={"completion, hours": {policy: quantiles(played)}},
    )


def _schedule(seeds: Sequence[int], changes: Sequence[Sequence[Any]], gpus: Mapping[str, int]) -> list[str]:
    """The lines of all seeds, checked. ``ConclaveError``: a fault of the simulator's own."""
    from lab.jobs.check import check_rows
    from lab.jobs.schedules import HEADER, SERVERS, schedule_rows

    served = any(change.servers for some in changes for change in some)
    lines = [f"{HEADER},{SERVERS}" if served else HEADER]
    for seed, some in zip(seeds, changes, strict=True):
        lines += schedule_rows(seed, some, servers=served)
    found = check_rows(csv.DictReader(io.StringIO("\n".join(lines))), gpus)
    faults = [fault for checked in found.values() for fault in checked.faults if not fault.endswith("never ends")]
    if faults:
        raise ConclaveError(f"schedule: {faults[0]} (and {len(faults) - 1} more): a fault of the simulation; report it")
    return lines


def _speeds(cluster: JobsCluster, tables: Mapping[str, str]) -> dict[str, float]:
    """By GPU type: what the cluster's file says, else what Gavel measured. ``ConfigError``: one is known by neither."""
    from lab.jobs.gavel import ISOLATED_FILE, Isolated

    types = frozenset(node.gpu_type for node in cluster.nodes if node.gpu_type) - cluster.gpu_types.keys()
    measured = Isolated.parse(tables[ISOLATED_FILE]) if types and ISOLATED_FILE in tables else Isolated({})
    unknown = sorted(types - measured.types - {MEASURED_TYPE})
    if unknown:
        raise ConfigError(f"--cluster: gpu_type {unknown[0]!r} has no speed; give its speed beside a {MEASURED_TYPE}")
    return {**measured.factors(types), **cluster.gpu_types}


def _cluster(file: Path) -> JobsCluster:
    import yaml

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--cluster: {file}: {error.strerror}; give a YAML file of nodes") from None
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigError(f"--cluster: {file}: {str(error).splitlines()[0]}; give a YAML file of nodes") from None
    return parse_cluster(document, f"--cluster: {file}")
