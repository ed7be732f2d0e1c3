"""Who is there and who leads: coordinators, binders, agents and learners, as etcd and the leader know them; the terms
before this one; which agent decides for how many nodes.
"""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Any, Literal

import msgspec

from services.coordinator.http.desk import REGISTERED, Desk
from shared.election.record import decode_record as decode_leader
from shared.ports import KeyValue
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import NumberedPageQuery, PageQuery, page
from shared.runtime.http.proxying import nobody_leads
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, RouteAnswer, RoutePage, row
from shared.runtime.process.plugins import profile_titles, titles_of
from shared.runtime.records.admin import terms_of
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, LearnerRecord, MemberRecord, decode_record, plugins_differ

PROTOCOL = 1
MOST_NAMES = 100


class LeaderAnswer(RouteAnswer, frozen=True, kw_only=True):
    """The leader. ``term``: the fencing token of everything it writes; ``since``: when the term began."""

    id: str
    url: str
    admin_url: str
    term: int
    since: str
    lease_ttl_s: float


class TermItem(RouteAnswer, frozen=True, kw_only=True):
    """One term. ``ended_by``: the id of the leader that came after, empty for the one who leads now."""

    term: int
    id: str
    url: str
    began: str
    ended_by: str


class TermsAnswer(RoutePage, frozen=True, kw_only=True):
    """Newest first."""

    items: list[TermItem]


async def leader(desk: Desk, _: Ask[Any, Any]) -> LeaderAnswer:
    """Who leads."""
    seen = desk.leader
    if seen is None:
        raise RequestRefused(nobody_leads(desk.trouble), code="no_leader")
    record, term = seen
    return LeaderAnswer(
        id=record.identity,
        url=record.url,
        admin_url=record.admin_url,
        term=term,
        since=desk.led_since,
        lease_ttl_s=desk.settings.lease_ttl_s,
    )


async def terms(desk: Desk, ask: Ask[NumberedPageQuery, Any]) -> TermsAnswer:
    """The last terms, one by one: where one ends is where the next begins."""
    records = {
        -record.term: record for record in terms_of(await desk.registry.listed(desk.keys.coordinator_terms_prefix))
    }
    successor = dict(zip(sorted(records)[1:], sorted(records), strict=False))
    keys, more = page(records, ask.query, int)
    items = [
        TermItem(
            term=records[key].term,
            id=records[key].id,
            url=records[key].url,
            began=records[key].began,
            ended_by=records[successor[key]].id if key in successor else "",
        )
        for key in keys
    ]
    return TermsAnswer(items=items, continue_=more)


class Member(RouteAnswer, frozen=True, kw_only=True):
    """One process. ``term`` is that of a leader, ``shard`` the one that a binder leads, ``node`` the one node that an
    agent serves, ``nodes`` how many it decides for, ``suspect``: it does not answer and is left out of cycles,
    ``admin_url``: where a coordinator serves this API."""

    service: str
    id: str
    url: str
    leading: bool = False
    term: int = 0
    shard: str = ""
    node: str = ""
    nodes: int = 0
    suspect: bool = False
    incarnation: str = ""
    version: str = ""
    admin_url: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)


class MembersQuery(PageQuery, frozen=True, kw_only=True):
    """``service``: only these; thousands of agents may stand before the others."""

    service: Literal["", "agent", "binder", "coordinator", "learner"] = ""


class MembersAnswer(RoutePage, frozen=True, kw_only=True):
    """By service and id."""

    items: list[Member]


async def members(desk: Desk, ask: Ask[MembersQuery, Any]) -> MembersAnswer:
    """Everyone, or everyone of a service."""
    wanted = ask.query.service
    known = {key: one for key, one in (await read_members(desk)).items() if wanted in ("", one.service)}
    keys, more = page(known, ask.query, str)
    return MembersAnswer(items=[known[key] for key in keys], continue_=more)


