"""``conclave evaluate``: policies on fixed seeds, as figures in JSON and a report in HTML.

Two kinds: a suite with its goals, or any file of openb's format (of training jobs: ``evaluate_jobs``). Nothing is
written before all of it is done, so that a file that is there is whole. Exit codes: 0 the evaluation ran, whether its
goals were met or not; 1 with ``--require-goals`` when one was not; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lab.cli.train.evaluate_jobs import (
    OF_A,
    JobFlags,
    evaluate_workload,
    jobs_options,
    parse_names,
    silent_libraries,
)
from lab.cli.train.evaluate_jobs import SUITE as JOBS
from lab.cli.train.evaluate_jobs import SUITE_A as JOBS_A
from lab.cli.train.evaluate_reward import own_reward
from lab.cli.train.evaluate_services import CALIBRATED, TWIN_SUITE, GraphFlags, evaluate_services, graph_options
from lab.cli.train.evaluate_services import SUITE as SERVICES
from lab.evaluation.report.curves import Curves, parse_curves
from lab.evaluation.results import SuiteResult
from lab.evaluation.seeds import parse_seeds
from lab.suites.suites import SUITES, SuiteInput, find_suite
from lab.workers import Workers
from services.cli.inputs import is_trace, read_trace, read_weights
from services.cli.terminal.output_file import check_distinct, check_writable, write_whole
from services.cli.terminal.progress import RunProgress
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.evaluation.behaviour import Behaviour

EXTRA = ("jinja2", "matplotlib", "scipy")
FILE = click.Path(path_type=Path)
MOST_LINES = 80
"""Of figures on a terminal."""
BOUNDED = ("openb", JOBS_A)
"""Suites that know what no scheduler can exceed."""
OF_WORKLOAD = ("--cluster", "--schedule", "--batch")
"""Flags that only a workload of the user's own uses."""
BUILT_IN = Path("built-in")
"""For --trace-dir: what the tidal suite makes up itself."""
DATA_VARIABLE, DATA_DEFAULT = "CONCLAVE_SHARED", "../shared"
"""Where the traces lie when no flag says so: they are not part of this repository."""


