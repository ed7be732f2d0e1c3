"""Changing which policy decides, by hand: the rules that ``conclave policy`` and the admin API share.

    name or digest --> published here, or shipped --> weights checked and kept in etcd --> pointer by compare-and-swap

It refuses weights that the policy would refuse, before anything is written, and a name that is neither published nor
shipped. To activate and to withdraw says what shall be, and is tried again when somebody else was quicker; to promote
says one step from what was seen, and is refused then. What a stage means stands in ``policy/rollout.py``.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from shared.decide.stages import RolloutStep, Stage, left_out
from shared.errors import ConfigError, Conflict
from shared.policy.domain import PLACEMENT
from shared.policy.numbering import numbered
from shared.policy.registry import MixtureInvalid, bytes_of, goal_of, is_mixture, load_policy, ref_of, reference
from shared.policy.rollout import rollout
from shared.policy.rollout.outcome import GoalUnknown
from shared.policy.rollout.rollout import BUILT_IN, PointerChange, first_pointer, publish, roll_back, to_stage
from shared.policy.weights import decode, digest, shipped, shipped_bytes, shipped_names
from shared.ports import Store
from shared.runtime.records.policies import (
    HistoryRecord,
    get_weights,
    newest_change,
    read_history,
    read_pointer,
    refs_of,
    write_change,
)
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef, decode_record

ATTEMPTS = 5
LATELY_S = 5.0
"""Two operators who promote within so short a time have both looked at the step before."""


class PolicyUnknown(ConfigError):
    """No policy of that name or digest is published, shipped or built in, or its weights are gone."""

    code = "policy_unknown"


async def activate(
    store: Store,
    keys: Keys,
    name: str,
    *,
    stage: Stage,
    percent: int | None,
    by: str,
    reason: str = "",
    promotion: str = "",
    goal: str = "",
    weights: tuple[PolicyRef, bytes] | None = None,
    new_mesh: bool = False,
    lacking: str = "windows were not looked at",
    say: Callable[[str], None] = lambda _: None,
) -> PolicyPointer:
    """Let the policy ``name`` (NAME, NAME@VERSION or a digest) decide; the pointer afterwards.

    ``percent``: of a canary, None for all; ``promotion``, ``goal``: of the candidate, "" for what holds for it or is
    set; ``weights``: from a file (``from_bytes``), None: published or shipped;
    ``say`` is told when they are numbered on, since others have their title. Weights and pointer are one transaction.
    ``new_mesh``: nobody has led yet; what decides beside a candidate is ``kube-default``. ``lacking``: of the candidate
    that there is, as in ``promote``; who takes it further without is recorded as having forced it, and so is who lets a
    policy decide at once, or skips the candidate's canary (R6).
    Refused: ``PolicyUnknown``; ``ConfigError`` for what the rollout does not allow now; ``Conflict`` before the leader
    has written the mesh's own policy. Unknown: ``StoreUnknown``.
    """
    if percent is not None and stage is not Stage.CANARY:
        raise ConfigError(f"percent: belongs to the stage canary; leave it out with {stage}")
    if stage is Stage.ACTIVE and (promotion or goal):
        given = "promotion" if promotion else "goal"
        raise ConfigError(f"{given}: an active policy is compared with nothing; leave it out with {stage}")

    async def change(pointer: PolicyPointer | None) -> tuple[PointerChange | None, bytes | None]:
        ref, data = await _chosen(store, keys, name, weights, pointer, say)
        if pointer is None and not new_mesh:
            raise Conflict(
                "policies/active: the leader has not written yet which policy is the mesh's own; repeat in a moment"
            )
        before = pointer or first_pointer(BUILT_IN, number=await newest_change(store, keys))
        if ref == before.active and before.candidate is None:
            kept = data is None or await get_weights(store, keys, ref.sha256) is not None
            return (None if pointer is not None and kept else _joined(before, PointerChange(before, before))), data
        made_for = "" if stage is Stage.ACTIVE else await _made_for(store, keys, ref, data, instead=goal)
        step = publish(before, ref, by=by) if before.candidate != ref else None
        share = (percent or 100) if stage is Stage.CANARY else 0
        told = reason or f"{ref.title} {'activated' if stage is Stage.ACTIVE else f'taken to {stage}'} by hand"
        further = step is None and (stage is Stage.CANARY and share > before.percent)
        unproven = stage is Stage.ACTIVE or further
        skips = left_out(before.stage, before.percent, RolloutStep(stage, share), PLACEMENT.shares, title=ref.title)
        forced = unproven and (step is not None or bool(lacking or skips))
        moved = to_stage(step.after if step else before, stage, share, reason=told, by=by, forced=forced)
        after = msgspec.structs.replace(
            moved.after, promotion=promotion or moved.after.promotion, goal=goal or moved.after.goal,
            made_for=made_for,
        )  # fmt: skip
        return _joined(before, PointerChange(before, after)), data

    return await _swap(store, keys, change)


async def promote(
    store: Store,
    keys: Keys,
    name: str,
    *,
    to: Stage | None,
    percent: int | None,
    by: str,
    reason: str = "",
    number: int | None = None,
    lately_s: float = LATELY_S,
    lacking: str = "",
    force: bool = False,
) -> PolicyPointer:
    """Take the candidate, which ``name`` names, further (``rollout.promote``); the pointer afterwards.

    ``lacking``: what it lacks of windows that speak for it, by whoever counts them; ``force``: take it further all the
    same, and record it as forced.
    ``number``: of the pointer that it is to be taken from, None for whatever it is now. Somebody else's step in the
    last ``lately_s`` counts as one that the caller has not seen. Refused: ``ConfigError`` for another candidate or no
    step forward; ``TooFewWindows``; ``Conflict`` when somebody else was quicker: what would be the next step now is
    not what was asked for. Unknown: ``StoreUnknown``.
    """
    stored = await read_pointer(store, keys)
    pointer = stored.pointer
    if pointer is None:
        raise ConfigError("policy: no policy has been activated here; there is nothing to promote")
    if number is not None and number != pointer.number:
        raise Conflict(_overtaken(pointer))
    candidate = pointer.candidate
    if candidate is not None and not names(name, candidate):
        raise ConfigError(f"policy: {name} is not the candidate; {candidate.title} is")
    if await _stepped_lately(store, keys, pointer, by=by, lately_s=lately_s):
        raise Conflict(_overtaken(pointer))
    told = reason or "promoted by hand"
    change = rollout.promote(pointer, to=to, percent=percent, reason=told, by=by, lacking=lacking, force=force)
    if await write_change(store, keys, change, stored.mod_revision):
        return change.after
    now = (await read_pointer(store, keys)).pointer
    raise Conflict(_overtaken(now or pointer))


def names(name: str, ref: PolicyRef) -> bool:
    """Whether the text names the policy: NAME, NAME@VERSION, or a digest's first 8 characters or more."""
    return name in (ref.name, ref.title) or (len(name) >= 8 and ref.sha256.startswith(name))


