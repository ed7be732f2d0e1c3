"""A coordinator's explanation as lines for people. Pure; fields that are missing are left out, unknown ones ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.cli.terminal.tables import place_word
from shared.model.resources import at_least_text, at_most_text
from shared.scheduling.reasons import QUOTA, UNUSABLE

Json = dict[str, Any]
NODES_SHOWN = 5

OFFLINE = "api"
"""``source`` of an answer that was worked out here, from what the API server shows."""


def lines_of(answer: Json) -> Iterator[str]:
    """The whole answer, headline first."""
    yield f"{answer['pod']}: {state_word(answer)}, {answer['summary']}"
    if answer.get("policy"):
        yield f"  placed by policy {answer['policy']} (its annotation)"
    if answer.get("rehearsed"):
        said = answer["rehearsed"]
        yield f"  {said['places']} places for {said['policy']} now: {said['told']}"
    if answer.get("qos_doubt"):
        yield f"  QoS class: {answer['qos_doubt']}"
    elif answer.get("qos") not in (None, "online"):
        yield f"  QoS class: {answer['qos']}"
    if answer.get("group"):
        yield _group(answer["group"])
    if answer.get("nominated_node"):
        yield f"  nominated to {answer['nominated_node']}"
    if answer.get("queue"):
        yield from _queue(answer["queue"], answer.get("priority", 0))
    if answer.get("nodes"):
        yield from _nodes(answer["nodes"])
    for asked in answer.get("devices") or ():
        yield from _devices(asked)
    for refused in answer.get("zones") or ():
        yield from _zones(refused)
    if answer.get("preemption"):
        yield from _preemption(answer["preemption"])
    if answer.get("latency"):
        yield _latency(answer["latency"])
    if answer.get("decision"):
        yield from _decision(answer["decision"])
    elif answer["state"] == "bound" and answer.get("source") == OFFLINE:
        yield "  which nodes were considered, and their scores, only the leading coordinator remembers"
    elif answer["state"] == "bound":
        yield "  this leader does not remember the decision: it is an older one, or another leader's"
    yield from _unseen(answer)
    if answer.get("reasons"):
        yield from _reasons(answer["reasons"])


def _unseen(answer: Json) -> Iterator[str]:
    for missing in answer.get("missing") or ():
        yield f"  not looked at: {missing}"


STATES = {
    "not_ours": "another scheduler's", "gated": "held by scheduling gates", "terminating": "Terminating",
    "placing": "being placed", "unsupported": "not supported", "invalid": "cannot be read",
}  # fmt: skip
"""What people read for the states of an answer; others are words already."""


HELD = {QUOTA: "held by quota", UNUSABLE: "held, its queue cannot be used"}
"""By the reason why a queue holds a pod back."""


def state_word(answer: Json) -> str:
    """The pod's state as people call it."""
    reason = (answer.get("queue") or {}).get("reason")
    if reason in HELD:
        return HELD[reason]
    return STATES.get(answer["state"], str(answer["state"]))


def _latency(found: Json) -> str:
    """How far its node, or the nodes, are from what it serves."""
    limits = [f"{kind} {found[f'{kind}_ms']:g} ms" for kind in ("soft", "hard") if found.get(f"{kind}_ms")]
    limits += ["strict"] if found.get("strict") else []
    text = f"  latency to {found['target']}: {', '.join(limits) or 'no limit'}"
    if found.get("node_ms") is not None:
        text += f"; its node {found['node_ms']:g} ms"
    if found.get("nodes_known"):
        text += f"; {found['nodes_known']} nodes known, the nearest {found['least_ms']:g} ms"
        within = [
            f"{found[f'nodes_within_{kind}']} within {kind}" for kind in ("soft", "hard") if found.get(f"{kind}_ms")
        ]
        text += f" ({', '.join(within)})" if within else ""
    return text


def _group(group: Json) -> str:
    """The pod group that it is a member of, and what that does."""
    text = f"  member of pod group {group['unit']}: {group['phase']}, {group['bound']} of {group['members']} bound"
    text += f", at least {group['min_count']} or none" if group.get("gang", True) else ""
    return f"{text}; {group['reason']}: {group['message']}" if group.get("message") else text


def group_lines(answer: Json) -> Iterator[str]:
    """A pod group's explanation: which member fails where, and what would have to change."""
    yield f"{answer['unit']}: {answer['phase']}, {answer['summary']}"
    if answer.get("message") and answer["message"] != answer["summary"]:
        yield f"  why        {answer['reason']}: {answer['message']}"
    if answer.get("blocked") and answer["blocked"] != answer.get("message"):
        yield f"  quota      {answer['blocked']}"
    yield from _unseen(answer)
    now = answer.get("now") or {}
    if not now.get("pending"):
        return
    for failed in now.get("failed") or ():
        named = ", ".join(failed["pods"][:NODES_SHOWN])
        more = f" and {failed['count'] - NODES_SHOWN} more" if failed["count"] > NODES_SHOWN else ""
        yield f"  {named}{more}: {failed['why']}"
        for near in failed["nearest"]:
            lacks = ", ".join(f"{amount} {name}" for name, amount in near["lacks"].items())
            yield f"      {near['node']} lacks {lacks}"
        if failed.get("change") and failed["change"] != now.get("change"):
            yield f"      would help: {failed['change']}"
    if now.get("domains"):
        takes = ", ".join(f"{one['value']} {one['members']}" for one in now["domains"])
        yield f"  members that each {now['topology']} takes: {takes}"
    if now.get("preemption"):
        yield f"  preemption {'would ' if now['preemption']['helps'] else ''}{now['preemption']['summary']}"
        for broken in now["preemption"]["broken"]:
            yield f"      breaks {broken}"
    if now.get("change"):
        yield f"  would help the group: {now['change']}"


