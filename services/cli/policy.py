"""``conclave policy list|show|activate|rollback``: which policy decides, and changing that by hand.

A change is one compare-and-swap of the pointer in etcd; agents follow it by themselves. Whatever is activated is
compared with what decided before for as long as it is in the canary, and goes again by itself when it is worse
(docs/policies/rollout.md). It refuses weights that the policy would refuse, before anything is written.
"""

from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.etcd_options import etcd_options, settings_of, with_store
from services.cli.policy_view import history_lines, listing, listing_lines, pointer_json, pointer_lines
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.policy.rollout import Change
    from shared.ports import Store
    from shared.runtime.policy_store import StoredPointer
    from shared.wire.keys import Keys
    from shared.wire.records import PolicyPointer, PolicyRef

OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
ATTEMPTS = 5


@click.group()
def policy() -> None:
    """Show which policy decides, activate another one, or roll back."""


@policy.command("list")
@etcd_options
@OUTPUT
def list_policies(output: str, **etcd: Any) -> None:
    """List the policies there are: built in, shipped with weights, and published in ETCD."""

    async def work(store: Store, keys: Keys) -> list[dict[str, Any]]:
        from shared.runtime.policy_store import read_history, read_pointer

        return listing((await read_pointer(store, keys)).pointer, await read_history(store, keys))

    found = asyncio.run(with_store(settings_of(**etcd), work))
    _print(output, found, listing_lines(found))


@policy.command()
@click.argument("name", required=False)
@etcd_options
@OUTPUT
def show(name: str | None, output: str, **etcd: Any) -> None:
    """Show the pointer and its latest changes; with NAME (NAME@VERSION or a digest) the card of those weights."""

    async def work(store: Store, keys: Keys) -> tuple[dict[str, Any], list[str]]:
        from shared.runtime.policy_store import read_history, read_pointer

        stored, history = await read_pointer(store, keys), await read_history(store, keys)
        if name is None:
            return pointer_json(stored.pointer, history), [*pointer_lines(stored.pointer), *history_lines(history)]
        ref = _published(name, stored.pointer, history) or _at_hand(name)
        card = await _card(store, keys, ref)
        return card, [f"{key:<10}{json.dumps(value)}" for key, value in card.items()]

    found, lines = asyncio.run(with_store(settings_of(**etcd), work))
    _print(output, found, lines)


@policy.command()
@click.argument("name")
@click.option("--weights", type=click.Path(path_type=Path), help="Weights file (.npz); default: published or shipped.")
@click.option(
    "--stage",
    type=click.Choice(["shadow", "canary", "active"]),
    default="canary",
    show_default=True,
    help="shadow: decides, does not count; canary: decides for --percent of the pods; active: at once, not compared.",
)
@click.option("--percent", type=click.IntRange(1, 100), help="Share of pods in the canary; default 100.")
@etcd_options
@OUTPUT
def activate(name: str, weights: Path | None, stage: str, percent: int | None, output: str, **etcd: Any) -> None:
    """Let the policy NAME (NAME, NAME@VERSION or a digest) decide; by default for every pod, compared for a while."""
    if percent is not None and stage != "canary":
        raise ConfigError(f"--percent: belongs to --stage canary; leave it out with {stage}")

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.policy.rollout import Change, Stage, first_pointer, publish, to_stage
        from shared.runtime.policy_store import put_weights, read_history, read_pointer

        stored, history = await read_pointer(store, keys), await read_history(store, keys)
        published = _published(name, stored.pointer, history) if weights is None else None
        if published is None:
            ref, data = _from_file(name, weights) if weights is not None else _shipped(name)
            if data is not None:
                await put_weights(store, keys, data)
        else:
            ref = published
            await _card(store, keys, ref)
            await _keep(store, keys, ref)

        def change(pointer: PolicyPointer | None) -> Change | None:
            before = pointer or first_pointer(_default())
            if ref == before.active and before.candidate is None:
                return None if pointer is not None else _joined(before, Change(before, before))
            step = publish(before, ref, by=_me()) if before.candidate != ref else None
            share = (percent or 100) if stage == "canary" else 0
            told = f"{ref.title} activated by hand"
            moved = to_stage(step.after if step else before, Stage(stage), share, reason=told, by=_me())
            return _joined(before, moved)

        return await _swap(store, keys, change)

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd), work)))


@policy.command()
@click.option("--reason", default="rolled back by hand", help="For the history.")
@etcd_options
@OUTPUT
def rollback(reason: str, output: str, **etcd: Any) -> None:
    """Withdraw the candidate; where there is none, let the policy before the active one decide again."""
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why, or leave it out")

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.policy.rollout import roll_back

        def change(pointer: PolicyPointer | None) -> Change | None:
            if pointer is None:
                raise ConfigError("policy: no policy has been activated here; there is nothing to roll back")
            return roll_back(pointer, reason=reason, by=_me())

        return await _swap(store, keys, change)

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd), work)))


