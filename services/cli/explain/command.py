"""``conclave explain``: why a pod goes where it goes, or nowhere.

``explain POD -n NAMESPACE`` (or ``NAMESPACE/POD``) asks the mesh: a server that is named (flags, environment, context),
else the leading coordinator, found through etcd or named by ``--url``. With a kubeconfig and none of these
it reads the cluster's API and answers by the same rules itself; with ``--url`` or ``--etcd`` too it does so where no
coordinator answers. With ``--batch`` it answers questions about clusters given as JSON, and reads nothing else. The
rules live in ``shared.scheduling``; this file opens files, finds whom to ask, and names what is wrong with either.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.wanted import DOCUMENTS
from services.cli.server.choice import chosen_server, given
from services.cli.server.completion_names import complete_pods
from services.cli.server.options import (
    CA,
    CERT,
    KEY,
    KUBE_CONTEXT,
    MESH_NAMESPACE,
    SERVER,
    at_target,
    stored_contexts,
    under_kubectl,
)
from services.cli.terminal.watching import tell
from shared.errors import ConfigError
from shared.wire.keys import DEFAULT_PREFIX

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient
    from services.cli.server.target import Target

STDIO = "-"
DEFAULT_ETCD = "http://127.0.0.1:2379"
FILE = click.Path(path_type=Path)
OLD_WAYS = ("url", "kubeconfig", "tls_ca", "tls_cert", "tls_key")
OLD_CONNECTION = (
    "etcd_prefix", "etcd_ca", "etcd_cert", "etcd_key", "token_file", "tls_ca", "tls_cert", "tls_key",
)  # fmt: skip


@click.command()
@click.argument("pod", required=False, metavar="[[NAMESPACE/]POD]", shell_complete=complete_pods)
@SERVER
@click.option("--url", default="", help="The leading coordinator's address; default: as etcd has it.")
@click.option("--kubeconfig", type=FILE, help="Which cluster to read where no mesh is named, or none answers.")
@click.option("--context", default="", help="One of 'conclave context list', or else of the kubeconfig.")
@KUBE_CONTEXT
@click.option("-n", "--namespace", default="", help="The pod's namespace.  [default: default]")
@MESH_NAMESPACE
@CA
@CERT
@KEY
@click.option("--etcd", default="", show_default=DEFAULT_ETCD, help="Endpoints of the mesh's etcd, comma-separated.")
@click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys.")
@click.option("--etcd-ca", type=FILE, help="CA bundle (PEM) for https endpoints of etcd.")
@click.option("--etcd-cert", type=FILE, help="Our certificate for etcd (PEM).")
@click.option("--etcd-key", type=FILE, help="The key of --etcd-cert (PEM).")
@click.option("--token-file", type=FILE, help="Our token for --server, or the mesh's own for --url and --etcd.")
@click.option("--tls-ca", type=FILE, help="CA of the services' certificates (PEM), where they speak TLS.")
@click.option("--tls-cert", type=FILE, help="Our certificate for the services (PEM).")
@click.option("--tls-key", type=FILE, help="The key of --tls-cert (PEM).")
@click.option(
    "-o", "--output", default="", help="table (default), json or yaml; with --batch the file to write, - for stdout."
)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Offline: one JSON object per line, id and input (nodes, pods, pod and what they refer to); - for stdin.",
)
@click.pass_context
def explain(
    here: click.Context,
    /,
    pod: str | None,
    namespace: str,
    url: str,
    kubeconfig: Path | None,
    context: str,
    etcd: str,
    output: str,
    batch: Path | None,
    **connection: Any,
) -> int:
    """Say which nodes take a pod, why the others do not, by which numbers, and what would have to change.

    For a pending pod also what preemption would do. For a bound pod: the nodes that were considered, their scores and
    the policy version at the time. Only with --kubeconfig (or its --context), no mesh is asked: the cluster is read,
    and what a leader remembers is left out. With --batch: answer for each question which nodes take its pod, why the
    others do not, the scores, and what preemption does.

    Exit code 0 when there is an answer, 1 when there is no such pod or a server does not answer, 2 when nobody could be
    asked.
    """
    if (pod is None) == (batch is None):
        raise ConfigError("give either NAMESPACE/POD, to ask the mesh, or --batch FILE, to answer offline")
    if batch is not None:
        _answer_all(batch, Path(output or STDIO))
        return 0
    if output not in ("", "table", "wide", *DOCUMENTS):
        raise ConfigError(f"-o: {output!r} is none of table, json and yaml")
    from services.cli.explain.pod import named_pod
    from services.cli.explain.text import lines_of
    from services.cli.server.errors import PodUnknown

    namespace, name = named_pod(str(pod), namespace)
    target = _server(here)
    cluster = (kubeconfig, context) if kubeconfig is not None or context else None
    old = {name: value for name, value in connection.items() if name in OLD_CONNECTION}
    try:
        if target is not None:
            answer = _ask_server(target, namespace, name)
        elif cluster is not None and not (url or etcd):
            answer = _read(*cluster, namespace, name)
        else:
            answer = _ask(namespace, name, url, etcd or DEFAULT_ETCD, cluster, old)
    except PodUnknown as error:
        click.echo(f"conclave: {error}", err=True)
        return 1
    tell(output, answer, list(lines_of(answer)))
    return 0


def _server(here: click.Context) -> Target | None:
    """The server to ask, or None: the older ways. A context that is none of ours is one of the kubeconfig."""
    own: tuple[str, ...] = OLD_WAYS
    name = str(here.params.get("context") or "")
    if name and not under_kubectl() and (given(here, "kubeconfig") or name not in stored_contexts().entries):
        own = (*own, "context")
    return chosen_server(here, own=own, both=("token_file",))


def _ask_server(target: Target, namespace: str, name: str) -> dict[str, Any]:
    async def work(client: AdminClient) -> dict[str, Any]:
        return await client.get(f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}/explain")

    return at_target(target, work)


def _ask(
    namespace: str, name: str, url: str, etcd: str, cluster: tuple[Path | None, str] | None, connection: dict[str, Any]
) -> dict[str, Any]:
    """The leader's answer; where nobody answers and we know the cluster, our own."""
    from services.cli.explain.pod import ask
    from shared.runtime.process.process import ProcessSettings

    endpoints = tuple(part.strip() for part in etcd.split(",") if part.strip())
    try:
        settings = ProcessSettings(etcd=endpoints, **connection)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        return asyncio.run(ask(settings, url, namespace, name))
    except ConfigError as error:
        if cluster is None:
            raise
        click.echo(f"conclave: {error}; reading the cluster instead", err=True)
    return _read(*cluster, namespace, name)


def _read(kubeconfig: Path | None, context: str, namespace: str, name: str) -> dict[str, Any]:
    from services.cli.explain.offline import explain_from_api

    return asyncio.run(explain_from_api(kubeconfig, context, namespace, name))


def _answer_all(batch: Path, output: Path) -> None:
    from services.cli.explain.batch import answers

    if str(batch) == STDIO:
        _write(answers(sys.stdin.buffer), output)
        return
    try:
        lines = batch.open("rb")
    except OSError as error:
        raise ConfigError(f"{batch}: {error.strerror}; give a file with one question per line") from None
    with lines:
        _write(answers(lines), output)


def _write(found: Iterable[dict[str, Any]], output: Path) -> None:
    if str(output) == STDIO:
        for one in found:
            click.echo(json.dumps(one))
        return
    partial = output.with_name(f"{output.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{json.dumps(one)}\n" for one in found)
        partial.replace(output)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}; name a file that can be written") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
