"""``conclave reserve``: keep room for a launch, a maintenance, a workload; see what is kept, and give it back.

All of it is in the objects, so the API server is asked, with the rights of the kubeconfig's user: who may create
Reservations there may keep room.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.autoscale.objects import (
    Json,
    ask,
    cluster_options,
    condition,
    output_option,
    place,
    say,
    say_document,
    title,
)
from services.cli.listing.wanted import DOCUMENTS
from services.cli.reserve.spec import OwningWorkload, amounts_of, spec_of, workload_of
from services.cli.server.errors import ServerFailed
from services.cli.terminal.durations import SECONDS
from services.cli.terminal.tables import age, table
from shared.errors import ConfigError, KubeRejected

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient

COMPONENT = "k8s/base/reservations-crd.yaml"
COLUMNS = (
    ("RESERVATION", False), ("PHASE", False), ("NODE", False), ("KEEPS", False), ("FOR", False), ("TAKEN BY", False),
    ("LEFT", True), ("WHY", False),
)  # fmt: skip
LOOK_S = 0.5


@click.group()
def reserve() -> None:
    """Keep room for pods to come (docs/reservations.md): create, list, show, release."""


@reserve.command()
@click.argument("name")
@click.option(
    "--for", "owner", default="", metavar="KIND/NAME", help="Whose pods may use it; its template is the shape."
)
@click.option("--selector", default="", metavar="LABELS", help="Labels of the pods that may use it.")
@click.option("--pod", default="", metavar="NAME", help="The one pod that may use it.")
@click.option("--cpu", default="", help="In place of the template.")
@click.option("--memory", default="", help="In place of the template.")
@click.option(
    "--request", "requests", multiple=True, metavar="NAME=AMOUNT", help="A further resource; may be repeated."
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="There, or on one of several; may be repeated.")
@click.option("--node-selector", default="", metavar="LABELS", help="On a node with these labels.")
@click.option("--ttl", type=SECONDS, default="1h", show_default=True, help="Given back after so long.")
@click.option("--priority", type=click.IntRange(-(10**9), 10**9), default=0, help="Higher pods may take it.")
@click.option("--shared", is_flag=True, help="Several pods share it until its time is over; else the first uses it up.")
@click.option("--wait", type=SECONDS, default="0s", help="Wait so long for the room.  [default: do not wait]")
@click.option("--dry-run", is_flag=True, help="Print the object; nothing is made.")
@cluster_options
@output_option
def create(
    name: str, owner: str, selector: str, pod: str, cpu: str, memory: str, requests: tuple[str, ...],
    nodes: tuple[str, ...], node_selector: str, ttl: float, priority: int, shared: bool, wait: float, dry_run: bool,
    kubeconfig: Path | None, context: str, namespace: str, output: str,
) -> int:  # fmt: skip
    """Keep room called NAME (or NAMESPACE/NAME)."""
    if ttl < 1:
        raise ConfigError("--ttl: must be a second at least; without one it is an hour")
    where, workload = place(name, namespace), workload_of(owner) if owner else None
    amounts = amounts_of(cpu, memory, requests)

    async def work(client: KubeClient) -> Json:
        from shared.runtime.kube.reservations import ReservationName, body_of

        found = await _workload(client, where[0], workload) if workload is not None else None
        template = ((found or {}).get("spec") or {}).get("template")
        spec = spec_of(
            workload=workload, template=template, amounts=amounts, selector=selector, pod=pod, nodes=nodes,
            node_selector=node_selector, ttl_s=ttl, priority=priority, shared=shared,
        )  # fmt: skip
        reference = workload.reference(found) if workload is not None and found is not None else None
        body = body_of(ReservationName(*where), spec, owner=reference)
        _check(body)
        if dry_run:
            return body
        await _create(client, where, body)
        return await _awaited(client, where, wait)

    item = ask(kubeconfig, context, work)
    if dry_run or output in DOCUMENTS:
        say_document(item, output if output in DOCUMENTS else "yaml")
        return 0
    _tell(item)
    waits = bool(wait) and (item.get("status") or {}).get("phase") != "Available"
    return 1 if waits else 0


@reserve.command("list")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all; so it is without -n, too.")
@cluster_options
@output_option
def list_(kubeconfig: Path | None, context: str, namespace: str, output: str, *, everywhere: bool) -> None:
    """List Reservations, of all namespaces or of one."""
    if everywhere and namespace:
        raise ConfigError(f"-A: goes with all namespaces, -n with {namespace} alone; give one of the two")
    found = ask(kubeconfig, context, lambda client: _all(client, namespace))
    if output in DOCUMENTS:
        say_document(found, output)
    elif not found:
        say("no room is reserved")
    else:
        for line in table(COLUMNS, [_row(item) for item in found]):
            click.echo(line)


@reserve.command()
@click.argument("name")
@cluster_options
@output_option
def show(name: str, kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """Show one Reservation NAME (or NAMESPACE/NAME): where it is, for whom, who took it, why it waits or has ended."""
    item = ask(kubeconfig, context, lambda client: _one(client, place(name, namespace)))
    if output in DOCUMENTS:
        say_document(item, output)
    else:
        _tell(item)


@reserve.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--dry-run", is_flag=True, help="Say what would be given back.")
@cluster_options
def release(
    names: tuple[str, ...], dry_run: bool, kubeconfig: Path | None, context: str, namespace: str
) -> None:  # fmt: skip
    """Give back what NAME... (or NAMESPACE/NAME...) keep. Pods that took it stay."""

    async def work(client: KubeClient) -> None:
        from shared.runtime.kube.reservations import ReservationName, give_back

        items = [await _one(client, place(name, namespace)) for name in names]  # all are there before any goes
        for item in items:
            meta = item["metadata"]
            if not dry_run:
                await give_back(client, ReservationName(meta["namespace"], meta["name"], meta["uid"]))
            say(f"reservation.conclave.io/{meta['name']} {'would be released' if dry_run else 'released'}")

    ask(kubeconfig, context, work)


def _check(body: Json) -> None:
    """What the scheduler would refuse is said before it is made."""
    import msgspec

    from shared.kube.reservations import ReservationObject, reserve_pod_from_api

    pod = reserve_pod_from_api(msgspec.convert(body, ReservationObject))
    if pod.invalid:
        raise ConfigError(pod.invalid)


async def _create(client: KubeClient, where: tuple[str, str], body: Json) -> None:
    from shared.kube.reservations import RESERVATIONS

    try:
        await client.create(RESERVATIONS, namespace=where[0], body=body)
    except KubeRejected as error:
        if error.status == 404:
            raise ConfigError(
                f"the cluster serves no Reservations, or has no namespace {where[0]}: {COMPONENT}"
            ) from None
        if error.status == 409:
            raise ConfigError(f"{'/'.join(where)} is there already: release it first, or choose another name") from None
        raise


async def _awaited(client: KubeClient, where: tuple[str, str], wait_s: float) -> Json:
    end = time.monotonic() + wait_s
    while True:
        item = await _one(client, where)
        phase = (item.get("status") or {}).get("phase", "Pending")
        if phase != "Pending" or time.monotonic() >= end:
            return item
        await asyncio.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))


async def _workload(client: KubeClient, namespace: str, workload: OwningWorkload) -> Json:
    try:
        return dict(json.loads(await client.read("get workload", workload.path(namespace), timeout_s=10.0)))
    except KubeRejected as error:
        if error.status == 404:
            raise ConfigError(
                f"--for: there is no {workload.kind} {namespace}/{workload.name}; for one to come give --selector"
            ) from None
        raise


async def _all(client: KubeClient, namespace: str) -> list[Json]:
    from shared.kube.reservations import RESERVATIONS

    try:
        answer = json.loads(await client.read("list reservations", RESERVATIONS.path(namespace), timeout_s=10.0))
    except KubeRejected as error:
        if error.status == 404:
            raise ConfigError(f"the cluster serves no Reservations: apply {COMPONENT}") from None
        raise
    except ValueError:
        raise ServerFailed("the API server's answer is no JSON; is this a Kubernetes API server?") from None
    return list(answer["items"])


async def _one(client: KubeClient, where: tuple[str, str]) -> Json:
    for item in await _all(client, where[0]):
        if item["metadata"]["name"] == where[1]:
            return item
    raise ConfigError(f"{'/'.join(where)}: there is no such Reservation; see 'conclave reserve list'")


def _row(item: Json) -> tuple[object, ...]:
    pod = _read(item)
    status, terms = item.get("status") or {}, pod.reserves
    over = terms.phase.over
    left = "" if over or terms.expires == float("inf") else age(max(0.0, terms.expires - time.time()))
    return (
        title(item), terms.phase.value, status.get("node"), keeps(pod), whom(item), ", ".join(terms.taken_by), left,
        condition(item, "Ready").get("reason"),
    )  # fmt: skip


def _read(item: Json) -> Any:
    import msgspec

    from shared.kube.reservations import ReservationObject, reserve_pod_from_api

    return reserve_pod_from_api(msgspec.convert(item, ReservationObject))


def keeps(pod: Any) -> str:
    """The amounts."""
    from shared.model.resources import amount_text

    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in pod.pod_class.requests)


def whom(item: Json) -> str:
    """Whose pods may use it."""
    return ", ".join(_owner(one) for one in (item.get("spec") or {}).get("owners") or () if isinstance(one, dict))


def _owner(one: Json) -> str:
    controller, parts = one.get("controller") or {}, []
    if controller:
        parts.append(f"{controller.get('kind')}/{controller.get('name')}")
    if one.get("pod"):
        parts.append(f"pod {one['pod']}")
    if one.get("selector"):
        parts.append("selected pods")
    return " and ".join(parts)


def _tell(item: Json) -> None:
    pod, ready = _read(item), condition(item, "Ready")
    terms = pod.reserves
    say(f"{title(item)}: {terms.phase.value}{f' on {pod.node_name}' if pod.node_name else ''}")
    say(f"  keeps {keeps(pod) or 'nothing'} for {whom(item)}")
    if not terms.phase.over and terms.expires != float("inf"):
        say(f"  for {age(max(0.0, terms.expires - time.time()))} more, {'once' if terms.once else 'shared'}")
    if terms.taken_by:
        say(f"  taken by {', '.join(terms.taken_by)}")
    if ready:
        say(f"  {ready.get('reason')}: {ready.get('message')}")
