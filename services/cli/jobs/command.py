"""``conclave jobs``: list TrainingJobs, show one, say why it waits, scale it, pause and resume it.

All of it is in the objects, so the API server is asked, with the rights of the kubeconfig's user; the jobs service sees
a change by its watch. What is wrong with a wish is said here before it is made, by the same rules as the service's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.cli.jobs.policy import policy
from services.cli.jobs.text import JOBS, job_lines, listed, why_lines
from services.cli.listing.options import options_alone
from services.cli.listing.wanted import DOCUMENTS, FoundItems, ListQuery, document_text
from services.cli.server.errors import ServerFailed
from services.cli.server.options import cluster_context
from services.cli.terminal.durations import SECONDS
from services.cli.terminal.tables import printable
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError, KubeError, KubeRejected

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient
    from shared.kube.training.training_jobs import TrainingJobObject
    from shared.model.controllers.training_job import TrainingJob

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
DEFAULT_NAMESPACE = "default"
CONFLICTS = 4
"""So many changes by others are followed before one is told."""

_KUBECONFIG = click.option("--kubeconfig", type=FILE, help="Which cluster.  [default: as kubectl's]")
_CONTEXT = click.option(
    "--context",
    default="",
    metavar="NAME",
    help="Of the kubeconfig, or one of 'conclave context list'.  [default: its current one]",
)
_NAMESPACE = click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="The job's.")
_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(("table", *DOCUMENTS)), default="table", show_default=True,
    help="How to print it.",
)  # fmt: skip


def _cluster(command: F) -> F:
    return _KUBECONFIG(_CONTEXT(command))


@click.group()
def jobs() -> None:
    """List TrainingJobs, say why one waits, scale, pause and resume them; roll a policy for them out (docs/jobs.md)."""


@jobs.command("list")
@options_alone(JOBS)
@_cluster
def list_jobs(wanted: ListQuery, kubeconfig: Path | None, context: str) -> None:
    """List TrainingJobs of all namespaces, or of one by -n."""

    async def look(client: KubeClient) -> list[dict[str, Any]]:
        from shared.kube.training.training_jobs import TRAINING_JOBS

        return [listed(item) for item in (await client.list(TRAINING_JOBS)).items]

    click.echo("\n".join(wanted.text(FoundItems(_asked(kubeconfig, context, look)))))


@jobs.command()
@click.argument("name")
@_NAMESPACE
@_OUTPUT
@_cluster
def show(name: str, namespace: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show one TrainingJob: its workers, what it reports, what its restarts cost."""
    item = _asked(kubeconfig, context, lambda client: _one(client, namespace, name))
    _tell(item, output, job_lines)


@jobs.command()
@click.argument("name")
@_NAMESPACE
@_OUTPUT
@_cluster
def why(name: str, namespace: str, output: str, kubeconfig: Path | None, context: str) -> None:
    """Say why the TrainingJob is where it is: why it waits, restarts or failed, and what to do."""
    item = _asked(kubeconfig, context, lambda client: _one(client, namespace, name))
    _tell(item, output, why_lines)


@jobs.command()
@click.argument("name")
@click.argument("workers", type=click.IntRange(1, 1024), required=False)
@click.option("--minimum", type=click.IntRange(1, 1024), help="It never runs with fewer.")
@click.option("--maximum", type=click.IntRange(1, 1024), help="It never gets more.")
@_NAMESPACE
@_cluster
def scale(
    name: str, workers: int | None, minimum: int | None, maximum: int | None, namespace: str, kubeconfig: Path | None,
    context: str,
) -> None:  # fmt: skip
    """Ask for WORKERS of a TrainingJob, or change its bounds; a change restarts it from its checkpoint.

    Fewer than it has: its maximum is lowered to them, unless --maximum says otherwise."""
    if workers is None and minimum is None and maximum is None:
        raise ConfigError("WORKERS: how many? give a number, or --minimum and --maximum")

    async def change(client: KubeClient) -> str:
        job = _read(await _one(client, namespace, name))
        least = minimum or job.minimum
        most = maximum or job.maximum
        wanted = workers or min(max(job.requested, least), most)
        if least > most:
            raise ConfigError(f"--minimum: {least} is more than the maximum, {most}; raise --maximum too")
        if not least <= wanted <= most:
            raise ConfigError(f"WORKERS: {wanted} is not from {least} to {most}; give --minimum or --maximum too")
        told = ""
        if workers is not None and maximum is None and wanted < min(job.status.target, most):
            # it would keep what it has above what is asked for, as long as nobody needs it
            told = f"; its maximum was {most}, --maximum {most} lets it grow there again"
            most = wanted
        await _patch(client, job, {"workers": {"minimum": least, "maximum": most, "requested": wanted}})
        asked = f"trainingjob.conclave.io/{name} scaled: {wanted} workers asked for, from {least} to {most}{told}"
        return asked + _held(job, wanted)

    click.echo(_asked(kubeconfig, context, lambda client: _followed(client, change)))


def _held(job: TrainingJob, wanted: int) -> str:
    """What stands against it, as the jobs service last said."""
    if job.ended:
        return f"\n  it has ended ({job.status.phase.value}): nothing follows from it"
    if job.paused:
        return f"\n  it is paused: conclave jobs resume {job.name} -n {job.namespace}"
    held = next((one for one in job.status.conditions if one.type == "WithinQuota" and one.status == "False"), None)
    return f"\n  {printable(held.message)}" if held is not None and wanted > job.status.target else ""


