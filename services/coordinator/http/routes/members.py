"""Who is there: coordinators, binders, agents, learners, as etcd has them and as the leader knows them."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from services.coordinator.http.access import Role
from services.coordinator.http.desk import REGISTERED, Desk
from services.coordinator.http.pages import PageQuery, page
from services.coordinator.http.routing import SLOW_FRESH_S, Answer, Ask, Page, Route
from shared.election.record import decode_record as decode_leader
from shared.ports import KeyValue
from shared.runtime.process.plugins import plugins_of
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, LearnerRecord, MemberRecord, decode_record, plugins_differ

PROTOCOL = 1


class Member(Answer, frozen=True, kw_only=True):
    """One process. ``term`` is that of a leader, ``node`` the one node that an agent serves, ``nodes`` how many it
    decides for, ``suspect``: it does not answer and is left out of rounds, ``admin_url``: where a coordinator serves
    this API."""

    service: str
    id: str
    url: str
    leading: bool = False
    term: int = 0
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


class MembersAnswer(Page, frozen=True, kw_only=True):
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
    ours = plugins_of(desk.settings.plugins).titles
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
            _lead(found, "binder", binder.identity, binder.url, binder.incarnation, kv.create_revision)
    core = desk.admin.core
    if core is not None:
        for agent, view in core.roster.views.items():
            found[f"agent/{agent}"] = Member(
                service="agent",
                id=agent,
                url=view.record.url,
                node=view.record.node,
                nodes=core.roster.ownership.sizes.get(agent, 0),
                suspect=view.suspect,
                incarnation=view.record.incarnation,
                version=view.record.version,
                warnings=_warnings("agent", view.record, ours, suspect=view.suspect),
            )
    return found


def _registered(keys: Keys, kv: KeyValue, ours: tuple[str, ...]) -> Member | None:
    service = keys.last_part(kv.key.rpartition("/")[0])
    record = _learner(kv) if service == "learner" else decode_record(kv.value, MemberRecord)
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


def _learner(kv: KeyValue) -> MemberRecord | LearnerRecord | None:
    return decode_record(kv.value, LearnerRecord)


def _lead(found: dict[str, Member], service: str, name: str, url: str, incarnation: str, term: int) -> None:
    """Note who leads; one that has no registration of its own is there by its leadership."""
    member = found.get(f"{service}/{name}") or Member(service=service, id=name, url=url, incarnation=incarnation)
    found[f"{service}/{name}"] = msgspec.structs.replace(member, leading=True, term=term)


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


ROUTES = (
    Route(
        method="GET", path="/v1/members", role=Role.VIEWER, summary="Coordinators, binders, agents and learners",
        answer=MembersAnswer, query=MembersQuery, handler=members, cost=5, fresh_s=SLOW_FRESH_S,
    ),
)  # fmt: skip
