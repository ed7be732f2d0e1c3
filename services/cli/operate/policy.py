"""``conclave policy list|show|try|promote|back|approve [--for ...]``: which policy decides, and changing that by hand.

**Pods.** A change is one compare-and-swap of the pointer in etcd; agents follow it by themselves. Whatever is tried is
compared with what decided before for as long as it is in shadow or in the canary; it stays there until it is promoted,
and goes again by itself when it is worse (docs/policies/rollout.md). The leading coordinator is asked. With ``--etcd``,
``try`` and ``back`` change the pointer themselves by the same rules: while nobody leads, before a mesh's first start.

**Training jobs** and others whose policies are tried beside the settings': ``policy_rollouts.py``. **A scaler** is an
object in the cluster whose spec says its policy and how far it goes; here it is shown, approved, and taken back.
"""

from __future__ import annotations

import asyncio
import copy
import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.etcd import etcd_instead, or_etcd, settings_of, with_store
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.operate.policy_rollouts import change_rollout, route_of, rows_of, show_rollout
from services.cli.operate.policy_text import POLICIES, card_lines, pointer_lines, shown_lines
from services.cli.operate.scalers import scaler_rows, show_scaler, switch_off
from services.cli.operate.subject import Subject, for_option, kubeconfig_option
from services.cli.operate.weights_file import enclosed, weights_of
from services.cli.server.completion_names import complete_policies
from services.cli.server.options import connector, given, removed_options, server_options, with_server
from services.cli.server.watching import output_option, tell, wide_output_option
from shared.decide.rollout import MOST_PERCENT
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient
    from shared.decide.domain import Domain
    from shared.ports import Store
    from shared.wire.keys import Keys
    from shared.wire.records import PolicyPointer

FLAGS = {"subject": "for"}
"""Options that a command takes under another name."""
CHANGES = 10
"""Changes and windows that ``show`` prints."""

no_etcd = removed_options(
    "--etcd", "--etcd-prefix", "--etcd-ca", "--etcd-cert", "--etcd-key",
    instead="a server is asked; give --server URL or --context NAME ('policy try' and 'back' take --etcd while nobody"
    " leads)",
)  # fmt: skip


@click.group()
def policy() -> None:
    """Show which policy decides, try another one, promote it step by step, or take it back: of pods, jobs, scalers."""


@policy.command("list")
@for_option
@kubeconfig_option
@list_options(POLICIES)
@no_etcd
@click.pass_context
def list_policies(
    here: click.Context, /, wanted: ListQuery, subject: Subject, kubeconfig: Path | None, **server: Any
) -> None:  # fmt: skip
    """List the policies there are: built in, shipped with weights, and published in etcd."""
    subject.check(here)
    if subject.scaler:
        click.echo("\n".join(wanted.text(FoundItems(scaler_rows(subject.scaler, kubeconfig, server["context"])))))
        return

    async def look(client: AdminClient) -> FoundItems:
        if subject.tried is not None:
            return FoundItems(rows_of(subject.tried[1], await client.get(route_of(subject.tried[0]))))
        return FoundItems((await client.get("/v1/policies")).get("items") or ())

    show_list(connector(server), look, wanted)


@policy.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@for_option
@kubeconfig_option
@server_options
@no_etcd
@wide_output_option
@click.pass_context
def show(
    here: click.Context, /, name: str | None, subject: Subject, kubeconfig: Path | None, output: str, **server: Any
) -> None:  # fmt: skip
    """Show which policy decides, how the candidate does and what comes next; with NAME (NAME@VERSION or a digest) the
    card of those weights, of a policy for pods."""
    subject.check(here)
    if name is not None and not subject.pods:
        raise ConfigError(f"NAME: cards are kept of policies for pods; leave {name!r} out with --for {subject.name}")
    if subject.scaler:
        show_scaler(subject.scaler, kubeconfig, server["context"], output)
        return
    if subject.tried is not None:
        show_rollout(subject.tried[0], output, server)
        return

    async def card(client: AdminClient) -> dict[str, Any]:
        return (await client.get(f"/v1/policies/{quote(str(name), safe='')}/card")).get("card") or {}

    async def everything(client: AdminClient) -> dict[str, Any]:
        found = await client.get("/v1/policies")
        return {
            "pointer": found.get("pointer"),
            "comparison": found.get("comparison"),
            "windows": await client.items("/v1/policies/windows", most=CHANGES),
            "history": await client.items("/v1/policies/history", most=CHANGES),
        }

    if name is not None:
        found = with_server(server, card)
        tell(output, found, card_lines(found))
    else:
        found = with_server(server, everything)
        tell(output, found, shown_lines(found, wide=output == "wide"))