@jobs.command()
@click.argument("name")
@_NAMESPACE
@_cluster
def pause(name: str, namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Stop a TrainingJob at its last checkpoint; it keeps no pods and holds nothing."""
    _set_paused(kubeconfig, context, namespace, name, paused=True)


@jobs.command()
@click.argument("name")
@_NAMESPACE
@_cluster
def resume(name: str, namespace: str, kubeconfig: Path | None, context: str) -> None:
    """Let a paused TrainingJob go on from its checkpoint."""
    _set_paused(kubeconfig, context, namespace, name, paused=False)


@jobs.command("record")
@click.argument("file", type=FILE)
@click.option("--duration", type=SECONDS, default="0", show_default=True, help="So long, as in 90s or 8h; 0: until ^C.")
@_cluster
def record_decisions(file: Path, duration: float, kubeconfig: Path | None, context: str) -> None:
    """Append what the cluster decides about its TrainingJobs to FILE, for train jobs-dl2 --warm-up FILE."""
    from services.cli.jobs.record import record

    async def watch(client: KubeClient) -> int:
        from shared.kube.training.training_jobs import TRAINING_JOBS

        await client.check_reads(TRAINING_JOBS)
        return await record(client, file, duration, time.time)

    try:
        click.echo(f"{file}: {_asked(kubeconfig, context, watch)} decisions appended")
    except OSError as error:
        raise ConfigError(f"FILE: {error}; give one that can be written") from None


jobs.add_command(policy)


# --- the API server -------------------------------------------------------------------------------------------------


async def _followed(client: KubeClient, change: Callable[[KubeClient], Awaitable[str]]) -> str:
    """Read, judge and write anew where the job was written meanwhile, as its status often is."""
    for _ in range(CONFLICTS):
        try:
            return await change(client)
        except KubeRejected as error:
            if error.status != 409:
                raise
    return await change(client)


def _set_paused(kubeconfig: Path | None, context: str, namespace: str, name: str, *, paused: bool) -> None:
    async def change(client: KubeClient) -> str:
        return await _pause(client, namespace, name, paused=paused)

    click.echo(_asked(kubeconfig, context, lambda client: _followed(client, change)))


async def _pause(client: KubeClient, namespace: str, name: str, *, paused: bool) -> str:
    job = _read(await _one(client, namespace, name))
    if job.ended:
        raise ConfigError(f"NAME: {job.key} has ended ({job.status.phase.value}); make a new one")
    word = "paused" if paused else "resumed"
    if job.paused is paused:
        return f"trainingjob.conclave.io/{name} was {word} before"
    await _patch(client, job, {"paused": paused})
    lost = "" if job.checkpoint or not paused else "; spec.checkpoint is not given: it may begin from the start"
    return f"trainingjob.conclave.io/{name} {word}{lost}"


async def _one(client: KubeClient, namespace: str, name: str) -> TrainingJobObject:
    from shared.kube.training.training_jobs import TRAINING_JOBS

    found = await client.get(TRAINING_JOBS, namespace=namespace, name=name)
    if found is None:
        raise ConfigError(f"NAME: there is no TrainingJob {namespace}/{name}; 'conclave jobs list' names them")
    return found


def _read(item: TrainingJobObject) -> TrainingJob:
    from shared.kube.training.training_jobs import job_from_api

    return job_from_api(item)


async def _patch(client: KubeClient, job: TrainingJob, spec: dict[str, Any]) -> None:
    """Of the object as it was read: at another resourceVersion it is refused (409)."""
    from shared.kube.training.training_jobs import TRAINING_JOBS

    patch = {"metadata": {"uid": job.uid, "resourceVersion": job.resource_version}, "spec": spec}
    await client.patch(TRAINING_JOBS, namespace=job.namespace, name=job.name, patch=patch, strategy="merge")


@asynccontextmanager
async def _client(kubeconfig: Path | None, context: str) -> AsyncIterator[KubeClient]:
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig

    client = KubeClient(await KubeConfig.load(kubeconfig, context=cluster_context(context) or None))
    try:
        yield client
    finally:
        await client.close()


def _asked(kubeconfig: Path | None, context: str, ask: Callable[[KubeClient], Awaitable[T]]) -> T:
    """``ConfigError``: refused, or there is nothing like it; ``ServerFailed``: nobody answers."""

    async def connected() -> T:
        async with _client(kubeconfig, context) as client:
            try:
                return await ask(client)
            except KubeRejected as error:
                if error.status == 404:
                    raise ConfigError(
                        "the cluster serves no TrainingJobs: apply k8s/components/jobs (docs/jobs.md)"
                    ) from None
                raise ConfigError(f"the API server refuses: {error}") from None
            except KubeError as error:
                raise ServerFailed(f"the API server gave no answer: {error}") from None

    return asyncio.run(until_signal(connected()))


def _tell(item: TrainingJobObject, output: str, lines: Callable[[TrainingJobObject], Sequence[str]]) -> None:
    click.echo(document_text(JOBS.object(listed(item)), output) if output in DOCUMENTS else "\n".join(lines(item)))
