"""``conclave replay FILE``: a snapshot decided again, explained, and asked what if. Touches no cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.explain.command import GROUP_WORDS, named_pod
from services.cli.listing.wanted import DOCUMENTS
from services.cli.server.watching import tell
from services.cli.snapshot.cluster import SnapshotCluster, read_snapshot
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.mesh.replayed import Replayed
    from shared.wire.snapshot import DecisionSeen, Snapshot

LEADER_ALONE = "only the leading coordinator remembers"
"""In a line of ``explain`` that is not true of a snapshot which has the leader's decision."""
SHOWN = 20
"""Lines of each kind that are shown; -o json has all."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--explain", metavar="POD", default="", help="NAMESPACE/POD, or podgroup/NAMESPACE/NAME: why it is where it is."
)
@click.option(
    "--again", type=click.IntRange(0, 4096), default=0, help="Make so many of the last decisions once more first."
)
@click.option("--policy", default="", metavar="NAME", help="What if this policy decided.")
@click.option("--weights", type=click.Path(path_type=Path), help="Weights of the snapshot's policy, or of --policy.")
@click.option(
    "--cordon",
    multiple=True,
    metavar="NODE",
    help="What if this node took nobody. This and those below may be repeated.",
)
@click.option("--uncordon", multiple=True, metavar="NODE", help="What if this node took pods again.")
@click.option("--remove", multiple=True, metavar="NODE", help="What if this node were gone.")
@click.option("--add", multiple=True, metavar="NODE[=COUNT]", help="What if there were empty nodes like this.")
@click.option("--priority", multiple=True, metavar="POD=NUMBER", help="What if NAMESPACE/POD had this priority.")
@click.option(
    "--agents", default="", metavar="N|per-node", help="How many agents decide.  [default: as in the snapshot]"
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Breaks ties between agents.  [default: the leader's]")
@click.option(
    "-o", "--output", type=click.Choice(("table", *DOCUMENTS)), default="table", show_default=True,
    help="Lines for people, or one document.",
)  # fmt: skip
def replay(
    file: Path, *, explain: str, again: int, policy: str, weights: Path | None, cordon: Sequence[str],
    uncordon: Sequence[str], remove: Sequence[str], add: Sequence[str], priority: Sequence[str], agents: str,
    seed: int | None, output: str,
) -> int:  # fmt: skip
    """Let the mesh decide about the snapshot in FILE: where what waits would go, and why the others wait.

    With --again N the last N recorded decisions are made once more, and compared. With --explain one pod or group is
    explained, as 'conclave explain' does. With changes (--cordon, --add, --policy ...) both are decided, and what comes
    out otherwise is said.
    """
    snapshot = read_snapshot(file)
    if explain:
        flags = {
            "--again": again, "--policy": policy, "--weights": weights, "--cordon": cordon, "--uncordon": uncordon,
            "--remove": remove, "--add": add, "--priority": priority, "--agents": agents, "--seed": seed is not None,
        }  # fmt: skip
        if given_too := [flag for flag, value in flags.items() if value]:
            raise ConfigError(f"{', '.join(given_too)}: --explain tells of the file as it is; leave one of them out")
        answer = asyncio.run(_explained(snapshot, explain))
        if answer is None:
            click.echo(f"conclave: {file} has no {explain}; names in it are {snapshot.names}", err=True)
            return 1
        from services.cli.explain.text import group_lines, lines_of

        lines = list(group_lines(answer) if "unit" in answer else lines_of(answer))
        remembered = _remembered(snapshot, answer)
        tell(output, answer, [*(line for line in lines if not (remembered and LEADER_ALONE in line)), *remembered])
        return 0
    from lab.mesh.replayed import Changes, deciding
    from lab.mesh.replayed import replay as play
    from lab.mesh.world import Agents

    asked = Agents.parse(agents) if agents else None
    changes = Changes(
        cordoned=cordon, uncordoned=uncordon, removed=remove, added=[_count(text) for text in add],
        priorities=dict(map(_priority, priority)),
    )  # fmt: skip
    data = _read(weights)
    other = bool(policy)
    own = None if other and _is_lost(snapshot) else deciding(snapshot, "", None if other else data)
    given = deciding(snapshot, policy, data) if other else own
    assert given is not None
    if not (changes or other):
        found = play(snapshot, given, asked, again=again, seed=seed)
        tell(output, _document(found, given.ref.title), _lines(snapshot, found, given.ref.title))
        return 0
    before = play(snapshot, own or given, asked, again=again, seed=seed)
    after = play(snapshot, given, asked, changes=changes, again=again, seed=seed)
    moved = _moved(before, after)
    both = {
        "before": _document(before, (own or given).ref.title),
        "after": _document(after, given.ref.title),
        "moved": moved,
    }
    tell(output, both, _differences(before, after, moved, own is None))
    return 0


def _is_lost(snapshot: Snapshot) -> bool:
    """Whether the snapshot's own policy cannot be had: then another is compared with itself, and that is said."""
    from lab.mesh.replayed import deciding

    try:
        deciding(snapshot, "", None)
    except ConfigError:
        return True
    return False


def _read(weights: Path | None) -> bytes | None:
    if weights is None:
        return None
    try:
        return weights.read_bytes()
    except OSError as error:
        raise ConfigError(f"--weights: {weights}: {error.strerror}; give a weights file that can be read") from None


def _count(text: str) -> tuple[str, int]:
    name, given, count = text.partition("=")
    if not name or (given and not (count.isascii() and count.isdigit() and 1 <= int(count) <= 1000)):
        raise ConfigError(f"--add: {text!r} is not NODE=COUNT with a count of 1 to 1000; write node-3=2")
    return name, int(count or 1)


