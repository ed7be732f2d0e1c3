"""``conclave status`` and ``conclave members``: who leads, who is there, and how the mesh does.

The leading coordinator is asked. Where none answers, ``conclave status --etcd`` says who is there as etcd has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.etcd import MeshView, etcd_instead, or_etcd, read_mesh, settings_of, warnings_of, with_store
from services.cli.listing.kinds import Json, ListKind, number, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.operate.pending import PLACES
from services.cli.server.options import connector, server_options
from services.cli.server.watching import show, tell, watch_option, wide_output_option
from services.cli.terminal.tables import NONE, cell, coloured, paint, place_word, printable
from services.cli.terminal.tables import number as amount
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient
    from shared.ports import Store
    from shared.wire.keys import Keys

SERVICES = ("coordinator", "binder", "agent", "learner")
NEWEST_TERMS = 10
ETCD_S = 3.0

UNTOLD = frozenset({"pods", "ephemeral-storage"})


def overview_lines(found: Json, *, colour: bool = False) -> list[str]:
    """Leader, scheduling, rates, queue, members, nodes, policy: a line each."""
    leader, queue, pods = _part(found, "leader"), _part(found, "queue"), _part(found, "pods")
    nodes, cluster = _part(found, "nodes"), _part(found, "cluster")
    whole, rounds = _part(found, "latency_ms"), _part(found, "round_ms")
    lines = [
        f"leader      {_leader(leader)}",
        f"scheduling  {_scheduling(_part(found, 'scheduling'), colour=colour)}",
        f"queue       {_queue(queue)}",
        *_units(_part(found, "units")),
        *_queues(_part(found, "queues")),
        f"pods        {_pods(pods)}",
        f"rates       {_rates(_part(found, 'rates'))}",
        f"latency     {_ms(whole)}; a round {_ms(rounds)}" if whole.get("p99") else f"latency     {_ms(whole)}",
        f"counted     conflicts {_count(found.get('conflicts'))}, refusals {_count(found.get('refusals'))}",
        f"members     {_counts(_part(found, 'members'))}",
        f"nodes       {_nodes(nodes)}",
        f"policy      {_policy(_part(found, 'policy'))}",
    ]
    if found.get("resources"):
        lines.insert(-1, f"requested   {_resources(found['resources'])}")
    if cluster.get("name"):
        lines.insert(0, f"cluster     {printable(str(cluster['name']))}")
    lines += _health(_part(found, "health"), colour=colour)
    if nodes.get("unowned"):
        lines = [paint(line, "yellow", on=colour) if line.startswith("nodes ") else line for line in lines]
    return lines


def _queue(found: Json) -> str:
    """Every place, and those that are not queued at all where the leader tells them."""
    more = {name: found[name] for name in ("unsupported",) if name in found}
    return _counts({place_word(place): found.get(place, 0) for place in PLACES} | more)


def _units(found: Json) -> list[str]:
    """Pod groups by what they do; nothing of an older leader."""
    return [f"pod groups  {_counts(found)}"] if found else []


def _queues(found: Json) -> list[str]:
    """How many Queues there are, and what their quotas hold back; what waits is told by the lines before."""
    if not found:
        return []
    if not found.get("total") and not found.get("problems"):
        return ["queues      none: units go by priority and arrival"]
    problems = f", with a problem {found['problems']}" if found.get("problems") else ""
    return [f"queues      {found['total']}, units held back {found.get('blocked_units', 0)}{problems}"]


def _nodes(found: Json) -> str:
    """``drained`` and ``unowned`` always, what only newer leaders tell where there is any."""
    told = [f"{found.get('total', 0)}, drained {found.get('drained', 0)}, unowned {found.get('unowned', 0)}"]
    more = ("cordoned", "not_ready", "pressure")
    return ", ".join([*told, *(f"{name.replace('_', ' ')} {found[name]}" for name in more if found.get(name))])


def _resources(found: Sequence[Json]) -> str:
    names = {"cpu_millis": "cpu", "memory_bytes": "memory"}
    known = [one for one in found if one.get("share") is not None and one.get("name") not in UNTOLD]
    return ", ".join(f"{names.get(one['name'], printable(str(one['name'])))} {one['share']:.0%}" for one in known)


def _health(found: Json, *, colour: bool) -> list[str]:
    """The verdict, and a line per finding with what to do."""
    verdict = found.get("verdict")
    if not verdict:
        return []
    paints = {"ok": "green", "degraded": "yellow", "bad": "red"}
    lines = [f"health      {paint(printable(str(verdict)), paints.get(str(verdict), 'yellow'), on=colour)}"]
    for finding in found.get("findings") or ():
        text = f"  {finding.get('code')}: {finding.get('message')}, since {finding.get('since')}"
        lines += [printable(text), printable(f"    {finding.get('remedy')} ({finding.get('runbook')})")]
    return lines


def _leader(found: Json) -> str:
    if not found.get("id"):
        return "nobody leads"
    return printable(f"{found['id']}, term {found.get('term', NONE)}, since {found.get('since') or NONE}")


def _scheduling(found: Json, *, colour: bool) -> str:
    if not found.get("paused"):
        return paint("on", "green", on=colour)
    why = f": {printable(str(found['reason']))}" if found.get("reason") else ""
    text = f"paused by {printable(str(found.get('by', '')))} since {found.get('since', '')}{why}"
    return paint(text, "yellow", on=colour)


def _policy(found: Json) -> str:
    active = printable(str(found.get("active") or "each agent's own"))
    if not found.get("candidate"):
        return active
    share = f", {found.get('percent')} % of the pods" if found.get("percent") else ""
    return f"{active}; candidate {printable(str(found['candidate']))}, {found.get('stage')}{share}"


def _counts(found: Json) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.items()) or NONE


def _pods(found: Json) -> str:
    """Those that run, and how many this mesh has placed since it began."""
    if "running" not in found:
        return _counts(found)
    return f"running {found['running']}; placed {found.get('bound', 0)}, in this term {found.get('bound_in_term', 0)}"


def _rates(found: Json) -> str:
    pods, decided = (found.get(f"{name}_per_s_10s") for name in ("pods", "decisions"))
    return f"{cell(pods)} pods/s, {cell(decided)} decisions/s (over 10 s)"


def _ms(found: Json) -> str:
    if not found.get("p50") and not found.get("p99"):
        return "none placed in the last minutes"
    return f"p50 {amount(float(found['p50']))} ms, p99 {amount(float(found.get('p99') or 0))} ms"


def _count(found: Any) -> str:
    if isinstance(found, Mapping):
        return str(sum(found.values()))
    return str(found if found is not None else 0)


def _part(found: Json, name: str) -> Json:
    part = found.get(name)
    return part if isinstance(part, Mapping) else {}


def _owned_nodes(member: Json) -> int | None:
    """How many nodes an agent decides for; nobody else does for any."""
    return member.get("nodes") if member.get("service") == "agent" else None


def state_of(member: Json) -> str:
    """``leading``, ``standby``, ``suspect`` or ``ready``."""
    if member.get("suspect"):
        return "suspect"
    if member.get("leading"):
        return "leading"
    return "standby" if member.get("service") in ("coordinator", "binder") else "ready"


MEMBERS = ListKind(
    title="Member",
    resource="member",
    name=lambda member: member.get("id"),
    empty="nobody is there",
    columns=(
        text("ROLE", "service"),
        text("ID", "id"),
        number("TERM", lambda member: member.get("term") or None),
        number("NODES", _owned_nodes),
        text("URL", "url"),
        text("STATE", state_of),
        text("VERSION", "version", wide=True),
        text("SHARD", "shard", wide=True),
        text("NODE", "node", wide=True),
        text("INCARNATION", "incarnation", wide=True),
    ),
)

TERMS = ListKind(
    title="Term",
    resource="term",
    name=lambda term: term.get("term"),
    columns=(number("TERM", "term"), text("LEADER", "id"), text("BEGAN", "began"), text("ENDED-BY", "ended_by")),
)

REGISTERED = ListKind(
    title="Registration",
    resource="registration",
    columns=(
        text("ROLE", "role"),
        text("ID", "id"),
        number("TERM", "term"),
        text("URL", "url"),
        text("NODE", lambda row: row.get("node") or None, where_any=True),
    ),
)


def status_lines(found: Json, *, wide: bool = False, colour: bool = False) -> list[str]:
    """The overview, a row per member, and what is wrong with any of them. ``wide``: also the newest failovers."""
    members: Sequence[Json] = found.get("members") or ()
    overview = overview_lines(found.get("overview") or {}, colour=colour)
    lines = [*overview, "", *MEMBERS.lines(members, wide=wide)]
    lines += [
        paint(printable(f"warning: {member.get('service')} {member.get('id')}: {told}"), "yellow", on=colour)
        for member in members
        for told in member.get("warnings") or ()
    ]  # fmt: skip
    terms: Sequence[Json] = found.get("terms") or ()
    if wide and terms:
        lines += ["", *TERMS.lines(terms)]
    return lines


@click.command()
@click.option("--service", type=click.Choice(SERVICES), default=None, help="Only members of this service.")
@watch_option
@list_options(MEMBERS)
def members(service: str | None, watch: bool, wanted: ListQuery, **server: Any) -> None:
    """List who is there: role, term of a leader, nodes of an agent, and whether it answers."""

    async def look(client: AdminClient) -> FoundItems:
        found = await client.items("/v1/members")
        return FoundItems([member for member in found if service in (None, member.get("service"))])

    show_list(connector(server), look, wanted, watch=watch)


@click.command()
@wide_output_option
@watch_option
@server_options
@or_etcd
@click.pass_context
def status(here: click.Context, /, output: str, watch: bool, **where: Any) -> None:
    """Show who leads, the mesh's health and who is there; with --etcd what is registered there."""
    if etcd_instead(here):
        if watch:
            raise ConfigError("--watch: needs a server; give --server or a context, or leave it out")
        view = asyncio.run(with_store(settings_of(**where), _registered))
        tell(output, view.to_json(), registered_lines(view))
        return

    async def look(client: AdminClient) -> dict[str, Any]:
        overview, members, terms = await asyncio.gather(
            client.get("/v1/overview"), client.items("/v1/members"), client.items("/v1/terms", most=NEWEST_TERMS)
        )
        return {"overview": overview, "members": members, "terms": terms}

    def lines(found: dict[str, Any]) -> list[str]:
        return status_lines(found, wide=output == "wide", colour=coloured())

    show(connector(where), look, lines, output=output, watch=watch)


async def _registered(store: Store, keys: Keys) -> MeshView:
    return await read_mesh(store, keys, timeout_s=ETCD_S)


def registered_lines(view: MeshView) -> list[str]:
    """Who leads and who is registered, as etcd has it, and what is wrong with it."""
    leaders = [("coordinator", view.coordinator)]
    leaders += [(f"binder {shard}", leading) for shard, leading in sorted(view.binders.items())]
    if not view.binders:
        leaders.append(("binder", None))
    rows: list[Json] = [
        {"role": role, "id": leading.record.identity, "term": leading.term, "url": leading.record.url}
        if leading is not None
        else {"role": role, "id": "nobody leads"}
        for role, leading in leaders
    ]
    rows += [
        {"role": "agent", "id": name, "url": agent.url, "node": agent.node}
        for name, agent in sorted(view.agents.items())
    ]
    members = {name: view.processes.get(name) for name in sorted(view.members)}
    rows += [{"role": "member", "id": name, "url": told.url if told else ""} for name, told in members.items()]
    lines = [*REGISTERED.lines(rows), f"{view.intents} intents, etcd revision {view.revision}"]
    return lines + [printable(f"warning: {' '.join(told.split())}") for told in warnings_of(view)]