async def _swap(store: Store, keys: Keys, change: Any) -> PolicyPointer:
    """Read, change, compare and swap; again when somebody else was quicker."""
    from shared.runtime.policy_store import read_pointer, write_change

    for _ in range(ATTEMPTS):
        stored: StoredPointer = await read_pointer(store, keys)
        wanted = change(stored.pointer)
        if wanted is None:
            assert stored.pointer is not None
            return stored.pointer
        if await write_change(store, keys, wanted, stored.mod_revision):
            after: PolicyPointer = wanted.after
            return after
    raise ConfigError("policy: somebody else changes the pointer all the time; look with 'conclave policy show'")


def _joined(before: PolicyPointer, change: Change) -> Change:
    """Publishing and moving as one change, with one number."""
    import msgspec

    from shared.policy.rollout import Change

    return Change(before, msgspec.structs.replace(change.after, number=before.number + 1))


def _published(name: str, pointer: PolicyPointer | None, history: list[Any]) -> PolicyRef | None:
    """The newest published one that the text names: ``name@version``, or a digest's first 8 characters or more."""
    from services.cli.policy_view import refs_of

    for ref in refs_of(pointer, history):
        by_digest = len(name) >= 8 and ref.sha256.startswith(name)
        if ref.title == name or by_digest:
            return ref
    return None


def _shipped(name: str) -> tuple[PolicyRef, bytes | None]:
    """A heuristic, or the weights that come with the package."""
    from shared.policy.registry import HEURISTICS
    from shared.policy.weights import shipped_bytes

    ref = _at_hand(name)
    return ref, None if ref.name in HEURISTICS else shipped_bytes(ref.name)


def _at_hand(name: str) -> PolicyRef:
    from shared.policy.registry import ref_of

    bare, _, version = name.partition("@")
    ref = ref_of(bare)
    if version and version != str(ref.version):
        raise ConfigError(
            f"policy: {name} is neither published here nor shipped ({ref.title} is); see 'conclave policy list'"
        )
    return ref


def _from_file(name: str, file: Path) -> tuple[PolicyRef, bytes]:
    from shared.policy.registry import load_policy
    from shared.policy.weights import decode, digest
    from shared.wire.records import PolicyRef

    bare, _, version = name.partition("@")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--weights: {file}: {error.strerror}; give a weights file that can be read") from None
    card = decode(data, policy=bare).card
    load_policy(bare, data=data, sha256=digest(data))
    if version and version != str(card.version):
        raise ConfigError(f"--weights: {file} holds version {card.version}, {name} was asked for; name that one")
    return PolicyRef(bare, card.version, digest(data)), data


async def _card(store: Store, keys: Keys, ref: PolicyRef) -> dict[str, Any]:
    """The card of a policy's weights, checked. ``ConfigError``: they are gone or refused."""
    import msgspec

    from shared.policy.registry import load_policy
    from shared.policy.weights import decode, shipped_bytes, shipped_names
    from shared.runtime.policy_store import get_weights

    if not ref.sha256:
        return {"policy": ref.name, "version": ref.version, "weights": "none: a heuristic"}
    data = await get_weights(store, keys, ref.sha256)
    if data is None and ref.name in shipped_names():
        data = shipped_bytes(ref.name)
    if data is None:
        raise ConfigError(f"policy: the weights of {ref.title} are no longer kept; give them with --weights FILE")
    load_policy(ref.name, data=data, sha256=ref.sha256)
    card: dict[str, Any] = msgspec.to_builtins(decode(data, policy=ref.name, sha256=ref.sha256).card)
    return {**card, "sha256": ref.sha256, "bytes": len(data)}


async def _keep(store: Store, keys: Keys, ref: PolicyRef) -> None:
    """Put shipped weights back whose copy in etcd has been forgotten: agents have no other place to take them from."""
    from shared.policy.weights import shipped_bytes
    from shared.runtime.policy_store import get_weights, put_weights

    if ref.sha256 and await get_weights(store, keys, ref.sha256) is None:
        await put_weights(store, keys, shipped_bytes(ref.name))


def _default() -> PolicyRef:
    from shared.policy.rollout import BUILT_IN

    return BUILT_IN


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def _show_changed(output: str, pointer: PolicyPointer) -> None:
    _print(output, pointer_json(pointer, []), pointer_lines(pointer))


def _print(output: str, found: Any, lines: list[str]) -> None:
    click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(lines))