def _priority(text: str) -> tuple[str, int]:
    pod, _, number = text.rpartition("=")
    value: int | None
    try:
        value = int(number)
    except ValueError:
        value = None
    if "/" not in pod or value is None or not -(2**31) <= value < 2**31:
        raise ConfigError(f"--priority: {text!r} is not NAMESPACE/POD=NUMBER of 32 bits; write shop/web-0=1000")
    return pod, value


async def _explained(snapshot: Snapshot, named: str) -> dict[str, Any] | None:
    from services.cli.explain.offline import answer_from
    from services.cli.explain.offline_groups import group_answer
    from services.cli.server.errors import PodUnknown

    cluster = SnapshotCluster(snapshot)
    kind, _, rest = named.partition("/")
    if kind in GROUP_WORDS and rest:
        return await group_answer(cluster, *named_pod(rest, ""))
    try:
        return await answer_from(cluster, *named_pod(named, ""))
    except PodUnknown:
        return None


def _remembered(snapshot: Snapshot, answer: Mapping[str, Any]) -> list[str]:
    """What the leader's last decision about the pod was, where the file has it."""
    pod = answer.get("pod", "")
    found: DecisionSeen | None = None
    for one in snapshot.mesh.decisions if snapshot.mesh is not None else ():
        if f"{one.namespace}/{one.name}" == pod:
            found = one
    if found is None:
        return []
    lines = [f"  the leader decided at {found.time} for {found.node} by {found.policy}; considered:"]
    return lines + [
        f"      {seen.node}: {seen.score:g}{'' if seen.accepted else ', its policy advised against it'}"
        for seen in found.considered
    ]


def _document(found: Replayed, policy: str) -> dict[str, Any]:
    compared = [
        {"pod": one.pod, "recorded": one.recorded, "node": one.node, "same": one.same, "tied": one.tied}
        for one in found.compared
    ]
    return {
        "policy": policy, "placed": found.placed, "waiting": found.waiting, "evicted": found.evicted,
        "compared": compared, "of_others": found.of_others, "gone": found.gone, "missing": found.told,
    }  # fmt: skip


def _lines(snapshot: Snapshot, found: Replayed, policy: str) -> list[str]:
    mesh = snapshot.mesh
    lines = [
        f"{snapshot.at}, Kubernetes {snapshot.kubernetes}, conclave {snapshot.conclave}, names {snapshot.names}",
        f"{len(snapshot.input.nodes or ())} nodes, {len(snapshot.input.pods or ())} pods, "
        + ("no mesh was asked" if mesh is None else f"{len(mesh.decisions)} decisions remembered")
        + f"; decided by {policy}",
        *(f"note: {line}" for line in found.told),
    ]
    if found.of_others:
        whose = "a canary's policy, a fallback, a reservation"
        lines.append(f"{found.of_others} decisions of others ({whose}) are not made again")
    if found.gone:
        lines.append(
            f"{found.gone} decisions are of pods that are gone since, or elsewhere; what those took is free below"
        )
    if found.compared:
        same, tied = sum(one.same for one in found.compared), sum(one.tied and not one.same for one in found.compared)
        others = [one for one in found.compared if not (one.same or one.tied)]
        lines.append(
            f"{len(found.compared)} decisions made again: {same} as recorded, {tied} on a node of equal score, "
            f"{len(others)} otherwise"
        )
        lines += _some([f"  {one.pod}: recorded {one.recorded}, now {one.node or 'no node'}" for one in others])
    lines.append(
        f"{len(found.placed)} pods would be placed, {len(found.waiting)} wait, {len(found.evicted)} would be evicted"
    )
    lines += _some([f"  {pod} -> {node}" for pod, node in found.placed.items()])
    lines += _some([f"  {pod} evicted" for pod in found.evicted])
    return lines + _some([f"  {pod} waits: {why}" for pod, why in found.waiting.items()])


def _moved(before: Replayed, after: Replayed) -> dict[str, dict[str, str]]:
    """By pod, where it was and where it is; "": nowhere."""
    found = {}
    for pod in {**before.placed, **after.placed, **before.waiting, **after.waiting}:
        was, now = before.placed.get(pod, ""), after.placed.get(pod, "")
        if was != now or (pod in before.waiting) != (pod in after.waiting):
            found[pod] = {"before": was, "after": now}
    again = {one.pod: one.node for one in before.compared}
    for one in after.compared:
        if again.get(one.pod, "") != one.node:
            found[one.pod] = {"before": again.get(one.pod, ""), "after": one.node}
    return found


def _differences(
    before: Replayed, after: Replayed, moved: Mapping[str, Mapping[str, str]], same_policy: bool
) -> list[str]:
    lines = (
        ["the snapshot's own policy cannot be had; both are decided by the one that is given"] if same_policy else []
    )
    lines += [f"note: {line}" for line in after.told]
    lines.append(
        f"placed {len(before.placed)} -> {len(after.placed)}, waiting {len(before.waiting)} -> {len(after.waiting)}, "
        f"evicted {len(before.evicted)} -> {len(after.evicted)}; {len(moved)} pods otherwise"
    )
    for pod, one in list(moved.items())[:SHOWN]:
        why = f" ({after.waiting[pod]})" if pod in after.waiting else ""
        lines.append(f"  {pod}: {one['before'] or 'no node'} -> {one['after'] or 'no node'}{why}")
    return lines + ([f"  and {len(moved) - SHOWN} more; -o json has all"] if len(moved) > SHOWN else [])


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines[:SHOWN] + ([f"  and {more} more; -o json has all"] if more > 0 else [])