@policy.command("try")
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_policies)
@for_option
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Weights of NAME from this file (.npz), as a FILE in place of NAME; takes the role admin.",
)
@click.option(
    "--stage",
    type=click.Choice(["shadow", "canary", "active"]),
    default="shadow",
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
    type=click.Choice(["neutral", "balance", "gpus", "joules", "latency", "nodes", "packing", "room"]),
    help="By which both policies are compared; default: the setting rollout_goal, that is what the candidate is for.",
)
@click.option("--reason", default="", help="For the history.")
@click.option("--new-mesh", is_flag=True, help="With --etcd: prepare a mesh that has never run under --etcd-prefix.")
@server_options
@or_etcd
@output_option
@click.pass_context
def try_(
    here: click.Context,
    /,
    name: str,
    subject: Subject,
    weights: Path | None,
    stage: str,
    percent: int | None,
    auto: bool | None,
    goal: str | None,
    reason: str,
    new_mesh: bool,
    output: str,
    **where: Any,
) -> None:
    """Try the policy NAME (NAME, NAME@VERSION or a digest), or the weights in FILE (.npz, or a training's folder, as
    training/lb): in shadow, where it decides beside and nothing is done for it, until you promote it. It goes again by
    itself when it is worse."""
    subject.check(here, "weights", "stage", "percent", "auto", "goal", "new_mesh")
    if not subject.pods:
        domain = _tried(subject, "write its spec.policy, which an operator then approves")
        change_rollout(domain, "PUT", "", {"name": name, "reason": reason}, output, where)
        return
    if percent is not None and stage != "canary":
        raise ConfigError(f"--percent: belongs to --stage canary; leave it out with {stage}")
    if stage == "active" and (auto is not None or goal is not None):
        given = "--goal" if auto is None else "--auto" if auto else "--manual"
        raise ConfigError(f"{given}: an active policy is compared with nothing; leave it out with --stage active")
    promotion = "" if auto is None else "auto" if auto else "manual"
    sent = weights_of(name, weights)
    name = name if sent is None else sent[0]
    if not etcd_instead(here):
        if new_mesh:
            raise ConfigError("--new-mesh: a server's mesh runs already; give --etcd, or leave --new-mesh out")
        document = {
            "name": name, "stage": stage, "reason": reason, "percent": percent, "goal": goal,
            "promotion": promotion or None,
        }  # fmt: skip
        if sent is None:
            _ask_for("activate", document, output, where)
        else:
            _ask_for("weights", document | enclosed(sent[1]), output, where)
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.decide.stages import Stage
        from shared.runtime.records.policy_changes import activate, from_bytes, mesh_known

        checked = None if sent is None else from_bytes(*sent, goal=goal or "")
        if not new_mesh and not await mesh_known(store, keys):
            raise ConfigError(
                f"--etcd-prefix: no mesh has ever been under {keys.prefix} of this etcd; correct --etcd-prefix or "
                "--etcd, or give --new-mesh to prepare one before it starts"
            )
        return await activate(
            store, keys, name, stage=Stage(stage), percent=percent, by=_me(), reason=reason, promotion=promotion,
            goal=goal or "", weights=checked, new_mesh=new_mesh, say=lambda line: click.echo(line, err=True),
        )  # fmt: skip

    _tell_pointer(output, asyncio.run(with_store(settings_of(**where), work)))


def alias(name: str, of: click.Command, **defaults: object) -> click.Command:
    """A former name of a command, which answers for a release; ``defaults``: where its own differ."""
    params = [copy.copy(one) for one in of.params]
    for one in params:
        if one.name in defaults:
            one.default = defaults[one.name]
    told = ", ".join(f"--{FLAGS.get(key, key)} {value}" for key, value in defaults.items())
    text = f"The former name of 'conclave policy {of.name}'{f', with {told} by default' if told else ''}."
    return click.Command(name, callback=of.callback, params=params, hidden=True, help=text)


policy.add_command(alias("activate", try_, stage="canary"))


@policy.command()
@click.argument("mixture")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The weights file (.npz).")
@click.option(
    "--weights", "files", type=click.Path(path_type=Path), multiple=True,
    help="Not the shipped weights of a member but these; repeatable.",
)  # fmt: skip
def mix(mixture: str, out: Path, files: tuple[Path, ...]) -> None:
    """Mix policies into one, as a weights file: MIXTURE is POLICY=WEIGHT,POLICY=WEIGHT or a definition (.toml, .json).

    Without classes and weights of your own no file is needed: 'conclave policy try kube-default=0.7,frag=0.3'.
    """
    from services.cli.inputs import read_weights
    from services.cli.terminal.output_file import check_writable, write_whole
    from shared.policy.hybrid.mixture import build
    from shared.policy.weights import digest, encode
    from shared.runtime.process.mixture_file import read_mixture

    check_writable("--out", out)
    made = read_mixture(mixture, read_weights(files))
    data = encode(build(made))
    write_whole("--out", out, data)
    names = ", ".join(member.policy for member in made.members)
    click.echo(f"hybrid of {names}, {len(made.classes)} classes: {digest(data)[:12]} in {out}")


