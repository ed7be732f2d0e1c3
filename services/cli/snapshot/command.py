"""``conclave snapshot``: one file of a cluster and of what its mesh knows, to be replayed by somebody else.

Objects come from the API server, what the leader alone knows from the admin API; neither is written to. The file is
there whole or not at all.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from pathlib import Path
from typing import Any

import click

from services.cli.server.options import cluster_context, server_options, with_server
from services.cli.terminal.output_file import check_distinct, check_writable, whole_file
from services.cli.terminal.tables import size
from shared.errors import ConfigError

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--kubeconfig", type=FILE, help="Which cluster.  [default: KUBECONFIG, else ~/.kube/config]")
@click.option("--no-mesh", is_flag=True, help="Read the cluster alone: no settings, policies or decisions of a mesh.")
@click.option("--names", is_flag=True, help="Keep the names of objects, labels and images as they are.")
@click.option("--names-file", type=FILE, help="Write here, for you alone, what became of each name.")
@server_options
def snapshot(
    file: Path, kubeconfig: Path | None, *, no_mesh: bool, names: bool, names_file: Path | None, **server: Any
) -> int:
    """Write the cluster as it is now to FILE: what decides where pods go, for 'conclave replay' and for bug reports.

    Names are replaced by pseudonyms, equal ones alike and in the same order, so the file decides as the cluster does;
    annotations that no rule reads, messages and environments are left out. What could not be read is said, and is in
    the file. Without a mesh give --no-mesh.
    """
    from services.cli.snapshot.reading import document, read_mesh
    from shared.wire.snapshot import encode_snapshot

    if names and names_file is not None:
        raise ConfigError("--names-file: with --names nothing becomes of names; leave one of them out")
    check_distinct({"FILE": file, "--names-file": names_file}, {"--kubeconfig": kubeconfig})
    check_writable("FILE", file)
    check_writable("--names-file", names_file)
    # the mesh first: what it decides meanwhile shows in the objects, and not the other way round
    mesh = None if no_mesh else with_server(server, read_mesh)
    context = cluster_context(server.get("context") or server.get("kube_context"))
    objects, missing, version = asyncio.run(_cluster(kubeconfig, context))
    counts = f"{len(objects['nodes'])} nodes, {len(objects['pods'])} pods"
    at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    found, hidden = document(objects, mesh, missing, hashed=not names, at=at, kubernetes=version)
    with whole_file("FILE", file, private=True) as sink:
        sink.write(encode_snapshot(found))
    if names_file is not None:
        with whole_file("--names-file", names_file, private=True) as sink:
            sink.write(json.dumps(dict(sorted(hidden.items())), indent=0).encode() + b"\n")
    for line in (*(mesh or {}).get("missing", ()), *found["missing"]):
        click.echo(f"missing: {line}", err=True)
    said = "names kept" if names else f"{len(hidden)} names replaced"
    click.echo(f"{file}: {counts}, {said}, {size(file.stat().st_size)}")
    return 0


async def _cluster(kubeconfig: Path | None, context: str) -> tuple[dict[str, Any], list[str], str]:
    from services.cli.explain.offline import CHECK_S
    from services.cli.snapshot.reading import read_objects
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig
    from shared.kube.resources import NODES, PODS

    client = KubeClient(await KubeConfig.load(kubeconfig, context=context or None))
    try:
        version = await client.check(timeout_s=CHECK_S)
        await client.check_reads(NODES, PODS, timeout_s=CHECK_S)
        return *await read_objects(client, lambda line: click.echo(line, err=True)), version
    finally:
        await client.close()
