"""``conclave explain``: why a pod goes where it goes, or nowhere.

``explain POD -n NAMESPACE`` (or ``NAMESPACE/POD``) asks the leading coordinator. Where there is no mesh to ask,
``--kubeconfig`` reads the cluster's API and answers by the same rules, and ``--batch`` answers questions about clusters
given as JSON. The rules live in ``shared.scheduling``; this file opens files and names what is wrong with them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.explain.workloads import pods_of, workload_kind
from services.cli.listing.wanted import DOCUMENTS
from services.cli.server.completion_names import complete_pods
from services.cli.server.errors import PodUnknown
from services.cli.server.options import (
    SERVER_NAMES,
    cluster_context,
    given,
    list_server_options,
    removed_options,
    with_server,
)
from services.cli.server.watching import tell
from services.cli.terminal.output_file import whole_file
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

STDIO = "-"
RELEASES = ("1.36", "1.38")
"""As ``Release`` has them, which is loaded when it is needed."""

FILE = click.Path(path_type=Path)
DEFAULT_NAMESPACE = "default"
POD_WORDS = ("pod", "pods", "po")
GROUP_WORDS = ("podgroup", "podgroups", "pg", "unit", "units")


@click.command()
@click.argument(
    "pod",
    required=False,
    metavar="[[NAMESPACE/]POD | podgroup/NAME | job/NAME | deploy/NAME]",
    shell_complete=complete_pods,
)
@list_server_options
@click.option("-n", "--namespace", default="", help="The pod's namespace.  [default: default]")
@click.option("--kubeconfig", type=FILE, help="Ask no mesh: read this cluster (--context: one of this file's).")
@click.option("--story", is_flag=True, help="Also what happened to the pod in this leader's term, line by line.")
@click.option(
    "-o", "--output", default="", help="table (default), json or yaml; with --batch the file to write, - for stdout."
)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Offline: one JSON object per line, id and input (nodes, pods, and pod, podGroups or pluginsPodGroups); "
    "- for stdin.",
)
@click.option(
    "--semantics",
    type=click.Choice(RELEASES),
    default=RELEASES[0],
    show_default=True,
    help="With --batch: by which kube-scheduler's rules; releases differ about empty label selectors and devices.",
)
@removed_options(
    "--url", "--etcd", "--etcd-prefix", "--etcd-ca", "--etcd-cert", "--etcd-key", "--tls-ca", "--tls-cert", "--tls-key",
    instead="a server is asked; give --server URL or --context NAME, or --kubeconfig FILE where there is no mesh",
)  # fmt: skip
@click.pass_context
def explain(
    here: click.Context,
    /,
    pod: str | None,
    namespace: str,
    kubeconfig: Path | None,
    story: bool,
    output: str,
    batch: Path | None,
    semantics: str,
    **server: Any,
) -> int:
    """Say which nodes take a pod, why the others do not, by which numbers, and what would have to change.

    With podgroup/NAME: which member of the group fails where, and what would have to change for its minimum. With
    job/NAME, deploy/NAME, sts/NAME, rs/NAME or ds/NAME: that one of its pods that has waited longest; of a Job that is
    a gang, the group.

    For a pending pod also what preemption would do. For a bound pod: the nodes that were considered, their scores and
    the policy version at the time. With --kubeconfig no mesh is asked: the cluster is read, and what a leader remembers
    is left out. With --batch: answer for each question which nodes take its pod, why the others do not, the scores, and
    what preemption does, as kube-scheduler of the release --semantics would; or, where it names no pod, which of its
    pending pods some scheduling cycles would bind, pod groups together. A mesh decides by the newest rules: no budget
    whose selector is empty is broken unawares.

    Exit code 0 when there is an answer, 1 when there is no such pod or a server does not answer, 2 when nobody could be
    asked.
    """
    if (pod is None) == (batch is None):
        raise ConfigError("give either NAMESPACE/POD, to ask the mesh, or --batch FILE, to answer offline")
    if batch is not None:
        _answer_all(batch, Path(output or STDIO), semantics)
        return 0
    if output not in ("", "table", "wide", *DOCUMENTS):
        raise ConfigError(f"-o: {output!r} is none of table, json and yaml")
    if story and kubeconfig is not None:
        raise ConfigError("--story: only a leader remembers it; leave --kubeconfig out, and name a server")
    from services.cli.explain.text import group_lines, lines_of, story_of

    kind, _, group = str(pod).partition("/")
    if kind in GROUP_WORDS and group and "/" not in group:
        if story:
            raise ConfigError(f"{pod}: a pod group has no story; leave --story out, or name a pod of it")
        namespace = namespace or DEFAULT_NAMESPACE
        if kubeconfig is None:
            found = _ask(server, namespace, group, kind="units")
        else:
            from services.cli.explain.offline_groups import explain_group

            there = asyncio.run(explain_group(kubeconfig, _cluster(here), namespace, group))
            if there is None:
                click.echo(f"conclave: there is no pod group {namespace}/{group}, and no pod names it", err=True)
                return 1
            found = there
        tell(output, found, list(group_lines(found)))
        return 0
    if (workload := workload_kind(kind)) and group and "/" not in group:
        namespace = namespace or DEFAULT_NAMESPACE
        if kubeconfig is None:
            count, answered = _ask_workload(server, workload, namespace, group)
        else:
            from services.cli.explain.offline import explain_workload
            from services.cli.explain.offline_groups import explain_job

            where = kubeconfig, _cluster(here)
            if workload == "job":
                count, answered = asyncio.run(explain_job(*where, namespace, group))
            else:
                count, answered = asyncio.run(explain_workload(*where, workload, namespace, group))
        return _tell_workload(f"{workload} {namespace}/{group}", namespace, count, answered, output, story=story)
    namespace, name = named_pod(str(pod), namespace)
    try:
        if kubeconfig is None:
            answer = _ask(server, namespace, name)
        else:
            from services.cli.explain.offline import explain_pod

            answer = asyncio.run(explain_pod(kubeconfig, _cluster(here), namespace, name))
    except PodUnknown as error:
        click.echo(f"conclave: {error}", err=True)
        return 1
    tell(output, answer, [*lines_of(answer), *(story_of(answer) if story else ())])
    return 0


def _ask_workload(server: dict[str, Any], kind: str, namespace: str, name: str) -> tuple[int, dict[str, Any] | None]:
    """The group of a Job that is a gang (and 0); of others how many pods wait, and what is said of the one that has
    waited longest."""

    async def look(client: AdminClient) -> tuple[int, dict[str, Any] | None]:
        if kind == "job" and any(
            unit.get("name") == name for unit in await client.items("/v1/units", namespace=namespace, source="job")
        ):
            return 0, await client.get(f"/v1/units/{quote(namespace, safe='')}/{quote(name, safe='')}/explain")
        waiting = pods_of(await client.items("/v1/queue", namespace=namespace), kind, name)
        if not waiting:
            return 0, None
        oldest = max(waiting, key=lambda pod: pod.get("waiting_s") or 0.0)["name"]
        return len(waiting), await client.get(f"/v1/pods/{quote(namespace, safe='')}/{quote(oldest, safe='')}/explain")

    return with_server(server, look)


def _tell_workload(
    title: str, namespace: str, count: int, found: dict[str, Any] | None, output: str, *, story: bool
) -> int:
    from services.cli.explain.text import group_lines, lines_of, story_of

    if found is None:
        click.echo(
            f"conclave: no pod of {title} waits: all are placed, or it has made none; "
            f"see 'kubectl get pods -n {namespace}'", err=True,
        )  # fmt: skip
        return 1
    if not count:
        tell(output, found, list(group_lines(found)))
        return 0
    many = "1 pod of it waits" if count == 1 else f"{count} pods of it wait"
    head = f"{title}: {many}; the one that has waited longest:"
    tell(output, found, [head, *lines_of(found), *(story_of(found) if story else ())])
    return 0


def named_pod(pod: str, namespace: str) -> tuple[str, str]:
    """(namespace, name) of ``POD -n NAMESPACE`` or ``NAMESPACE/POD``. ``ConfigError``: it is neither, or both.

    The pod may be written as kubectl writes it, ``pod/NAME``; without a namespace it is in ``default``.
    """
    before, slash, name = pod.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise ConfigError(f"{pod!r} is not NAMESPACE/POD, nor POD with -n; write default/web-0, or web-0 -n default")
    if not namespace:
        return (DEFAULT_NAMESPACE if before in ("", *POD_WORDS) else before), name
    if before not in ("", namespace, *POD_WORDS):
        raise ConfigError(f"-n: {pod!r} names the namespace {before} already; leave one of them out")
    return namespace, name


def _ask(server: dict[str, Any], namespace: str, name: str, *, kind: str = "pods") -> dict[str, Any]:
    path = f"/v1/{kind}/{quote(namespace, safe='')}/{quote(name, safe='')}/explain"

    async def work(client: AdminClient) -> dict[str, Any]:
        return await client.get(path)

    return with_server(server, work)


def _cluster(here: click.Context) -> str:
    """The context of --kubeconfig that is meant. ``ConfigError``: a server is named beside it."""
    others = [flag for flag in SERVER_NAMES if flag not in ("context", "kube_context") and given(here, flag)]
    if others:
        flag = others[0].replace("_", "-")
        raise ConfigError(f"--{flag}: names a server, --kubeconfig does not go with it; give one of them")
    return cluster_context(here.params["context"] or here.params["kube_context"])


def _answer_all(batch: Path, output: Path, semantics: str) -> None:
    from services.cli.explain.offline import answers
    from shared.scheduling.state.releases import Release

    release = Release(semantics)

    if str(batch) == STDIO:
        _write(answers(sys.stdin.buffer, release), output)
        return
    try:
        lines = batch.open("rb")
    except OSError as error:
        raise ConfigError(f"{batch}: {error.strerror}; give a file with one question per line") from None
    with lines:
        _write(answers(lines, release), output)


def _write(found: Iterable[dict[str, Any]], output: Path) -> None:
    if str(output) == STDIO:
        for one in found:
            click.echo(json.dumps(one))
        return
    with whole_file("-o", output) as sink:
        sink.writelines(f"{json.dumps(one)}\n".encode() for one in found)