async def read_members(desk: Desk) -> dict[str, Member]:
    """By ``service/id``. Unknown: ``StoreUnknown``."""
    keys, registry = desk.keys, desk.registry
    found: dict[str, Member] = {}
    ours = titles_of(desk.settings.plugins, desk.settings.power_curves, desk.settings.load_parts)
    ours += profile_titles(desk.settings.served())
    prefixes = [keys.members_prefix(service) for service in REGISTERED]
    *registered, binders = await asyncio.gather(*map(registry.listed, [*prefixes, keys.binders_prefix]))
    for listing in registered:
        for kv in listing:
            if (member := _registered(keys, kv, ours)) is not None:
                found[f"{member.service}/{member.id}"] = member
    if (leader := desk.leader) is not None:
        record, term = leader
        _lead(found, "coordinator", record.identity, record.url, record.incarnation, term)
    for kv in binders:
        binder = decode_leader(kv.value) if kv.key.endswith("/leader") else None
        if binder is not None:
            shard = keys.last_part(kv.key.removesuffix("/leader"))
            _lead(found, "binder", binder.identity, binder.url, binder.incarnation, kv.create_revision, shard)
    core = desk.admin.core
    if core is not None:
        for agent, view in core.registry.views.items():
            found[f"agent/{agent}"] = Member(
                service="agent",
                id=agent,
                url=view.record.url,
                node=view.record.node,
                nodes=core.registry.ownership.sizes.get(agent, 0),
                suspect=view.suspect,
                incarnation=view.record.incarnation,
                version=view.record.version,
                warnings=_warnings("agent", view.record, ours, suspect=view.suspect),
            )
    return found


def _registered(keys: Keys, kv: KeyValue, ours: tuple[str, ...]) -> Member | None:
    service = keys.last_part(kv.key.rpartition("/")[0])
    kind: type[MemberRecord] | type[LearnerRecord] = LearnerRecord if service == "learner" else MemberRecord
    record = decode_record(kv.value, kind)
    if record is None:
        return None
    return Member(
        service=service,
        id=record.id,
        url=record.url,
        incarnation=record.incarnation,
        version=record.version,
        admin_url=record.admin_url if isinstance(record, MemberRecord) else "",
        warnings=_warnings(service, record, ours),
    )


def _lead(
    found: dict[str, Member], service: str, name: str, url: str, incarnation: str, term: int, shard: str = ""
) -> None:
    """Note who leads; one that has no registration of its own is there by its leadership."""
    member = found.get(f"{service}/{name}") or Member(service=service, id=name, url=url, incarnation=incarnation)
    found[f"{service}/{name}"] = msgspec.structs.replace(member, leading=True, term=term, shard=shard)


def _warnings(
    service: str, record: AgentRecord | LearnerRecord | MemberRecord, ours: tuple[str, ...], *, suspect: bool = False
) -> list[str]:
    told = list(record.warnings)
    if record.protocol != PROTOCOL:
        told.append(f"speaks protocol {record.protocol}, this leader speaks {PROTOCOL}: run one version")
    if not isinstance(record, LearnerRecord) and (text := plugins_differ(service, record.plugins, ours)):
        told.append(text)
    if suspect:
        told.append("does not answer in time; its nodes get no pods until it does")
    return told


class Partition(RouteAnswer, frozen=True, kw_only=True):
    """One agent's. ``node``: the one node it serves (a DaemonSet's agent), empty for any; ``revision``: of the view it
    was sent; ``pending``: nodes of which it has not been told yet."""

    id: str
    node: str
    nodes: int
    revision: int
    pending: int
    suspect: bool


class PartitionsAnswer(RouteAnswer, frozen=True, kw_only=True):
    """``epoch`` grows with each dealing. ``unowned``: the first names of the ``unowned_count`` nodes."""

    epoch: int
    agents: list[Partition]
    unowned: list[str]
    unowned_count: int


async def partitions(desk: Desk, _: Ask[Any, Any]) -> PartitionsAnswer:
    """The partition in force."""
    registry = desk.core.registry
    ownership = registry.ownership
    return PartitionsAnswer(
        epoch=ownership.epoch,
        agents=[
            Partition(
                id=agent,
                node=view.record.node,
                nodes=ownership.sizes.get(agent, 0),
                revision=view.revision,
                pending=len(view.pending),
                suspect=view.suspect,
            )
            for agent, view in sorted(registry.views.items())
        ],
        unowned=nsmallest(MOST_NAMES, ownership.unowned),
        unowned_count=len(ownership.unowned),
    )


ROUTES = (
    row("GET", "/v1/leader", Role.VIEWER, "Who leads", leader),
    row("GET", "/v1/terms", Role.VIEWER, "The last terms of leadership: the failovers", terms, fresh_s=SLOW_FRESH_S),
    row(
        "GET", "/v1/members", Role.VIEWER, "Coordinators, binders, agents and learners", members, cost=5,
        fresh_s=SLOW_FRESH_S,
    ),
    row("GET", "/v1/partitions", Role.VIEWER, "Which agent decides for how many nodes", partitions),
)  # fmt: skip
