"""``conclave policy list|show|activate|promote|rollback``: which policy decides, and changing that by hand.

A change is one compare-and-swap of the pointer in etcd; agents follow it by themselves. Whatever is activated is
compared with what decided before for as long as it is in shadow or in the canary; it stays there until it is promoted,
and goes again by itself when it is worse (docs/policies/rollout.md). It refuses weights that the policy would refuse,
before anything is written. Where a server is named the leading coordinator is asked to do it, by the same rules;
weights from a file need etcd.
"""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from services.cli.etcd.options import etcd_options, settings_of, with_store
from services.cli.etcd.policy_view import (
    CHANGES,
    POLICIES,
    card_lines,
    history_lines,
    listing,
    pointer_json,
    pointer_lines,
    window_lines,
)
from services.cli.listing.options import list_options
from services.cli.listing.wanted import Found, Wanted
from services.cli.server.choice import chosen_server, etcd_part
from services.cli.server.completion_names import complete_policies
from services.cli.server.options import server_options
from services.cli.terminal.watching import output_option, tell
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.ports import Store
    from shared.wire.keys import Keys
    from shared.wire.records import PolicyPointer, PolicyRef


@click.group()
def policy() -> None:
    """Show which policy decides, activate another one, promote it step by step, or roll back."""


@policy.command("list")
@list_options(POLICIES)
@etcd_options
@click.pass_context
def list_policies(here: click.Context, /, wanted: Wanted, **options: Any) -> None:
    """List the policies there are: built in, shipped with weights, and published in ETCD."""
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        click.echo("\n".join(wanted.text(Found(policies.listed(target)))))
        return

    async def work(store: Store, keys: Keys) -> list[dict[str, Any]]:
        from shared.runtime.records.policies import read_history, read_pointer

        return listing((await read_pointer(store, keys)).pointer, await read_history(store, keys))

    rows = asyncio.run(with_store(settings_of(**etcd_part(options)), work))
    click.echo("\n".join(wanted.text(Found(rows))))


@policy.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@server_options
@etcd_options
@output_option
@click.pass_context
def show(here: click.Context, /, name: str | None, output: str, **options: Any) -> None:
    """Show the pointer, how the candidate does and what comes next; with NAME (NAME@VERSION or a digest) the card of
    those weights."""
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        tell(output, *(policies.shown(target) if name is None else policies.card(target, name)))
        return

    async def work(store: Store, keys: Keys) -> tuple[dict[str, Any], list[str]]:
        from shared.runtime.records.policies import read_history, read_pointer, read_windows
        from shared.runtime.records.policy_changes import card_named

        if name is not None:
            _, card = await card_named(store, keys, name)
            return card, card_lines(card)
        stored, history = await read_pointer(store, keys), await read_history(store, keys)
        windows = (await read_windows(store, keys))[-CHANGES:]
        found = pointer_json(stored.pointer, history) | {"windows": msgspec.to_builtins(windows[::-1])}
        return found, [*pointer_lines(stored.pointer), *window_lines(windows), *history_lines(history)]

    found, lines = asyncio.run(with_store(settings_of(**etcd_part(options)), work))
    tell(output, found, lines)


