"""``conclave explain``: why a pod goes where it goes, or nowhere.

``explain NAMESPACE/POD`` asks the leading coordinator, found through etcd or named by ``--url``. With ``--batch`` it
answers questions about clusters given as JSON, offline, and reads nothing else. The rules live in
``shared.scheduling``; this file opens files, finds the leader, and names what is wrong with either.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from shared.errors import ConfigError
from shared.wire.keys import DEFAULT_PREFIX

STDIO = "-"
FILE = click.Path(path_type=Path)


@click.command()
@click.argument("pod", required=False, metavar="[NAMESPACE/POD]")
@click.option("--url", default="", help="The leading coordinator's address; default: as etcd has it.")
@click.option("--etcd", default="http://127.0.0.1:2379", show_default=True, help="Endpoints, comma-separated.")
@click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys.")
@click.option("--etcd-ca", type=FILE, help="CA bundle (PEM) for https endpoints of etcd.")
@click.option("--etcd-cert", type=FILE, help="Our certificate for etcd (PEM).")
@click.option("--etcd-key", type=FILE, help="The key of --etcd-cert (PEM).")
@click.option("--token-file", type=FILE, help="The bearer token of the mesh, where it has one.")
@click.option("--tls-ca", type=FILE, help="CA of the services' certificates (PEM), where they speak TLS.")
@click.option("--tls-cert", type=FILE, help="Our certificate for the services (PEM).")
@click.option("--tls-key", type=FILE, help="The key of --tls-cert (PEM).")
@click.option(
    "-o", "--output", default="", help="table (default) or json; with --batch the file to write, - for stdout."
)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Offline: one JSON object per line, id and input (nodes, pods, pod and what they refer to); - for stdin.",
)
def explain(pod: str | None, url: str, output: str, batch: Path | None, **connection: Any) -> int:
    """Say which nodes take a pod, why the others do not, by which numbers, and what would have to change.

    For a bound pod: the nodes that were considered, their scores and the policy version at the time. With --batch:
    answer for each question which nodes take its pod, why the others do not, the scores, and what preemption does.

    Exit code 0 when there is an answer, 1 when there is no such pod, 2 when nobody could be asked.
    """
    if (pod is None) == (batch is None):
        raise ConfigError("give either NAMESPACE/POD, to ask the mesh, or --batch FILE, to answer offline")
    if batch is not None:
        _answer_all(batch, Path(output or STDIO))
        return 0
    if output not in ("", "table", "json"):
        raise ConfigError(f"-o: {output!r} is neither table nor json")
    return _ask(str(pod), url, as_json=output == "json", **connection)


def _ask(pod: str, url: str, *, as_json: bool, **connection: Any) -> int:
    from services.cli.explain_pod import Unknown, ask, split_name
    from services.cli.explain_text import lines_of
    from shared.runtime.process import ProcessSettings

    namespace, name = split_name(pod)
    endpoints = tuple(part.strip() for part in connection.pop("etcd").split(",") if part.strip())
    try:
        settings = ProcessSettings(etcd=endpoints, **connection)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        answer = asyncio.run(ask(settings, url, namespace, name))
    except Unknown as error:
        click.echo(f"conclave: {error}", err=True)
        return 1
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return 0
    for line in lines_of(answer):
        click.echo(line)
    return 0


def _answer_all(batch: Path, output: Path) -> None:
    from services.cli.explain_batch import answers

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
