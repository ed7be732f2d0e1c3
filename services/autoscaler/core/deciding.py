"""One decision: what a round read, through the policy, to what the safeguards allow. Pure but for the stopwatch.

    facts > observation (readings that cannot be relied on are taken out) > policy and HPA's rule > safeguards > checker

The checker shares no code with the safeguards; a verdict that breaks a rule is told and not carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from services.autoscaler.core.cluster import Cluster
from services.autoscaler.core.events import PodFact, RoundRead, TargetFact
from services.autoscaler.core.watched import Watched
from shared.autoscaling.observation import Acted, Bounds, Observation, Policy, ServiceObservation, acted_of
from shared.autoscaling.safety import drift
from shared.autoscaling.safety.answer import usable
from shared.autoscaling.safety.canary import in_window
from shared.autoscaling.safety.chain import judge
from shared.autoscaling.safety.check import violations
from shared.autoscaling.safety.readings import Reading, checked
from shared.autoscaling.safety.scene import Case, Change, Scene, Verdict
from shared.model.autoscaler import Signal, SourceKind, Target

PROBE_S = 120.0
"""A pod that has run for so long without being ready is a failing probe; before, it starts."""

SAMPLED_S = 60.0
"""A pod has a sample after so long."""

SILENT_S = 180.0
"""A watch that has said nothing for so long is broken: the API server sends a bookmark each minute, and a stream
without a byte for 150 s is given up."""

LATE_S = 1.0
"""A policy that takes longer is late: its answer is not taken. A decision is to take 28 ms."""

USAGE = {Signal.CPU: "cpu", Signal.MEMORY: "memory"}


class Decided(Struct, frozen=True, kw_only=True):
    """One decision. ``by``: whose number was taken; ``failed``: why the policy had no say; ``unmade``: why
    there is no such policy (the kill switch gave its place to HPA's rule); ``broken``: rules that the verdict
    breaks."""

    seen: Observation
    bad: Mapping[str, tuple[str, ...]]
    wanted: Mapping[str, object]
    rule: Mapping[str, int]
    verdict: Verdict
    by: str
    failed: str = ""
    drifting: str = ""
    unmade: str = ""
    roles: Mapping[str, Acted] = {}
    """Of the services that acted in a role, where the policy decided."""
    broken: tuple[str, ...] = ()


def decide(
    watched: Watched,
    read: RoundRead,
    cluster: Cluster,
    *,
    now: float,
    leads_since: float,
    stopwatch: Callable[[], float],
) -> Decided:
    """What follows from a round whose targets could all be read."""
    scaler = watched.scaler
    observed: dict[str, tuple[ServiceObservation, tuple[str, ...], list[PodFact]]] = {}
    for target in scaler.targets:
        fact = read.targets[target.name]
        assert isinstance(fact, TargetFact), "asked of complete rounds alone"
        pods = cluster.pods_of(scaler.namespace, target.ref, fact)
        fail_over = now - leads_since < scaler.limits.fail_over_s
        observed[target.name] = (*observe(watched, target, fact, read, cluster, pods, fail_over=fail_over), pods)
    seen = Observation(
        now=now,
        services={name: one for name, (one, _, _) in observed.items()},
        calls=scaler.calls,
        latency_objective_s=scaler.latency_objective_s,
        success_objective=scaler.success_objective,
        cost_limit=scaler.cost_limit,
    )
    rule, rule_failed = ask(watched.rule, seen, stopwatch)
    ruled = {name: answer for name, answer in rule.items() if isinstance(answer, int) and usable(answer)}
    by, wanted, failed = answered(watched, read, seen, (rule, rule_failed), stopwatch)
    scene = Scene(
        now=now,
        services={
            name: Case(
                seen=one,
                wanted=wanted.get(name),
                rule=ruled.get(name),
                bad=bad,
                changes=tuple(watched.changes.get(name, ())),
                floor=floor_of(watched, name, one.replicas),
                disruptions=cluster.disruptions(scaler.namespace, pods),
            )
            for name, (one, bad, pods) in observed.items()
        },
        limits=scaler.limits,
        cost_limit=scaler.cost_limit,
        nodes=None if scaler.limits.nodes_grow else cluster.free_nodes(),
        policy_failed=failed,
        drifting=watched.drift.why if by != "hpa" else "",
    )
    verdict = judge(scene)
    own = by != "hpa" and not failed and not scene.drifting
    roles = acted_of(watched.policy) if own else {}
    return Decided(
        seen=seen,
        bad={name: bad for name, (_, bad, _) in observed.items() if bad},
        wanted=wanted,
        rule=ruled,
        verdict=verdict,
        by="hpa" if scene.drifting else by,
        failed=failed,
        drifting=scene.drifting,
        unmade=watched.policy_problem,
        roles=roles,
        broken=tuple(violations(scene, verdict.allowed)),
    )


def answered(
    watched: Watched,
    read: RoundRead,
    seen: Observation,
    rule: tuple[Mapping[str, object], str],
    stopwatch: Callable[[], float],
) -> tuple[str, Mapping[str, object], str]:
    """(whose answer, the answer, why the policy has none). The kill switch and the canary's other part take HPA's."""
    scaler = watched.scaler
    if scaler.plain_hpa or not in_window(read.wall_s, scaler.canary_time):
        return "hpa", *rule
    wanted, failed = ask(watched.policy, seen, stopwatch)
    envelope = drift.envelope_of(watched.policy)
    if envelope is not None and not failed:
        watched.drift = drift.after(watched.drift, drift.inputs_of(watched.policy), envelope)
    return scaler.policy, wanted, failed


def ask(policy: Policy | None, seen: Observation, stopwatch: Callable[[], float]) -> tuple[Mapping[str, object], str]:
    """(answer, why there is none). Whatever a policy does wrong stays here."""
    if policy is None:
        return {}, "there is no such policy"
    began = stopwatch()
    try:
        answer = dict(policy.decide(seen))
    except Exception as error:  # noqa: BLE001  a policy's bug is answered by the fall-back, and told
        return {}, f"the policy failed: {type(error).__name__}: {str(error)[:120]}"
    took_s = stopwatch() - began
    if took_s > LATE_S:
        return {}, f"the policy was late: it took {took_s:.1f} s, {LATE_S:g} s are allowed"
    return answer, ""


def observe(
    watched: Watched,
    target: Target,
    fact: TargetFact,
    read: RoundRead,
    cluster: Cluster,
    pods: list[PodFact],
    *,
    fail_over: bool,
) -> tuple[ServiceObservation, tuple[str, ...]]:
    """(one service as the policy sees it, what is wrong with its readings)."""
    limits = watched.scaler.limits
    ready = sum(pod.ready for pod in pods)
    readings = {**whole(read.readings.get(target.name, {}), pods, read.wall_s), **used(target, pods, read)}
    if fact.replicas == 0:
        # nobody runs, so nobody's use can be measured: that is no failure
        readings = {name: one for name, one in readings.items() if name not in USAGE}
    good, bad, age_s = checked(readings, wall_s=read.wall_s, stale_after_s=limits.stale_after_s)
    missing = [
        signal
        for signal, source in target.sources.items()
        if signal not in readings and not (fact.replicas == 0 and source.kind is SourceKind.RESOURCE)
    ]
    lines = [f"{signal.value}: {why}" for signal, why in bad.items()]
    lines += [f"{signal.value}: it was not read" for signal in missing if signal not in bad]
    lines += [
        f"{kind}: as they were {silent_s:.0f} s ago, their watch is broken"
        for kind, silent_s in read.silent_s.items()
        if silent_s > SILENT_S
    ]
    failing = [pod for pod in pods if pod.node and not pod.ready and _runs_s(pod, read.wall_s) > PROBE_S]
    held = [fact.rollout] if fact.rollout else []
    if draining := cluster.draining(pods):
        held.append(draining)
    if failing:
        held.append(f"a failing probe: {failing[0].name} is not ready after {PROBE_S:g} s")
    if fail_over:
        held.append("a fail-over: another autoscaler led until just now")
    requests: dict[str, float] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            requests[name] = max(requests.get(name, 0.0), amount)
    usage = {USAGE[signal]: good.get(signal) for signal in target.sources if signal in USAGE}
    return ServiceObservation(
        replicas=fact.replicas,
        ready=ready,
        starting=sum(1 for pod in pods if pod.node and not pod.ready),
        pending=sum(1 for pod in pods if not pod.node),
        bounds=Bounds(target.minimum, target.maximum),
        requests=requests,
        usage=usage,
        arrivals=good.get(Signal.ARRIVALS),
        served=good.get(Signal.SERVED),
        failed=good.get(Signal.FAILED),
        latency_s=good.get(Signal.LATENCY),
        queue=good.get(Signal.QUEUE),
        age_s=age_s,
        held=tuple(held),
    ), tuple(lines)


def whole(readings: Mapping[Signal, Reading], pods: list[PodFact], wall_s: float) -> dict[Signal, Reading]:
    """Readings without those that are of fewer pods than have run for a while: a part of the load is no less load."""
    known = sum(1 for pod in pods if pod.ready and _runs_s(pod, wall_s) > SAMPLED_S)
    return {
        signal: Reading(None, None, f"only {one.pods} of {known} pods have a sample")
        if one.pods is not None and one.pods < known
        else one
        for signal, one in readings.items()
    }


def used(target: Target, pods: list[PodFact], read: RoundRead) -> dict[Signal, Reading]:
    """Mean use of the ready pods by metrics.k8s.io; one that has run for a while and has no sample spoils it."""
    signals = [signal for signal, source in target.sources.items() if source.kind is SourceKind.RESOURCE]
    if isinstance(read.pod_metrics, str):
        return {signal: Reading(None, None, read.pod_metrics) for signal in signals}
    found: dict[Signal, Reading] = {}
    ready = [pod for pod in pods if pod.ready]
    for signal in signals:
        samples = [
            (metric, metric.usage[USAGE[signal]])
            for pod in ready
            if (metric := read.pod_metrics.get(pod.name)) is not None and USAGE[signal] in metric.usage
        ]
        sampled = {metric.pod for metric, _ in samples}
        without = [pod for pod in ready if pod.name not in sampled and _runs_s(pod, read.wall_s) > SAMPLED_S]
        if not samples:
            found[signal] = Reading(None, None, "no ready pod has a sample" if ready else "no pod is ready")
        elif without:
            found[signal] = Reading(None, None, f"{without[0].name} is ready and has no sample")
        else:
            mean = sum(value for _, value in samples) / len(samples)
            # one bad part spoils the mean, and must show
            worst = next((value for _, value in samples if not value >= 0), mean)
            found[signal] = Reading(worst, min(metric.at_s for metric, _ in samples))
    return found


def _runs_s(pod: PodFact, wall_s: float) -> float:
    return 0.0 if pod.since_s is None else wall_s - pod.since_s


def floor_of(watched: Watched, name: str, replicas: int) -> int | None:
    """The rise that an earlier decision ordered and that did not happen; None for none."""
    wanted = watched.unsure.get(name)
    return wanted if wanted is not None and wanted > replicas else None


def note_changes(watched: Watched, shown: Mapping[str, int], now: float) -> None:
    """Remember how the replicas changed since the last reading, whoever changed them."""
    longest = max(watched.scaler.limits.up_period_s, watched.scaler.limits.down_period_s)
    for name, replicas in shown.items():
        before = watched.shown.get(name)
        changes = [change for change in watched.changes.get(name, ()) if change.at_s > now - longest]
        if before is not None and before != replicas:
            changes.append(Change(now, replicas - before))
        watched.changes[name] = changes
    watched.shown = dict(shown)
    for name in watched.changes.keys() - shown.keys():
        del watched.changes[name]