async def _stepped_lately(store: Store, keys: Keys, pointer: PolicyPointer, *, by: str, lately_s: float) -> bool:
    """Whether the last change was another's step of the candidate that there is, just now."""
    if pointer.candidate is None or pointer.by == by:
        return False
    records = [await store.get(keys.policy_history(pointer.number - back)) for back in (0, 1)]
    last, before = (decode_record(kv.value, HistoryRecord) if kv is not None else None for kv in records)
    if last is None or before is None or before.pointer.candidate != pointer.candidate:
        return False
    ago = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(last.at)
    return ago.total_seconds() < lately_s


def _overtaken(now: PolicyPointer) -> str:
    share = f" {now.percent} %" if now.percent else ""
    holds = f"{now.candidate.title} is at {now.stage}{share}" if now.candidate is not None else "there is no candidate"
    return (
        f"policy: the pointer has just changed ({now.reason}, by {now.by}): {holds}; nothing was promoted, look "
        "and repeat"
    )


async def mesh_known(store: Store, keys: Keys) -> bool:
    """Whether a mesh is, has been or was prepared under the prefix: somebody led, is registered, or a pointer is there.

    Unknown: ``StoreUnknown``.
    """
    for key in (keys.policies_active, keys.coordinator_leader):
        if await store.get(key) is not None:
            return True
    for prefix in (keys.coordinator_terms_prefix, keys.agents_prefix, keys.binders_prefix, keys.every_members_prefix):
        if (await store.list_prefix(prefix)).items:
            return True
    return False


