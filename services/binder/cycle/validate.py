"""What must hold of every unit on its way between two turns: one line per invariant that does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from services.binder.core.gangs import GangStage, InFlightGang
from services.binder.core.in_flight import BindingStage
from services.binder.core.state import BinderState
from services.binder.cycle.commit import Committer
from services.binder.cycle.line import BindingLine

ASSUMED = frozenset({BindingStage.CHECKED, BindingStage.COMMITTED, BindingStage.BINDING, BindingStage.RENEWING})
"""Stages in which the unit's node counts it."""

STORED = frozenset(
    {BindingStage.COMMITTED, BindingStage.BINDING, BindingStage.READING, BindingStage.RENEWING, BindingStage.MARKING}
)
"""Stages in which the unit's intent is in etcd."""


def problems(state: BinderState, committer: Committer, line: BindingLine, leaving: Collection[str]) -> Iterator[str]:
    """Units that nothing will move on, or that are not accounted where they are to go. ``leaving``: whose claims are
    being given back."""
    bound_next = line.waiting()
    for uid, binding in state.in_flight.items():
        if binding.uid != uid:
            yield f"unit-key: {binding.uid} is kept under {uid}"
        gang = state.gangs.get(binding.gang)
        if binding.gang and (gang is None or uid not in gang.members):
            yield f"gang-members: {uid} is on its way with {binding.gang}, which does not know it"
        paused = uid in state.paused
        match binding.stage:
            case BindingStage.CHECKED:
                goes_on = committer.waits(uid) if gang is None else True  # the gang's own line below
            case BindingStage.RENEWING:
                goes_on = any(map(committer.waits, [uid] if gang is None else gang.keys))
            case BindingStage.COMMITTED:
                goes_on = paused or uid in bound_next or (gang is not None and gang.stage is not GangStage.BINDING)
                goes_on |= binding.withdrawing is not None and uid in leaving
            case BindingStage.AWAITED | BindingStage.READING | BindingStage.MARKING:
                goes_on = paused or binding.asking
            case stage:
                goes_on = stage is BindingStage.BINDING
        if not goes_on:
            yield f"goes-on: {uid} is {binding.stage.value} and nothing will move it on"
        account = state.cache.accounts.get(uid)
        if binding.stage in ASSUMED and (account is None or account.node_name != binding.node):
            yield f"assumed: {uid} is {binding.stage.value} for {binding.node}, which does not count it"
        keys = [uid] if gang is None else [] if gang.over else gang.keys
        if binding.stage in STORED and not all(map(committer.holds, keys)):
            yield f"intent-known: {uid} is {binding.stage.value} and has no intent in etcd"
    for uid in (state.paused.keys() | state.await_volumes) - state.in_flight.keys():
        yield f"waits: {uid} waits for a time or a volume, and is not on its way"
    sent = sum(binding.stage is BindingStage.BINDING for binding in state.in_flight.values())
    # <=: a unit that was settled while its Binding was under way still holds a place in the line (I10).
    if not sent <= line.in_flight <= state.settings.max_bindings:
        yield f"bindings: {sent} units are being bound by {line.in_flight} Bindings in flight"
    for gang in state.gangs.values():
        yield from gang.validate()
        if gang.key in state.touched or not _goes_on(gang, state, committer, leaving):
            yield f"gang-goes-on: {gang.key} is {gang.stage.value} and nothing will move it on"
        for uid in gang.members.keys() - state.in_flight.keys():
            yield f"gang-members: {gang.key} waits for {uid}, which is not on its way"


def _goes_on(gang: InFlightGang, state: BinderState, committer: Committer, leaving: Collection[str]) -> bool:
    members = gang.members.values()
    if gang.over:
        return gang.key in state.unfinished
    match gang.stage:
        case GangStage.GATHERING:
            return gang.coming > 0 or any(member.stage is BindingStage.AWAITED for member in members)
        case GangStage.COMMITTING:
            return any(committer.waits(key) for key in gang.unwritten)
        case GangStage.COMMITTED | GangStage.FAILING:
            waits = any(member.stage is not BindingStage.COMMITTED or member.uid in state.paused for member in members)
            waits |= any(member.uid in leaving for member in members)
            return waits or gang.arriving or gang.key in state.unfinished
        case _:
            return bool(members)
