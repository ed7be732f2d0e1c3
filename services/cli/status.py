"""``conclave status``: who leads, under which term, and who is there, as etcd has it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from services.cli.mesh_view import MeshView, read_mesh
from shared.errors import ConfigError, StoreError
from shared.wire.keys import DEFAULT_PREFIX

if TYPE_CHECKING:
    from shared.runtime.process import ProcessSettings

TIMEOUT_S = 3.0


@click.command()
@click.option("--etcd", default="http://127.0.0.1:2379", show_default=True, help="Endpoints, comma-separated.")
@click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys.")
@click.option("--etcd-ca", type=click.Path(path_type=Path), help="CA bundle (PEM) for https endpoints.")
@click.option("--etcd-cert", type=click.Path(path_type=Path), help="Our certificate (PEM).")
@click.option("--etcd-key", type=click.Path(path_type=Path), help="The key of --etcd-cert (PEM).")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def status(
    etcd: str, etcd_prefix: str, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None, output: str
) -> None:
    """Show leaders, terms, agents and members of the mesh in ETCD."""
    from shared.runtime.process import ProcessSettings

    endpoints = tuple(part.strip() for part in etcd.split(",") if part.strip())
    try:
        settings = ProcessSettings(
            etcd=endpoints, etcd_prefix=etcd_prefix, etcd_ca=etcd_ca, etcd_cert=etcd_cert, etcd_key=etcd_key
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    view = asyncio.run(look(settings))
    if output == "json":
        click.echo(json.dumps(view.to_json(), indent=2))
        return
    for line in lines_of(view):
        click.echo(line)


async def look(settings: ProcessSettings) -> MeshView:
    """One look. ``ConfigError``: etcd does not answer, or a setting is bad."""
    from shared.runtime.process import keys_of, store_opener

    keys = keys_of(settings)
    store = store_opener(settings)()
    try:
        return await read_mesh(store, keys, timeout_s=TIMEOUT_S)
    except StoreError as error:
        raise ConfigError(
            f"--etcd: no answer from {','.join(settings.etcd)} within {TIMEOUT_S:g} s ({error}); "
            "start it or mend --etcd"
        ) from None
    finally:
        await store.close()


def lines_of(view: MeshView) -> list[str]:
    """The table's lines."""
    lines = [f"{'ROLE':<14}{'ID':<24}{'TERM':<10}URL"]
    if view.coordinator is not None:
        leader = view.coordinator
        lines.append(f"{'coordinator':<14}{leader.record.identity:<24}{leader.term:<10}{leader.record.url}")
    else:
        lines.append(f"{'coordinator':<14}{'nobody leads':<24}")
    for shard, leader in sorted(view.binders.items()):
        lines.append(f"{'binder ' + shard:<14}{leader.record.identity:<24}{leader.term:<10}{leader.record.url}")
    if not view.binders:
        lines.append(f"{'binder':<14}{'nobody leads':<24}")
    for name, agent in sorted(view.agents.items()):
        lines.append(f"{'agent':<14}{name:<24}{'-':<10}{agent.url}{' node ' + agent.node if agent.node else ''}")
    lines += [f"{'member':<14}{name}" for name in sorted(view.members)]
    lines.append(f"{view.intents} intents, etcd revision {view.revision}")
    return lines