def story_of(answer: Json) -> Iterator[str]:
    """What happened to the pod in this leader's term, oldest first."""
    lines = answer.get("story")
    yield "  its story in this leader's term:" if lines else "  this leader keeps no story of it (any more)"
    for line in lines or ():
        yield f"    {line['ago_s']:10.3f} s ago  {line['text']}"


def _reasons(told: Json) -> Iterator[str]:
    """Why the policy chooses as it does, as it sees the nodes now."""
    chosen, second = told["chosen"], told["runner_up"]
    if "members" in chosen:
        yield from _mixture(told)
        yield from _uses(told)
        return
    yield (
        f"  as the nodes stand, {told['policy']} gives {chosen['node']} {chosen['score']:.3g}"
        f" (accept {chosen['q_accept']:.3g}, reject {chosen['q_reject']:.3g}{_network(chosen)}), moved most by:"
    )
    for moved in told["moved"]:
        yield f"      {_feature(moved, 'others on average')}"
    if second is not None:
        place = "behind" if told["ahead_by"] >= 0 else "ahead"
        behind = f"{abs(told['ahead_by']):.3g} {place}" if told["ahead_by"] else "equal: by its scores either would do"
        by = ", by:" if told["decisive"] else ""
        yield f"    best alternative: {second['node']}, {second['score']:.3g}{_network(second)}, {behind}{by}"
        for moved in told["decisive"]:
            yield f"      {_feature(moved, 'there')}"
    yield from _uses(told)


def _network(candidate: Json) -> str:
    """Which network judged the node, where classes of nodes have their own."""
    name = candidate.get("network")
    return f"; by the {'shared network' if name == 'shared' else f'network of {name}'}" if name else ""


def _uses(told: Json) -> Iterator[str]:
    """What of the nodes is in use, and how that is known."""
    for node, parts in (told.get("use") or {}).items():
        yield f"    in use on {node}: {', '.join(_use(part) for part in parts)}"


def _use(part: Json) -> str:
    how = part["how"]
    if part["age_s"] is not None:
        how += f" {seconds(part['age_s'])} ago by {part['source']}"
    return f"{part['part']} {part['share']:.1%} ({how})"


def _mixture(told: Json) -> Iterator[str]:
    """Of a mixture of policies: who gave the chosen node what."""
    chosen, second = told["chosen"], told["runner_up"]
    of_class = f" (class {told['class']})" if told.get("class") else ""
    yield f"  as the nodes stand, {told['policy']}{of_class} gives {chosen['node']} {chosen['score']:.4g} of 100:"
    for member in chosen["members"]:
        yield f"      {_member(member)}"
    if second is not None:
        place = "behind" if told["ahead_by"] >= 0 else "ahead"
        yield f"    best alternative: {second['node']}, {second['score']:.4g}, {abs(told['ahead_by']):.4g} {place}:"
        for member in second["members"]:
            yield f"      {_member(member)}"


def _member(member: Json) -> str:
    if member["left_out"]:
        text = f"{member['policy']}: left out ({member['left_out']}), its weight goes to the others"
    elif member["score"] is None:
        text = f"{member['policy']}: weight 0 here"
    else:
        text = f"{member['policy']} {member['score']:.4g} (own {member['raw']:.4g}) x {member['weight']:.3g}"
        text += f" = {member['product']:.4g}"
    if member["refuses"]:
        text += ", refuses the node" if member["role"] == "decides" else ", advises against the node"
    return text


def _feature(moved: Json, where: str) -> str:
    return f"{moved['feature']} {moved['value']:.3g} ({where} {moved['others']:.3g}): {moved['effect']:+.3g}"


def _queue(queue: Json, priority: int) -> Iterator[str]:
    place = queue["place"]
    text = f"  queue: {place_word(place)}"
    if queue.get("ahead") is not None:
        text += f", {queue['ahead']} ahead of it"
    failed = f"{queue['attempts']} failed attempt{'' if queue['attempts'] == 1 else 's'}"
    text += f"; priority {priority}, {failed}, pending for {seconds(queue['waiting_s'])}"
    if queue.get("next_retry_s") is not None:
        when = seconds(queue["next_retry_s"])
        text += (
            f"; tried again in {when}" if place == "backoff" else f"; tried again when something helps, or in {when}"
        )
    yield text
    if queue.get("means"):
        yield f"  reason: {queue['reason']}: {queue['means']} ({queue['page']})"
    if queue.get("rejected_by") and "+".join(queue["rejected_by"]) != queue.get("reason"):
        yield f"  refused by: {', '.join(queue['rejected_by'])}"
    if place == "gated" and queue.get("remedy"):
        yield f"      would help: {queue['remedy']}"


