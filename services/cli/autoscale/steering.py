"""``conclave autoscale approve``, ``pause`` and ``resume``: what an operator decides about an object."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from services.cli.autoscale.objects import (
    Json,
    ask,
    cluster_options,
    condition,
    current,
    place,
    read_one,
    say,
    title,
    write_spec,
)
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient

WAIT_S = 30.0
"""So long an approval waits for the first decision of a spec that was just changed."""
POLL_S = 0.5


@click.command()
@click.argument("name")
@click.option("--by", default="", help="Who approves it; default: the user of this machine.")
@click.option("--digest", default="", help="Approve this digest alone (of 'recommend'); default: the one there is.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
def approve(
    name: str, by: str, digest: str, yes: bool, kubeconfig: Path | None, context: str, namespace: str
) -> None:  # fmt: skip
    """Approve what object NAME is now: its spec and the policy's weights. Any change of them makes the approval void.

    Approving again also accepts what somebody else has set meanwhile.
    """
    where = place(name, namespace)
    item = ask(kubeconfig, context, lambda client: _decided(client, *where))
    spec, status = item.get("spec") or {}, item.get("status") or {}
    offered = status.get("digest") or ""
    if not offered or not current(item):
        raise ConfigError(f"{title(item)}: nothing was decided of this spec in {WAIT_S:g} s; does an autoscaler lead?")
    if digest and digest != offered:
        raise ConfigError(f"--digest: {title(item)} is {offered} now, not what was read; read it again")
    ready = condition(item, "Ready")
    if ready.get("status") != "True":
        raise ConfigError(f"{title(item)}: {ready.get('message') or 'is not ready'}; correct that first")
    say(f"{title(item)}: {spec.get('mode')}, policy {(spec.get('policy') or {}).get('name')}, {offered}")
    for one in status.get("services") or ():
        say(f"  {one['name']}: {one.get('replicas')} now, {one.get('allowed')} next; {one.get('why')}")
    if not yes and not click.confirm("Let it act?"):
        raise ConfigError("not approved; nothing was changed")
    word = {"by": by or getpass.getuser(), "digest": offered, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    uid = item["metadata"]["uid"]
    ask(kubeconfig, context, lambda client: write_spec(client, *where, uid, {"go": word}))
    say(f"approved by {word['by']}; see 'conclave autoscale show {title(item)}'")


go = click.Command(
    "go", callback=approve.callback, params=approve.params, hidden=True, help="The former name of approve."
)


async def _decided(client: KubeClient, namespace: str, name: str) -> Json:
    """The object, once its spec was decided upon; as it is where that takes too long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_S
    while True:
        item = await read_one(client, namespace, name)
        if current(item) or loop.time() >= until:
            return item
        await asyncio.sleep(POLL_S)


@click.command()
@click.argument("name")
@cluster_options
def pause(name: str, kubeconfig: Path | None, context: str, namespace: str) -> None:
    """Write nothing more for object NAME: its replicas stay as they are until it is resumed."""
    _set_paused(name, kubeconfig, context, namespace, paused=True)


@click.command()
@click.argument("name")
@cluster_options
def resume(name: str, kubeconfig: Path | None, context: str, namespace: str) -> None:
    """Go on with object NAME; its approval counts as before."""
    _set_paused(name, kubeconfig, context, namespace, paused=False)


def _set_paused(name: str, kubeconfig: Path | None, context: str, namespace: str, *, paused: bool) -> None:
    where = place(name, namespace)
    item = ask(kubeconfig, context, lambda client: read_one(client, *where))
    if bool((item.get("spec") or {}).get("paused")) is paused:
        say(f"{title(item)} is {'paused' if paused else 'not paused'} already")
        return
    uid = item["metadata"]["uid"]
    ask(kubeconfig, context, lambda client: write_spec(client, *where, uid, {"paused": paused}))
    say(f"{title(item)} is {'paused' if paused else 'resumed'}")
