"""What ``conclave policy --for NAMESPACE/SCALER`` shows and changes: a ResilientAutoscaler's policy, through the API
server with the user's own rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from services.cli.autoscale.objects import ask, place, read_one, title, write_spec
from services.cli.server.watching import tell

Json = dict[str, Any]


def show_scaler(scaler: str, kubeconfig: Path | None, context: str, output: str) -> None:
    """As ``conclave autoscale show``."""
    from services.cli.autoscale.looking import show

    _called(show, name=scaler, kubeconfig=kubeconfig, context=context, namespace="", output=output)


def scaler_rows(scaler: str, kubeconfig: Path | None, context: str) -> list[Json]:
    """The policies that a scaler may name, as ``policy list`` shows them."""
    from shared.autoscaling.registry import POLICIES

    spec = _read(scaler, kubeconfig, context).get("spec") or {}
    active = "hpa" if spec.get("killSwitch") == "PlainHPA" else (spec.get("policy") or {}).get("name")
    return [{"name": name, "role": "active" if name == active else "", "from": "built in"} for name in sorted(POLICIES)]


def switch_off(scaler: str, kubeconfig: Path | None, context: str, output: str) -> None:
    """Let HPA's rule decide; to say it again changes nothing."""
    where, item = place(scaler, ""), _read(scaler, kubeconfig, context)
    told = f"{title(item)} is decided by HPA's rule already"
    if (item.get("spec") or {}).get("killSwitch") != "PlainHPA":
        uid = item["metadata"]["uid"]
        ask(kubeconfig, context, lambda client: write_spec(client, *where, uid, {"killSwitch": "PlainHPA"}))
        told = f"{title(item)}: HPA's rule decides; spec.killSwitch at None lets its policy decide again"
    tell(output, {"object": scaler, "killSwitch": "PlainHPA"}, [told])


def _read(scaler: str, kubeconfig: Path | None, context: str) -> Json:
    where = place(scaler, "")
    return ask(kubeconfig, context, lambda client: read_one(client, *where))


def _called(command: click.Command, **given: Any) -> None:
    command.callback(**given)  # type: ignore[misc]  # each of our commands has one