@policy.command()
@click.argument("name", shell_complete=complete_policies)
@click.option("--weights", type=click.Path(path_type=Path), help="Weights file (.npz); default: published or shipped.")
@click.option(
    "--stage",
    type=click.Choice(["shadow", "canary", "active"]),
    default="canary",
    show_default=True,
    help="shadow: decides, does not count; canary: decides for --percent of the pods; active: at once, not compared.",
)
@click.option("--percent", type=click.IntRange(1, 100), help="Share of pods in the canary; default 100.")
@click.option(
    "--auto/--manual",
    "auto",
    default=None,
    help="Whether good windows promote it, or 'conclave policy promote' alone; default: the setting rollout_promotion.",
)
@click.option(
    "--goal",
    type=click.Choice(["neutral", "balance", "packing", "room"]),
    help="By which both policies are compared; default: the setting rollout_goal.",
)
@click.option("--reason", default="", help="For the history.")
@click.option("--new-mesh", is_flag=True, help="Prepare a mesh that has never run under --etcd-prefix.")
@server_options
@etcd_options
@output_option
@click.pass_context
def activate(
    here: click.Context,
    /,
    name: str,
    weights: Path | None,
    stage: str,
    percent: int | None,
    auto: bool | None,
    goal: str | None,
    reason: str,
    new_mesh: bool,
    output: str,
    **options: Any,
) -> None:
    """Let the policy NAME (NAME, NAME@VERSION or a digest) decide; by default for every pod, compared until you promote
    it."""
    if percent is not None and stage != "canary":
        raise ConfigError(f"--percent: belongs to --stage canary; leave it out with {stage}")
    if stage == "active" and (auto is not None or goal is not None):
        given = "--goal" if auto is None else "--auto" if auto else "--manual"
        raise ConfigError(f"{given}: an active policy is compared with nothing; leave it out with --stage active")
    promotion = "" if auto is None else "auto" if auto else "manual"
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        if weights is not None:
            raise ConfigError("--weights: a file goes into etcd; give --etcd, or activate what is published or shipped")
        if new_mesh:
            raise ConfigError("--new-mesh: a server's mesh runs already; give --etcd, or leave --new-mesh out")
        tell(output, *policies.activated(target, name, stage, percent, reason, promotion, goal))
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.policy.rollout.rollout import Stage
        from shared.runtime.records.policy_changes import activate, mesh_known

        given = _from_file(name, weights) if weights is not None else None
        if not new_mesh and not await mesh_known(store, keys):
            raise ConfigError(
                f"--etcd-prefix: no mesh has ever been under {keys.prefix} of this etcd; mend --etcd-prefix or --etcd, "
                "or give --new-mesh to prepare one before it starts"
            )
        return await activate(
            store, keys, name, stage=Stage(stage), percent=percent, by=_me(), reason=reason, promotion=promotion,
            goal=goal or "", weights=given, new_mesh=new_mesh, say=_say,
        )  # fmt: skip

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd_part(options)), work)))


@policy.command()
@click.argument("name", shell_complete=complete_policies)
@click.option("--to", type=click.Choice(["canary", "active"]), help="A stage, in place of the next step.")
@click.option("--percent", type=click.IntRange(1, 100), help="A share of the pods, in place of the next step's.")
@click.option("--reason", default="", help="For the history.")
@server_options
@etcd_options
@output_option
@click.pass_context
def promote(
    here: click.Context,
    /,
    name: str,
    to: str | None,
    percent: int | None,
    reason: str,
    output: str,
    **options: Any,
) -> None:
    """Take the candidate NAME one step further: shadow, canary at 1, 10, 50, 100 % of the pods, active."""
    if percent is not None and to == "active":
        raise ConfigError("--percent: belongs to the canary; leave it out with --to active")
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        tell(output, *policies.promoted(target, name, to, percent, reason))
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.policy.rollout.rollout import Stage
        from shared.runtime.records.policy_changes import promote

        stage = Stage(to) if to is not None else None
        return await promote(store, keys, name, to=stage, percent=percent, by=_me(), reason=reason)

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd_part(options)), work)))


@policy.command()
@click.option("--reason", default="rolled back by hand", help="For the history.")
@server_options
@etcd_options
@output_option
@click.pass_context
def rollback(here: click.Context, /, reason: str, output: str, **options: Any) -> None:
    """Withdraw the candidate; where there is none, let the policy before the active one decide again."""
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why, or leave it out")
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        tell(output, *policies.rolled_back(target, reason))
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.runtime.records.policy_changes import withdraw

        return await withdraw(store, keys, by=_me(), reason=reason)

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd_part(options)), work)))


def _from_file(name: str, file: Path) -> tuple[PolicyRef, bytes]:
    from shared.runtime.records.policy_changes import from_bytes

    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--weights: {file}: {error.strerror}; give a weights file that can be read") from None
    return from_bytes(name, data, source=str(file))


def _say(line: str) -> None:
    click.echo(line, err=True)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def _show_changed(output: str, pointer: PolicyPointer) -> None:
    tell(output, pointer_json(pointer, []), pointer_lines(pointer))
