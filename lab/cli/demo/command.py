"""``conclave demo``: the whole mesh on this machine against the twin, with a workload, kills and a report; or, with
``--workload services``, policies for service graphs side by side (``services.py``).

Exit codes: 0 every schedulable pod was bound exactly once, no node was over its allocatable, tenants had the shares
that their weights say (of a thousand units or more) and every kill recovered; 1 one of these did not hold; 2 bad input.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.local.options import COUNT, state_dir, wants_learner
from services.cli.terminal.output_file import check_distinct, check_writable
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.cli.demo.result import DemoResult
    from lab.cli.demo.workload import DemoWorkload

DEFAULT_SPEED = 10.0
"""The thesis' five minutes of arrivals take half a minute, and its last pod ends after a good minute."""
DEFAULT_POLICY = "kube-default"
DEFAULT_AGENTS = {"uniform": 4, "random": 4, "gangs": 2, "tidal": 2, "openb": 2}
DEFAULT_POLICIES = {"latency": "el"}
PICTURE = "conclave-demo.png"


@click.command()
@click.option(
    "--workload",
    type=click.Choice(["uniform", "random", "latency", "gangs", "tidal", "openb", "services"]),
    default="uniform",
    show_default=True,
)
@click.option(
    "--scenario", help="With services: bottleneck, ddos, failures, pressure, mixed, attacker or calm.  [mixed]"
)
@click.option("--trace-dir", type=click.Path(path_type=Path), help="Folder with the openb trace.")
@click.option("--pod-list", help="Which pod list of --trace-dir; default: openb_pod_list_default.csv, or the only one.")
@click.option(
    "--nodes",
    type=click.IntRange(1, 100_000),
    help="Nodes; default 4, 8 with tidal, 16 with gangs, or all of the trace.",
)
@click.option("--gangs", type=click.IntRange(2, 10_000), help="Gangs; default 40. From 1,000 on shares count too.")
@click.option("--largest", type=click.IntRange(1, 64), help="Members of the largest gang, with gangs; default 64.")
@click.option(
    "--agents", type=COUNT, help="Agents; default 4, or 2 with gangs, tidal and openb; as many as nodes with latency."
)
@click.option("--coordinators", type=COUNT, default=2, show_default=True, help="Coordinators, of which one leads.")
@click.option("--binders", type=COUNT, default=2, show_default=True, help="Binders, of which one leads.")
@click.option("--policy", help="Which policy decides; default kube-default, el with latency, karma with services.")
@click.option(
    "--learner/--no-learner", default=None, help="Learn while running; default: with a learned --policy and torch."
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Seed of everything.")
@click.option("--speed", type=float, help="Virtual seconds per second; default 10, or 18 with services.")
@click.option(
    "--kill", "kills", multiple=True, help="leader|agent|binder|etcd@SECONDS after the first pod; repeatable."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here.")
@click.option("--audit", "audit_file", type=click.Path(path_type=Path), help="Keep the API server's audit file here.")
@click.option(
    "--picture",
    "--out",
    "picture",
    type=click.Path(path_type=Path),
    help="The picture's file; default beside --json, or here.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The API server's.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs, etcd's data and the kubeconfig here.")
@click.option("--quiet", is_flag=True, help="No live progress, no table.")
@click.pass_context
def demo(
    here: click.Context,
    /,
    workload: str,
    scenario: str | None,
    trace_dir: Path | None,
    pod_list: str | None,
    nodes: int | None,
    gangs: int | None,
    largest: int | None,
    agents: int | None,
    coordinators: int,
    binders: int,
    policy: str | None,
    learner: bool | None,
    seed: int,
    speed: float | None,
    kills: tuple[str, ...],
    json_file: Path | None,
    audit_file: Path | None,
    picture: Path | None,
    port: int,
    keep: Path | None,
    quiet: bool,
) -> int:
    """Start etcd, a simulated cluster and the whole mesh; schedule a workload; report.

    With --workload services: HPA, at its best settings, and a policy of ours size the same service graph side by side.

    Work goes on being submitted until the last kill has recovered. Exit code 0 only if every schedulable pod was bound
    exactly once, no node was ever over its allocatable, and every kill happened and was recovered from.
    """
    from lab.cli.demo.kills import schedule
    from lab.cli.demo.result import DemoSettings
    from lab.cli.demo.run import run_demo
    from lab.cli.demo.services import OURS, SCENARIO, ServicesDemo, check_used, services_demo
    from lab.cli.demo.services import SPEED as SERVICES_SPEED
    from lab.cli.demo.workload import load_workload
    from services.cli.local.mesh import MeshSettings
    from shared.policy.registry import make_policy
    from shared.runtime.observe.logging import configure
    from twin.model.clock import ScaledClock

    configure("cli", level="error")
    check_used(here)
    _check_extra()
    check_writable("--json", json_file)
    if picture is None:
        picture = json_file.with_suffix(".png") if json_file is not None else Path(PICTURE)
    speed = speed if speed is not None else SERVICES_SPEED if workload == "services" else DEFAULT_SPEED
    ScaledClock(0.0, speed)
    if workload == "services":
        return services_demo(ServicesDemo(scenario or SCENARIO, policy or OURS, seed, speed, json_file, picture, quiet))
    policy = policy or DEFAULT_POLICIES.get(workload, DEFAULT_POLICY)
    planned = schedule(kills)
    make_policy(policy)
    learns = wants_learner(policy, False if learner is None and workload in DEFAULT_POLICIES else learner)
    load = load_workload(
        workload, seed=seed, nodes=nodes, trace_dir=trace_dir, pod_list=pod_list, many=gangs, largest=largest
    )
    for flag, file in (("--audit", audit_file), ("--picture", picture)):
        check_writable(flag, file)
    check_distinct({"--json": json_file, "--audit": audit_file, "--picture": picture}, {})
    with state_dir("demo", keep) as folder:
        mesh = MeshSettings(
            etcd="",
            kubeconfig=folder.path / "kubeconfig",
            coordinators=coordinators,
            agents=_agents(load, agents),
            binders=binders,
            policy=policy,
            learner=learns,
            seed=seed,
            speed=speed,
            state_dir=folder.path,
        )
        audit = audit_file or folder.path / "audit.jsonl"
        settings = DemoSettings(load, mesh, tuple(planned), audit, port, quiet)
        result = asyncio.run(until_signal(run_demo(settings)))
        figures = {**result.figures, "picture": str(picture)}
        _report(figures, result, picture, json_file, quiet=quiet)
        if figures["ok"]:
            return 0
        folder.wanted = True
        click.echo(f"logs are in {folder.path}", err=True)
        return 1


def _agents(load: DemoWorkload, given: int | None) -> int:
    """How many. ``ConfigError``: each node has its own, and another number was given."""
    if not load.phases:
        return given or DEFAULT_AGENTS[load.name]
    if given not in (None, len(load.nodes)):
        raise ConfigError(f"--agents: {given}; with --workload latency each of the {len(load.nodes)} nodes has its own")
    return len(load.nodes)


def _report(figures: dict[str, Any], result: DemoResult, file: Path, json_file: Path | None, *, quiet: bool) -> None:
    from lab.cli.demo.report import print_report, write_png

    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if result.picture is not None:
        title = f"{figures['workload']}, policy {figures['policy']}, seed {figures['seed']}"
        write_png(result.picture, file, title=title, day=result.day)
    if not quiet:
        print_report(figures, result.picture, width=min(shutil.get_terminal_size((110, 24)).columns, 140))
        click.echo(f"picture: {file}")


def _check_extra() -> None:
    """The picture needs what only the extra ``demo`` installs; say so before the run."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("demo: matplotlib missing; install the extra: pip install 'conclave-scheduler[demo]'")