@policy.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@for_option
@click.option("--to", type=click.Choice(["canary", "active"]), help="A stage, in place of the next step; of pods.")
@click.option("--percent", type=click.IntRange(1, 100), help="The canary's share, in place of the next step's.")
@click.option("--force", is_flag=True, help="Also where too few windows speak for it; it is recorded as forced.")
@click.option("--reason", default="", help="For the history.")
@server_options
@no_etcd
@output_option
@click.pass_context
def promote(
    here: click.Context, /, name: str | None, subject: Subject, to: str | None, percent: int | None, force: bool,
    reason: str, output: str, **server: Any,
) -> None:  # fmt: skip
    """Take the candidate NAME one step further: of pods through shadow, canary at 1, 10, 50, 100 %, active; of jobs
    through shadow, canary at 10 %, active."""
    subject.check(here, "to")
    if not subject.pods:
        domain = _tried(subject, "raise its spec.mode and spec.canary, then 'conclave policy approve' it")
        if percent is not None and percent > MOST_PERCENT:
            raise ConfigError(f"--percent: {percent} is not from 1 to {MOST_PERCENT}; at last it is active")
        document = {"name": name, "percent": percent, "force": force, "reason": reason}
        body = {key: value for key, value in document.items() if value is not None}
        change_rollout(domain, "POST", "/promote", body, output, server)
        return
    if name is None:
        raise ConfigError("NAME: which candidate is meant? 'conclave policy show' names it")
    if percent is not None and to == "active":
        raise ConfigError("--percent: belongs to the canary; leave it out with --to active")
    document = {"name": name, "reason": reason, "to": to, "percent": percent, "force": force or None}
    _ask_for("promote", document, output, server)


@policy.command()
@for_option
@kubeconfig_option
@click.option("--reason", default="rolled back by hand", help="For the history.")
@server_options
@or_etcd
@output_option
@click.pass_context
def back(
    here: click.Context, /, subject: Subject, kubeconfig: Path | None, reason: str, output: str, **where: Any
) -> None:  # fmt: skip
    """Withdraw the candidate; of pods, where there is none, the policy before the active one decides again. Of a scaler
    HPA's rule decides again (spec.killSwitch)."""
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why, or leave it out")
    subject.check(here)
    if subject.scaler:
        if given(here, "reason"):
            raise ConfigError(f"--reason: nothing keeps one of {subject.name}; leave it out")
        switch_off(subject.scaler, kubeconfig, where["context"], output)
        return
    if subject.tried is not None:
        domain = subject.tried[0]
        change_rollout(domain, "POST", "/back", {"reason": reason}, output, where)
        return
    if not etcd_instead(here):
        _ask_for("rollback", {"reason": reason}, output, where)
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.runtime.records.policy_changes import withdraw

        return await withdraw(store, keys, by=_me(), reason=reason)

    _tell_pointer(output, asyncio.run(with_store(settings_of(**where), work)))


policy.add_command(alias("rollback", back))


@policy.command()
@for_option
@click.option("--by", default="", help="Who approves it; default: the user of this machine.")
@click.option("--digest", default="", help="Approve this digest alone (of 'show'); default: the one there is.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@kubeconfig_option
@click.option("--context", default="", help="Of the kubeconfig, or one of 'conclave context list'.")
def approve(subject: Subject, by: str, digest: str, yes: bool, kubeconfig: Path | None, context: str) -> None:
    """Approve what a scaler is now, by the digest of its spec and of its policy's weights; any change makes it void."""
    from services.cli.autoscale.steering import approve as approve_scaler

    if not subject.scaler:
        raise ConfigError(
            f"--for: policies for {subject.name} are promoted step by step and need no approval; "
            "name a ResilientAutoscaler as NAMESPACE/NAME"
        )
    approve_scaler.callback(  # type: ignore[misc]
        name=subject.scaler, by=by, digest=digest, yes=yes, kubeconfig=kubeconfig, context=context, namespace=""
    )


def _tried(subject: Subject, instead: str) -> Domain:
    """The domain. ``ConfigError``: a scaler is meant, whose stages are in its spec."""
    if subject.tried is None:
        raise ConfigError(f"--for: {subject.name}: a ResilientAutoscaler's stages are in its spec; {instead}")
    return subject.tried[0]


def _ask_for(verb: str, document: dict[str, Any], output: str, server: dict[str, Any]) -> None:
    """Ask the leader for the change and print the pointer after it. None in ``document``: not given."""
    body = {name: value for name, value in document.items() if value is not None}
    found = with_server(server, lambda client: client.change("POST", f"/v1/policies/{verb}", body))
    tell(output, found, pointer_lines(found.get("pointer")))


def _tell_pointer(output: str, pointer: PolicyPointer) -> None:
    import msgspec

    found = msgspec.to_builtins(pointer)
    tell(output, {"pointer": found}, pointer_lines(found))


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