@click.command()
@click.option("--suite", type=click.Choice(sorted(SUITES)), help="Which experiment, with its goals.")
@click.option("--policies", help="Only these of the suite's policies, comma-separated.")
@click.option("--agents", help="Not one decider but a mesh of so many agents, or per-node, plays the suite.")
@click.option(
    "--trace-dir",
    type=FILE,
    help="Folder with the suite's traces; default: data in $CONCLAVE_SHARED; tidal: or built-in.",
)
@click.option(
    "--trace",
    type=FILE,
    help="Instead of a suite: a pod list in openb's format; of the suite autoscaling: rates.",
)
@click.option("--nodes", type=FILE, help="The node list of --trace.")
@click.option(
    "--policy", help="Who places the pods of --trace, divides the GPUs of --workload, or scales in --suite autoscaling."
)
@click.option("--weights", type=FILE, multiple=True, help="Not the shipped weights of a policy but these; repeatable.")
@click.option(
    "--no-rehearsal", is_flag=True, help="frag by its learned value alone, on traces too that FGD places better."
)
@click.option("--bound", is_flag=True, help="What no scheduler can exceed, beside openb's or jobs-twin-a's figures.")
@click.option("--seeds", default="42-51", show_default=True, help="Numbers and ranges, as in 42-51,60.")
@click.option("--json", "json_file", type=FILE, help="Write the figures here.")
@click.option("--html", "html_file", type=FILE, help="Write the report here: one file that needs no other.")
@click.option("--placements", type=FILE, help="Write where each pod of --trace went, as CSV.")
@click.option("--curves", type=FILE, multiple=True, help="Learning curves of a training run, for --html; repeatable.")
@click.option("--behaviour", help="Say what these policies do beside kube-default, comma-separated; needs no suite.")
@click.option("--reward", help="Of --suite deepsets: measure this expression, or plug-in, too.")
@click.option("--signal", "signals", multiple=True, help="NAME=QUERY: a value that --reward reads; repeatable.")
@click.option("--prometheus", default="", help="Who is asked for signals.")
@click.option("--prometheus-token-file", "token_file", type=FILE, help="A bearer token for it.")
@jobs_options
@graph_options
@click.option("--processes", type=click.IntRange(1, 64), default=1, help="Runs of a suite at a time; default 1.")
@click.option("--ray", default="", help="Play the runs on the Ray cluster at this address, or local; extra ray.")
@click.option("--require-goals", is_flag=True, help="Exit with 1 when a goal is not met.")
@click.option("--quiet", is_flag=True, help="No progress, no table.")
def evaluate(
    suite: str | None,
    policies: str | None,
    agents: str | None,
    trace_dir: Path | None,
    trace: Path | None,
    nodes: Path | None,
    policy: str | None,
    weights: tuple[Path, ...],
    no_rehearsal: bool,
    bound: bool,
    seeds: str,
    json_file: Path | None,
    html_file: Path | None,
    placements: Path | None,
    curves: tuple[Path, ...],
    behaviour: str | None,
    reward: str | None,
    signals: tuple[str, ...],
    prometheus: str,
    token_file: Path | None,
    processes: int,
    ray: str,
    require_goals: bool,
    quiet: bool,
    **of_suites: Any,
) -> int:
    """Measure policies on the same seeds: mean and standard deviation, paired differences, goals met or not.

    Either --suite, or --trace with --nodes and --policy for any file of openb's format; --behaviour beside or alone.
    """
    _check_extra()
    from lab.evaluation.behaviour import watch
    from lab.mesh.suites import run_suite as mesh_suite
    from lab.mesh.world import Agents
    from lab.worlds.placement.measured_world import named_policy
    from shared.policy.usage.utilisation import UtilisationStore

    chosen = parse_seeds(seeds)
    mesh = None if agents is None else Agents.parse(agents)
    wanted, watched = _names("--policies", policies), _names("--behaviour", behaviour)
    for name in watched:
        named_policy(name, UtilisationStore())
    graphs = suite in (SERVICES, TWIN_SUITE, CALIBRATED)
    graph_flags = GraphFlags.taken_from(of_suites)
    placed = trace is not None and not graphs
    if (suite is not None) + placed > 1 or (suite is None and trace is None and not watched):
        raise ConfigError("evaluate: give --suite or --trace, one of them, or --behaviour")
    of_suite = {"--policies": policies, "--trace-dir": trace_dir, "--agents": agents}
    _check_fitting(suite is not None, given=of_suite, belongs_to="--suite")
    if mesh is not None:
        _check_mesh(suite or "", given={"--bound": bound, "--reward": reward, "--no-rehearsal": no_rehearsal})
    _check_fitting(graphs, given=graph_flags.given(), belongs_to=f"--suite {SERVICES}")
    jobs = JobFlags(**of_suites)
    of_trace = {"--nodes": nodes, "--placements": placements}
    _check_fitting(placed, given=of_trace, belongs_to="--trace")
    if jobs.workload is None and not graphs:
        _check_fitting(trace is not None, given={"--policy": policy}, belongs_to="--trace")
    taken = OF_A if suite == JOBS_A else ()
    of_jobs = {flag: value for flag, value in jobs.given().items() if flag not in taken}
    _check_fitting(suite == JOBS, given=of_jobs, belongs_to="--suite jobs")
    of_workload = {flag: value for flag, value in jobs.given().items() if flag in OF_WORKLOAD}
    _check_fitting(jobs.workload is not None, given=of_workload, belongs_to="--workload")
    if weights and watched:
        raise ConfigError("--weights: --behaviour watches what is shipped; leave one of them out")
    if no_rehearsal and suite != "openb" and (trace is None or policy != "frag"):
        raise ConfigError("--no-rehearsal: only frag rehearses, in --suite openb and on --trace; leave it out")
    _check_fitting(suite in BOUNDED, given={"--bound": bound or None}, belongs_to=f"--suite {' or '.join(BOUNDED)}")
    fanned_out = {"--processes": processes if processes > 1 else None, "--ray": ray or None}
    _check_fitting(suite is not None, given=fanned_out, belongs_to="--suite")
    _check_fitting(suite == "deepsets", given={"--reward": reward}, belongs_to="--suite deepsets")
    _check_fitting(reward is not None, given={"--signal": signals or None}, belongs_to="--reward")
    learned = read_weights(weights)
    outputs = {"--json": json_file, "--html": html_file, "--placements": placements, "--schedule": jobs.schedule}
    outputs["--steps"] = graph_flags.steps
    inputs = {"--trace": trace, "--nodes": nodes, "--workload": jobs.workload, "--cluster": jobs.cluster}
    inputs["--topology"] = graph_flags.topology
    check_distinct(outputs, inputs)
    for flag, file in outputs.items():
        check_writable(flag, file)
    learnt = [_curves(file) for file in curves]
    silence = silent_libraries() if suite == JOBS or bound else nullcontext()
    with (
        own_reward(reward, signals, prometheus, token_file) as own,
        RunProgress(quiet=quiet) as progress,
        silence,
        Workers(processes, ray=ray) as workers,
    ):
        if jobs.workload is not None:
            tables = {} if jobs.workload == Path("twin-a") else _trace_files(JOBS, jobs.tables)
            result = evaluate_workload(
                jobs,
                policy=policy,
                seeds=chosen,
                tables=tables,
                command=_command(),
                each=workers.map,
                progress=progress,
            )
        elif graphs:
            named = (*wanted, *_names("--policy", policy))
            given = SuiteInput(chosen, _command(), named, clock=time.thread_time, weights=learned, each=workers.map)
            result = evaluate_services(suite or SERVICES, graph_flags, trace, given, progress)
        elif suite is not None:
            if suite == JOBS and trace_dir is not None:
                raise ConfigError("--trace-dir: the jobs suite reads its tables by --tables; give that")
            files = _trace_files(suite, jobs.tables if suite == JOBS else trace_dir)
            given = SuiteInput(
                chosen if suite != JOBS or seeds_given() else chosen[:1],
                _command(),
                wanted,
                files,
                clock=time.thread_time,
                weights=learned,
                rehearse=not no_rehearsal,
                bound=bound,
                each=workers.map,
                loads=parse_names("--loads", jobs.loads),
                workloads=parse_seeds(jobs.workloads, flag="--workloads") if jobs.workloads is not None else (),
                own=own,
                settings=jobs.settings() if suite in (JOBS, JOBS_A) else None,
                second_set=jobs.second_set,
                learned_speeds=jobs.learned_speeds,
            )
            result = find_suite(suite)(given, progress) if mesh is None else mesh_suite(suite, given, mesh, progress)
        elif trace is not None:
            if nodes is None or policy is None:
                missing = "--nodes" if nodes is None else "--policy"
                raise ConfigError(f"{missing}: --trace needs a node list and a policy; give both")
            from lab.cli.train.evaluate_trace import evaluate_files

            result = evaluate_files(
                trace,
                nodes,
                policy=policy,
                seeds=chosen,
                command=_command(),
                placements=placements,
                progress=progress,
                learned=learned,
                rehearses=not no_rehearsal,
            )
        else:
            result = SuiteResult("behaviour", _command(), chosen, {})
        behaviours = [watch(name, chosen, progress=progress) for name in watched]
    if json_file is not None:
        document = result.to_json()
        if behaviours:
            document["behaviours"] = [one.to_json() for one in behaviours]
        write_whole("--json", json_file, f"{json.dumps(document, indent=2, allow_nan=False)}\n".encode())
    if html_file is not None:
        from lab.evaluation.report.html import render

        write_whole("--html", html_file, render(result, curves=learnt, behaviours=behaviours).encode())
    if not quiet:
        for line in [*lines_of(result), *(line for one in behaviours for line in behaviour_lines(one))]:
            click.echo(line)
    return 1 if require_goals and result.unmet else 0


