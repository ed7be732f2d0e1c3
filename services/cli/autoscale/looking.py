"""``conclave autoscale list``, ``show``, ``recommend`` and ``why``: what is decided for whom, and why. Reading only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from services.cli.autoscale.objects import (
    Json,
    ask,
    cluster_options,
    condition,
    current,
    output_option,
    place,
    read_all,
    read_one,
    say,
    say_document,
    title,
)
from services.cli.etcd import or_etcd, settings_of, with_store
from services.cli.listing.wanted import DOCUMENTS
from services.cli.server.options import given
from services.cli.terminal.tables import table
from shared.errors import ConfigError

COLUMNS = (
    ("OBJECT", False), ("MODE", False), ("POLICY", False), ("READY", False), ("ACTING", False), ("WHY", False),
    ("REPLICAS", True), ("METRICS", False), ("FOREIGN", False),
)  # fmt: skip
SERVICES = (
    ("SERVICE", False), ("REPLICAS", True), ("READY", True), ("POLICY", True), ("HPA", True), ("ALLOWED", True),
    ("WRITTEN", False), ("WHY", False),
)  # fmt: skip


@click.command("list")
@cluster_options
@output_option
def list_(kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """List ResilientAutoscalers, of all namespaces or of one."""
    found = ask(kubeconfig, context, lambda client: read_all(client, namespace))
    if output in DOCUMENTS:
        say_document(found, output)
        return
    if not found:
        say("there are no ResilientAutoscalers")
        return
    for line in table(COLUMNS, [_row(item) for item in found]):
        click.echo(line)


def _policy(spec: Json) -> str:
    """Who decides: as the object says, else as its service chooses."""
    from shared.kube.objects import ObjectMeta
    from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api

    return autoscaler_from_api(AutoscalerObject(ObjectMeta(), spec, None)).policy


def _row(item: Json) -> tuple[object, ...]:
    spec, acting = item.get("spec") or {}, condition(item, "Acting")
    return (
        title(item), spec.get("mode"), _policy(spec), condition(item, "Ready").get("status"),
        acting.get("status"), acting.get("reason"), (item.get("status") or {}).get("replicas"),
        condition(item, "MetricsGood").get("reason"), condition(item, "ForeignWriter").get("status"),
    )  # fmt: skip


@click.command()
@click.argument("name")
@cluster_options
@output_option
def show(name: str, kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """Show one object NAME (or NAMESPACE/NAME): its conditions, and every service with what it has and is to have."""
    item = _one(name, kubeconfig, context, namespace)
    if output in DOCUMENTS:
        say_document(item, output)
        return
    spec, status = item.get("spec") or {}, item.get("status") or {}
    go = spec.get("go") or {}
    say(f"{title(item)}: {spec.get('mode')}, policy {(spec.get('policy') or {}).get('name')}")
    say(f"decided by {status.get('decidedBy') or 'nobody yet'} at {status.get('decidedAt') or '-'}")
    say(f"go: {go.get('by') or 'nobody'}, {'counts' if _counts(item) else 'does not count'}")
    for one in status.get("conditions") or ():
        say(f"  {one.get('type')} {one.get('status')} ({one.get('reason')}): {one.get('message')}")
    _services(item)


@click.command()
@click.argument("name")
@cluster_options
@output_option
def recommend(name: str, kubeconfig: Path | None, context: str, namespace: str, output: str) -> None:
    """Say what the policy and HPA's rule would have now, what the safeguards leave of it, and the digest to approve."""
    item = _one(name, kubeconfig, context, namespace)
    status = item.get("status") or {}
    if output in DOCUMENTS:
        say_document({key: status.get(key) for key in ("decidedBy", "decidedAt", "digest", "services")}, output)
        return
    _services(item)
    if not current(item):
        say("this is of an earlier spec: ask again in a moment")
    say(f"digest to approve: {status.get('digest') or '-'}")


@click.command()
@click.argument("name")
@click.argument("service", required=False, default="")
@click.option("--last", default=10, show_default=True, type=click.IntRange(1, 128), help="At most so many.")
@cluster_options
@output_option
@or_etcd
@click.pass_context
def why(
    here: click.Context, /, name: str, service: str, last: int, kubeconfig: Path | None, context: str, namespace: str,
    output: str, **etcd: Any,
) -> None:  # fmt: skip
    """Say why object NAME (its SERVICE) got the replicas it got: the last notable decisions, newest first.

    With --etcd, the ring that etcd keeps, with all inputs of each decision (JSON).
    """
    if any(given(here, key) for key in etcd):
        say_document(_ring(place(name, namespace), last, etcd), output)
        return
    item = _one(name, kubeconfig, context, namespace)
    known = [one["name"] for one in (item.get("status") or {}).get("services") or ()]
    if service and service not in known:
        raise ConfigError(f"{service}: {title(item)} has no such service; it has {', '.join(known) or 'none yet'}")
    decisions = [
        one for one in (item.get("status") or {}).get("decisions") or () if service in ("", one.get("service"))
    ][:last]
    if output in DOCUMENTS:
        say_document(decisions, output)
        return
    if not decisions:
        say("no notable decision yet: nothing was to change")
    for one in decisions:
        say(f"{one.get('at')} {one.get('service')} {one.get('from')} -> {one.get('to')} by {one.get('by')}")
        say(f"  policy wanted {one.get('wanted', '-')}, HPA's rule {one.get('rule', '-')}; {one.get('why')}")
        say(f"  seen: {one.get('seen')}")


def _ring(where: tuple[str, str], last: int, etcd: dict[str, Any]) -> list[Json]:
    """The newest decisions in etcd. ``ConfigError``: there is none."""
    import asyncio
    import json

    from shared.ports import Store
    from shared.wire.keys import Keys

    async def read(store: Store, keys: Keys) -> list[Json]:
        listing = await store.list_prefix(keys.autoscaler_history_prefix("/".join(where)))
        found = []
        for kv in listing.items:
            try:
                found.append(json.loads(kv.value))
            except ValueError:
                continue
        return sorted(found, key=lambda one: int(one.get("number", 0)), reverse=True)[:last]

    decisions = asyncio.run(with_store(settings_of(**etcd), read))
    if not decisions:
        raise ConfigError(f"{'/'.join(where)}: etcd has no decision of it; see 'conclave autoscale list'")
    return decisions


def _one(name: str, kubeconfig: Path | None, context: str, namespace: str) -> Json:
    where = place(name, namespace)
    return ask(kubeconfig, context, lambda client: read_one(client, *where))


def _counts(item: Json) -> bool:
    digest = (item.get("status") or {}).get("digest")
    return bool(digest and current(item) and ((item.get("spec") or {}).get("go") or {}).get("digest") == digest)


def _services(item: Json) -> None:
    rows = [
        tuple(one.get(key) for key in ("name", "replicas", "ready", "wanted", "rule", "allowed", "acted", "why"))
        for one in (item.get("status") or {}).get("services") or ()
    ]
    if not rows:
        say("nothing was decided yet")
        return
    for line in table(SERVICES, rows):
        click.echo(line)