async def withdraw(store: Store, keys: Keys, *, by: str, reason: str) -> PolicyPointer:
    """Withdraw the candidate; where there is none, let the policy before the active one decide again.

    Refused: ``ConfigError``, there is nothing to go back to. Unknown: ``StoreUnknown``.
    """

    async def change(pointer: PolicyPointer | None) -> tuple[PointerChange | None, bytes | None]:
        if pointer is None:
            raise ConfigError("policy: no policy has been activated here; there is nothing to roll back")
        return roll_back(pointer, reason=reason, by=by), None

    return await _swap(store, keys, change)


def find(name: str, pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> PolicyRef | None:
    """The newest published one that the text names: ``name@version``, or a digest's first 8 characters or more."""
    for ref in refs_of(pointer, history):
        by_digest = len(name) >= 8 and ref.sha256.startswith(name)
        if ref.title == name or by_digest:
            return ref
    return None


def at_hand(name: str) -> PolicyRef:
    """A heuristic, or the policy whose weights come with the package. ``PolicyUnknown`` for another name."""
    bare, _, version = name.partition("@")
    try:
        ref = ref_of(bare)
    except MixtureInvalid:
        raise
    except ConfigError as error:
        raise PolicyUnknown(str(error)) from error
    if version and version != str(ref.version):
        raise PolicyUnknown(
            f"policy: {name} is neither published here nor shipped ({ref.title} is); see 'conclave policy list'"
        )
    return ref


def from_bytes(name: str, data: bytes, *, goal: str = "") -> tuple[PolicyRef, bytes]:
    """A weights file of the policy NAME or NAME@VERSION, checked. ``ConfigError``: the policy refuses them; their card
    names a goal that nobody knows, and no ``goal`` is to count instead."""
    bare, _, version = name.partition("@")
    file = decode(data, policy=bare)
    load_policy(bare, data=data, sha256=digest(data))
    if version and version != str(file.card.version):
        raise ConfigError(f"weights of {file.title}: {name} was asked for; name the version that they have")
    if not goal:
        goal_of(bare, file.card)
    return reference(file), data


async def card_of(store: Store, keys: Keys, ref: PolicyRef) -> dict[str, Any]:
    """The card of a policy's weights, checked. ``PolicyUnknown``: they are gone; ``ConfigError``: refused."""
    if not ref.sha256:
        goal = {"goal": found} if (found := goal_of(ref.name)) else {}
        return {"policy": ref.name, "version": ref.version, "weights": "none: a heuristic", **goal}
    data = await _weights_of(store, keys, ref)
    if data is None:
        raise PolicyUnknown(f"policy: the weights of {ref.title} are no longer kept; give them with --weights FILE")
    return await asyncio.to_thread(_checked_card, ref, data)  # a leader has pods to place meanwhile


async def card_named(store: Store, keys: Keys, name: str) -> tuple[PolicyRef, dict[str, Any]]:
    """(reference, card) of the policy that the text names, published or at hand. As ``card_of``."""
    stored, history = await read_pointer(store, keys), await read_history(store, keys)
    ref = find(name, stored.pointer, history)
    if ref is None:
        ref = await asyncio.to_thread(at_hand, name)
    return ref, await card_of(store, keys, ref)


def _checked_card(ref: PolicyRef, data: bytes) -> dict[str, Any]:
    load_policy(ref.name, data=data, sha256=ref.sha256)
    card = decode(data, policy=ref.name, sha256=ref.sha256).card
    goal = {"goal": found} if card.goal is msgspec.UNSET and (found := goal_of(ref.name)) else {}
    told: dict[str, Any] = msgspec.to_builtins(card)
    return {**told, **goal, "sha256": ref.sha256, "bytes": len(data)}


async def _weights_of(store: Store, keys: Keys, ref: PolicyRef) -> bytes | None:
    """As published, else as shipped."""
    data = await get_weights(store, keys, ref.sha256)
    return shipped_bytes(ref.name) if data is None and ref.name in shipped_names() else data


async def _made_for(store: Store, keys: Keys, ref: PolicyRef, data: bytes | None, *, instead: str) -> str:
    """The goal that a candidate's card names; "" for none. Raises ``GoalUnknown`` for one that no roll-out can compare
    by, unless its operator names one ``instead``."""
    if ref.sha256 and data is None:
        data = await _weights_of(store, keys, ref)
    try:
        if data is None:
            return goal_of(ref.name)
        file = await asyncio.to_thread(decode, data, policy=ref.name)  # a leader has pods to place meanwhile
        return goal_of(ref.name, file.card)
    except GoalUnknown:
        if not instead:
            raise
        return ""


def _shipped(name: str) -> tuple[PolicyRef, bytes | None]:
    ref = at_hand(name)
    return ref, bytes_of(name if is_mixture(name) else ref.name)


async def _chosen(
    store: Store,
    keys: Keys,
    name: str,
    weights: tuple[PolicyRef, bytes] | None,
    pointer: PolicyPointer | None,
    say: Callable[[str], None],
) -> tuple[PolicyRef, bytes | None]:
    """The policy that is asked for, and the bytes that must go to etcd with it; None: none must.

    Weights whose title others have are numbered on. ``ConfigError``: they are refused, or gone, or NAME says a version
    that others have.
    """
    history = await read_history(store, keys)
    published = find(name, pointer, history) if weights is None else None
    if published is not None:
        card = await card_of(store, keys, published)
        kept = "sha256" not in card or await get_weights(store, keys, published.sha256) is not None
        return published, None if kept else shipped_bytes(published.name)  # agents can take them from nowhere else
    ref, data = weights if weights is not None else _shipped(name)
    if data is None:
        return ref, None
    # a leader has pods to place meanwhile: the weights are written anew for each version that others have
    found, titled = await asyncio.to_thread(_titled, name, ref, data, refs_of(pointer, history))
    if found.version != ref.version:
        say(f"{ref.title} names other weights already; these are {found.title}")
    return found, titled


def _titled(name: str, ref: PolicyRef, data: bytes, known: list[PolicyRef]) -> tuple[PolicyRef, bytes]:
    """The weights under a title that is theirs alone."""
    if ref.name in shipped_names():
        file = shipped(ref.name)
        known = [*known, PolicyRef(ref.name, file.card.version, file.sha256)]
    titled = numbered(data, ref.name, known)
    found = reference(decode(titled, policy=ref.name))
    if found.version == ref.version:
        return ref, titled
    if "@" in name:
        raise ConfigError(
            f"policy: {ref.title} names other weights already; ask for {ref.name}, these become {found.title}"
        )
    return found, titled


Changing = Callable[[PolicyPointer | None], Awaitable[tuple[PointerChange | None, bytes | None]]]


async def _swap(store: Store, keys: Keys, change: Changing) -> PolicyPointer:
    """Read, change, compare and swap; again when somebody else was quicker."""
    for _ in range(ATTEMPTS):
        stored = await read_pointer(store, keys)
        wanted, weights = await change(stored.pointer)
        if wanted is None:
            assert stored.pointer is not None
            return stored.pointer
        if await write_change(store, keys, wanted, stored.mod_revision, weights=weights):
            return wanted.after
    raise ConfigError("policy: somebody else changes the pointer all the time; look with 'conclave policy show'")


def _joined(before: PolicyPointer, change: PointerChange) -> PointerChange:
    """Publishing and moving as one change, with one number."""
    return PointerChange(before, msgspec.structs.replace(change.after, number=before.number + 1))