def lines_of(result: SuiteResult) -> list[str]:
    """The figures for a terminal: one line per policy and metric, then the differences, then the goals."""
    first = min(result.seeds), max(result.seeds)
    lines = [f"{result.suite}: {len(result.seeds)} seeds from {first[0]} to {first[1]}"]
    width = max((len(name) for metrics in result.policies.values() for name in metrics), default=0)
    name_width = max((len(name) for name in result.policies), default=0)
    figures = [
        f"  {policy:<{name_width}}  {name:<{width}}  {metric.mean:12.4f} ± {metric.sd:.4f}"
        for policy, metrics in result.policies.items()
        for name, metric in metrics.items()
    ]
    lines += figures if len(figures) <= MOST_LINES else [f"  {len(figures)} figures; --json and --html have them"]
    lines += [
        f"  {paired.metric}: {paired.a} less {paired.b} is {paired.mean_difference:+.4f} ± {paired.sd:.4f}"
        f" (p = {paired.p:.2g})"
        for paired in result.paired
    ]
    lines += [
        f"  {'met    ' if goal.met else 'NOT met'} {goal.goal}: {goal.value:.4f}, wanted {goal.target}"
        for goal in result.goals
    ]
    return lines + [f"  note: {note}" for note in result.notes]


def behaviour_lines(found: Behaviour) -> list[str]:
    """Agreement and costs for a terminal; the groups of decisions are for the report."""
    agreement = f"agrees with {found.baseline} in {found.agreement:.1%} of {found.decisions} decisions"
    regret = f"its choices are {found.regret:.2f} points below {found.baseline}'s best on average"
    costs = [f"  {name}: {own:.4f}, {found.baseline} {other:.4f}" for name, (own, other) in found.costs.items()]
    return [f"{found.policy}: {agreement}; {regret}", *costs]


