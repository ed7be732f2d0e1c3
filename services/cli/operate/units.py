"""``conclave units``: gangs and other pod groups in every phase, lone pods on their way, and why a group waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.kinds import Json, ListKind, number, shown, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import DOCUMENTS, FoundItems, ListQuery
from services.cli.server.completion_names import complete_units
from services.cli.server.options import connector
from services.cli.server.watching import show, watch_option
from services.cli.terminal.tables import age, place_word, printable
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

PHASES = ("waiting", "placing", "running", "broken", "ended")
PLACES = ("gated", "active", "backoff", "unschedulable", "in_flight")
SOURCES = ("pod", "podgroup", "x-podgroup", "job")
PODS_SHOWN = 3
VICTIMS_SHOWN = 5
DEFAULT_NAMESPACE = "default"


def ready(unit: Json) -> str:
    """Bound members of those that are there."""
    return f"{unit.get('bound', 0)}/{unit.get('members', len(unit.get('pods') or ()))}"


def _where(unit: Json) -> str:
    pods = unit.get("pods") or ()
    found = [f"{pod.get('name')} -> {pod['node']}" for pod in pods[:PODS_SHOWN] if pod.get("node")]
    if found and len(pods) > PODS_SHOWN:
        found.append(f"and {max(len(pods), unit.get('members') or 0) - PODS_SHOWN} more")
    return ", ".join(found)


UNITS = ListKind(
    title="Unit",
    resource="unit",
    name=lambda unit: unit.get("name") or unit.get("key"),
    namespace=lambda unit: unit.get("namespace"),
    labelled=True,
    empty="there is no pod group, and no lone pod is on its way",
    columns=(
        text("NAMESPACE", "namespace"),
        text("UNIT", lambda unit: unit.get("name") or unit.get("key")),
        text("SOURCE", "source"),
        text("PHASE", "phase"),
        number("BOUND", "bound", ready),
        number("MIN", "min_member"),
        text("QUEUE", "queue"),
        number("POSITION", "position"),
        number("WAITING", "waiting_s", shown(age, "waiting_s")),
        text("REASON", "reason", cut=True),
        number("PRIORITY", "priority", wide=True),
        text("PLACE", "place", wide=True),
        text("STATE", "state", wide=True),
        text("WHERE", _where, wide=True),
        text("MESSAGE", "message", wide=True),
        text("KEY", "key", wide=True),
    ),
)

MEMBERS = ListKind(
    title="UnitMember",
    resource="pod",
    columns=(
        text("MEMBER", "name"),
        text("STATE", "state"),
        text("NODE", lambda member: member.get("node") or None),
        text("NOMINATED", lambda member: member.get("nominated_node") or None, where_any=True),
        number("PRIORITY", "priority"),
        number("TRIED", "attempts"),
        number("WAITING", "waiting_s", shown(age, "waiting_s")),
        text("MESSAGE", "message", cut=True),
    ),
)


@click.command()
@click.argument("unit", required=False, metavar="[[NAMESPACE/]NAME]", shell_complete=complete_units)
@click.option("--queue", default="", help="Only units of this Queue.")
@click.option("--phase", type=click.Choice(PHASES), default=None, help="Only units in this phase.")
@click.option("--place", type=click.Choice(PLACES), default=None, help="Only units there in the scheduling queue.")
@click.option("--source", type=click.Choice(SOURCES), default=None, help="Only lone pods, or groups of this source.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(UNITS)
def units(unit: str | None, watch: bool, wanted: ListQuery, **given: Any) -> None:
    """List pod groups, and lone pods on their way; with NAME show one group: its members, and why it waits."""
    asked = {name: given.pop(name) for name in ("queue", "phase", "place", "source")}

    async def every(client: AdminClient) -> FoundItems:
        return FoundItems(
            await client.items(
                "/v1/units", most=wanted.limit, namespace=wanted.namespace, selector=wanted.selector, **asked
            )
        )

    connect = connector(given)
    if unit is None:
        show_list(connect, every, wanted, watch=watch)
        return
    namespace, name = named_unit(unit, wanted.namespace)
    path = f"/v1/units/{quote(namespace, safe='')}/{quote(name, safe='')}"

    async def one(client: AdminClient) -> dict[str, Any]:
        return UNITS.object(await client.get(path))

    async def one_listed(client: AdminClient) -> FoundItems:
        return FoundItems([await client.get(path)])

    if wanted.output == "name":
        show_list(connect, one_listed, wanted, watch=watch)
    else:
        show(connect, one, unit_lines, output=wanted.output if wanted.output in DOCUMENTS else "table", watch=watch)


def named_unit(unit: str, namespace: str) -> tuple[str, str]:
    """(namespace, name) of ``NAME -n NAMESPACE``, ``NAMESPACE/NAME`` or ``podgroup/NAME``. ``ConfigError``: neither."""
    before, slash, name = unit.rpartition("/")
    if not name or "/" in before or (slash and not before):
        raise ConfigError(f"{unit!r} is not NAMESPACE/NAME, nor NAME with -n; write default/train, or train -n default")
    if before in GROUP_WORDS:
        before = ""
    if before and namespace not in ("", before):
        raise ConfigError(f"-n: {unit!r} names the namespace {before} already; leave one of them out")
    return namespace or before or DEFAULT_NAMESPACE, name


GROUP_WORDS = ("podgroup", "podgroups", "pg", "unit", "units", "podgroup.scheduling.k8s.io")


def unit_lines(unit: Json) -> list[str]:
    """One group and its members."""
    members: Sequence[Json] = unit.get("listed") or ()
    return [*unit_head(unit), *(["", *MEMBERS.lines(members)] if members else ())]


def unit_head(unit: Json) -> list[str]:
    """One group, without its members."""
    lines = [f"{printable(str(unit.get('namespace')))}/{printable(str(unit.get('name')))}: {unit.get('phase')}"]
    if unit.get("message"):
        lines.append(f"  why        {unit.get('reason')}: {printable(str(unit['message']))}")
    lines += [
        f"  source     {_source(unit)}",
        f"  members    {unit.get('members', 0)}{_together(unit)}; {_states(unit)}",
    ]
    if unit.get("missing"):
        lines.append(f"  missing    {unit['missing']} more must be created before it is tried")
    if unit.get("queue"):
        place = f", place {unit['position']}" if unit.get("position") else ""
        lines.append(f"  queue      {printable(str(unit['queue']))}{place}; priority {unit.get('priority', 0)}")
    topology = unit.get("topology")
    if isinstance(topology, Mapping):
        how = "required" if topology.get("required") else "preferred"
        domain = f": {printable(str(topology['domain']))}" if topology.get("domain") else ", none chosen yet"
        lines.append(f"  topology   one value of {printable(str(topology.get('key')))}, {how}{domain}")
    if unit.get("gang"):
        held = f"; capacity is held for {age(unit['timeout_s'])}" if unit.get("timeout_s") is not None else ""
        how = "whole" if unit.get("whole") else "singly"
        lines.append(f"  if broken  {unit.get('on_broken')}{held}; preempted {how}")
    condition = unit.get("condition")
    if isinstance(condition, Mapping):
        lines.append(_condition(condition))
    victims: Sequence[Json] = unit.get("victims") or ()
    if victims:
        named = ", ".join(f"{one.get('pod')} on {one.get('node')}" for one in victims[:VICTIMS_SHOWN])
        more = f" and {len(victims) - VICTIMS_SHOWN} more" if len(victims) > VICTIMS_SHOWN else ""
        lines.append(printable(f"  victims    {len(victims)} pods were asked to leave for it: {named}{more}"))
    return lines


def _together(unit: Json) -> str:
    """What must be bound at once; nothing where each member goes for itself."""
    return f", at least {unit.get('min_member', 1)} or none" if unit.get("gang") else ""


def _condition(condition: Json) -> str:
    """What the object says; a PodGroup of the scheduler plug-ins has a phase alone."""
    if not condition.get("type"):
        return printable(f"  phase      {condition.get('status')}, says the object")
    told = f"{condition.get('type')}={condition.get('status')} {condition.get('reason')}"
    return printable(f"  condition  {told}: {condition.get('message')}")


def _source(unit: Json) -> str:
    names = {"podgroup": "PodGroup", "x-podgroup": "PodGroup", "job": "Job", "pod": "Pod"}
    version = f" {unit['api_version']}" if unit.get("api_version") else ""
    policy = "" if unit.get("source") == "pod" else ", gang" if unit.get("gang") else ", basic"
    return printable(f"{names.get(str(unit.get('source')), unit.get('source'))}{version}{policy}")


def _states(unit: Json) -> str:
    states: Mapping[str, int] = unit.get("states") or {}
    found = [
        f"{count} {place_word(state).replace('_', ' ')}"
        for state, count in sorted(states.items(), key=lambda one: -one[1])
    ]
    return ", ".join(found) or "none is there"