def _nodes(nodes: Json) -> Iterator[str]:
    agents = nodes.get("agents")
    deciding = "" if agents is None else "; 1 agent decides" if agents == 1 else f"; {agents} agents decide"
    yield f"  now {nodes['feasible']} of {nodes['nodes']} nodes take it{deciding}"
    if nodes.get("unowned"):
        yield f"  {nodes['unowned']} {'node has' if nodes['unowned'] == 1 else 'nodes have'} no agent"
    takes = nodes["feasible"] > 0
    for group in nodes["groups"]:
        stage = "" if group["stage"] == "Filter" else f" ({group['stage']})"
        yield f"  {group['count']} x {group['plugin']}{stage}: {', '.join(group['reasons'])}"
        yield from _members(group)
        if group.get("also") and not takes:
            yield f"      each is refused by another rule too: {', '.join(group['also'])}"
        if group.get("change") and not takes:  # where nodes take it, it waits for something else
            yield f"      would help: {group['change']}"
    for candidate in nodes["candidates"][:NODES_SHOWN]:
        parts = ", ".join(f"{plugin} {score}" for plugin, score in candidate["scores"].items())
        yield f"  {candidate['name']} takes it: {candidate['total']} ({parts})"


def _devices(asked: Json) -> Iterator[str]:
    """One request of a claim: how many devices it may have, and what refuses the others."""
    title = f"{asked['claim']}, request {asked['request']} (class {asked['class']})"
    yield f"  devices for {title}: {asked['free']} free"
    for one in asked["refused"]:
        named = ", ".join(one["for_example"])
        yield f"    {one['devices']} refused ({named}): {one['reason']}"


def _zones(refused: Json) -> Iterator[str]:
    """A node whose kubelet would not let the pod on: by what policy, and what is free in each zone."""
    by = f" ({refused['policy']}, by {refused['scope']})" if refused.get("policy") else ""
    yield f"  zones of {refused['node']}{by}: {refused['reason']}: {refused['message']}"
    for zone in refused["zones"]:
        amounts = (f"{name} {free} of {zone['allocatable'][name]}" for name, free in zone["free"].items())
        yield f"    node-{zone['zone']} has free {', '.join(amounts)}"


def _members(group: Json) -> Iterator[str]:
    shown = group["nodes"][:NODES_SHOWN]
    if not any(node["shortages"] or node.get("numbers") for node in shown):
        more = "" if group["count"] <= len(shown) else f" and {group['count'] - len(shown)} more"
        yield f"      {', '.join(node['name'] for node in shown)}{more}"
        return
    for node in shown:
        parts = [
            f"{s['resource']}: asked {_amount(s, 'requested')}, free {_amount(s, 'free')} of "
            f"{_amount(s, 'allocatable')}, short by {_amount(s, 'short_by')}"
            for s in node["shortages"]
        ]
        parts += [number["text"] for number in node.get("numbers") or ()]
        yield f"      {node['name']}: {'; '.join(parts)}" if parts else f"      {node['name']}"
    if group["count"] > len(shown):
        yield f"      and {group['count'] - len(shown)} more"


def _preemption(preemption: Json) -> Iterator[str]:
    yield f"  preemption {preemption['summary']}" if preemption["helps"] else f"  preemption: {preemption['summary']}"
    if preemption["tried"] < preemption["curable"]:
        yield f"      tried on {preemption['tried']} of {preemption['curable']} nodes that evicting may open"
    for candidate in preemption["candidates"]:
        victims = ", ".join(
            f"{victim['pod']} (priority {victim['priority']}{', breaks its budget' if victim['breaks_budget'] else ''})"
            for victim in candidate["victims"][:NODES_SHOWN]
        )
        left = candidate["count"] - min(candidate["count"], NODES_SHOWN)
        more = f" and {left} more" if left else ""
        forbidden = "" if candidate["allowed"] else "; not done, budgets are strict"
        yield f"      {candidate['node']}: {victims}{more}{forbidden}"
    if preemption["protected"]:
        yield f'      {preemption["protected"]} pods of lower priority are annotated conclave.io/preemptible: "false"'


def _decision(decision: Json) -> Iterator[str]:
    version = f"{decision['policy']}@{decision['policy_version']}"
    if not decision["candidates"]:
        yield f"  decided {seconds(decision['ago_s'])} ago for {decision['node']} by {version}"
        return
    yield f"  decided {seconds(decision['ago_s'])} ago for {decision['node']} by {version}; considered:"
    for candidate in decision["candidates"]:
        advice = "" if candidate["accepted"] else ", its policy advised against it"
        yield f"      {candidate['node']}: {candidate['score']:g}{advice}"


def _amount(shortage: Json, field: str) -> str:
    text = at_least_text if field in ("requested", "short_by") else at_most_text
    return text(shortage["resource"], shortage[field])


def seconds(value: float) -> str:
    """``0.4 s``, ``12 s``, ``5 min``."""
    if value < 10:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"