def _check_extra() -> None:
    """Tests, groups and reports need what only the extra ``evaluate`` installs; say so before anything is played."""
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"evaluate: {' and '.join(missing)} missing; install the extra: pip install 'conclave-scheduler[evaluate]'"
        )


def _check_fitting(here: bool, *, given: Mapping[str, object], belongs_to: str) -> None:
    for flag, value in given.items():
        if value is not None and not here:
            raise ConfigError(f"{flag}: only {belongs_to} uses it; add {belongs_to} or leave it out")


def _check_mesh(suite: str, given: Mapping[str, object]) -> None:
    from lab.mesh.suites import SUITES as PLAYED

    if suite not in PLAYED:
        raise ConfigError(f"--agents: a mesh plays {', '.join(sorted(PLAYED))}, not {suite}; leave it out")
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag}: not of a mesh; leave it out or --agents")


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    if text is not None and not names:
        raise ConfigError(f"{flag}: {text!r} names no policy; give names with commas between, or leave it out")
    return names


def seeds_given() -> bool:
    """Whether somebody chose seeds: the jobs suite plays by one otherwise, since its runs are long."""
    source = click.get_current_context().get_parameter_source("seeds")
    return source is not ParameterSource.DEFAULT


def _command() -> str:
    return shlex.join(["conclave", *sys.argv[1:]])


def _trace_files(suite: str, folder: Path | None) -> dict[str, str]:
    """Text of every CSV in the trace folder, packed or not, for a suite that needs it."""
    data, flag = SUITES[suite].data, "--tables" if suite == JOBS else "--trace-dir"
    if suite == JOBS and folder == Path("example"):
        from lab.jobs.example import example_tables

        return example_tables()
    if suite == "tidal" and folder == BUILT_IN:
        return {}
    if not data:
        if folder is not None:
            raise ConfigError(f"--trace-dir: the suite {suite} reads no trace; leave it out")
        return {}
    if folder is None or len(data) > 1:
        above = folder or Path(os.environ.get(DATA_VARIABLE, DATA_DEFAULT)) / "data"
        folders = [above / one for one in data]
    else:
        folders = [folder]
    try:
        found = sorted(file for one in folders for file in one.iterdir() if is_trace(file))
    except OSError as error:
        raise ConfigError(f"{flag}: {error.filename}: {error.strerror}; give the folder with the trace") from None
    files = {file.name.removesuffix(".gz"): read_trace(flag, file, "give the folder with the trace") for file in found}
    if not files:
        raise ConfigError(f"{flag}: {folders[0]} holds no CSV file; give the folder with the trace")
    return files


def _curves(file: Path) -> Curves:
    try:
        return parse_curves(file.read_text(encoding="utf-8").splitlines(), str(file))
    except OSError as error:
        raise ConfigError(f"--curves: {file}: {error.strerror}; give the curves.jsonl of a training run") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--curves: {file}: not UTF-8 text; give the curves.jsonl of a training run") from None
