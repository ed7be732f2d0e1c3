"""One decision: what a round read, through the policy, to what the safeguards allow. Pure.

    facts > observation (readings that cannot be relied on are taken out) > policy and HPA's rule > safeguards > checker

The checker shares no code with the safeguards; a verdict that breaks a rule is told and not carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from services.autoscaler.core.cluster import ScaledCluster
from services.autoscaler.core.events import PodFact, RoundRead, TargetFact
from services.autoscaler.core.watched import WatchedScaler
from shared.autoscaling.guard import AutoscalingGuard
from shared.autoscaling.hpa.model import (
    HpaController,
    HpaOutcome,
    MetricAnswers,
    PodFacts,
    PodUsage,
    ScaleSubresource,
    TargetSeen,
)
from shared.autoscaling.hpa.pods import NoValueError, group_pods, pod_samples, requests_of
from shared.autoscaling.hpa.values import milli_units
from shared.autoscaling.networks.signals import IDLE_CPU, SATURATED, fails_at_little_cpu
from shared.autoscaling.observation import (
    LOAD,
    Acted,
    Bounds,
    ScalingObservation,
    ServiceObservation,
    acted_of,
    needs_of,
)
from shared.autoscaling.safety import drift
from shared.autoscaling.safety.answer import usable
from shared.autoscaling.safety.chain import judge
from shared.autoscaling.safety.check import violations
from shared.autoscaling.safety.readings import SignalReading, checked
from shared.autoscaling.safety.scene import ReplicaChange, SafetyScene, SafetyVerdict, ServiceCase
from shared.decide.canary import in_window
from shared.model.controllers.autoscaler import ScalingSignal, ScalingTarget, SourceKind

PROBE_S = 120.0
"""A pod that has run for so long without being ready is a failing probe; before, it starts."""

SAMPLED_S = 60.0
"""A pod has a sample after so long."""

SILENT_S = 180.0
"""A watch that has said nothing for so long is broken: the API server sends a bookmark each minute, and a stream
without a byte for 150 s is given up."""

UNKNOWN_S = 300.0
"""What a replica could answer stays unknown for so long after cpu last said nothing of it: what fails now and then
passes any bound again and again."""

USAGE = {ScalingSignal.CPU: "cpu", ScalingSignal.MEMORY: "memory"}


class ScalerDecision(Struct, frozen=True, kw_only=True):
    """One decision. ``by``: whose number was taken; ``failed``: why the policy had no say; ``unmade``: why
    there is no such policy (the kill switch gave its place to HPA's rule); ``broken``: rules that the verdict
    breaks."""

    seen: ScalingObservation
    bad: Mapping[str, tuple[str, ...]]
    wanted: Mapping[str, object]
    rule: Mapping[str, int]
    verdict: SafetyVerdict
    by: str
    failed: str = ""
    drifting: str = ""
    unmade: str = ""
    roles: Mapping[str, Acted] = {}
    """Of the services that acted in a role, where the policy decided."""
    broken: tuple[str, ...] = ()
    lacking: Mapping[str, str] = {}
    """By service, which signals the policy needs and the object names no source of."""
    unknown: Mapping[str, str] = {}
    """By service, why what a replica could answer is not known, though every reading is good."""
    refused: Mapping[str, tuple[str, str]] = {}
    """By service, why HPA's rule could not go by its metrics (reason, text), where it decides or would."""


def decide(
    watched: WatchedScaler,
    read: RoundRead,
    cluster: ScaledCluster,
    *,
    now: float,
    leads_since: float,
    floors: Mapping[str, int] = {},
    others: tuple[str, ...] = (),
) -> ScalerDecision:
    """What follows from a round whose targets could all be read. ``floors``: by service, what somebody else wrote and
    nothing falls below; ``others``: selectors of other objects' targets in the namespace."""
    scaler = watched.scaler
    gone = gone_of(read, cluster.names_in(scaler.namespace))
    observed: dict[str, tuple[ServiceObservation, tuple[str, ...], list[PodFact]]] = {}
    for target in scaler.targets:
        fact = read.targets[target.name]
        assert isinstance(fact, TargetFact), "asked of complete rounds alone"
        pods = cluster.pods_of(scaler.namespace, target.ref, fact)
        fail_over = now - leads_since < scaler.limits.fail_over_s
        one, lines = observe(watched, target, fact, read, cluster, pods, fail_over=fail_over)
        rivals = () if cluster.owns(target.ref) else others
        sight = sight_of(target, fact, read, pods, gone, shift_s=now - read.wall_s, others=rivals, seen=one)
        observed[target.name] = replace(one, seen=sight), lines, [pod for pod in pods if pod.there]
    seen = ScalingObservation(
        now=now,
        services={name: one for name, (one, _, _) in observed.items()},
        calls=scaler.calls,
        latency_objective_s=scaler.latency_objective_s,
        success_objective=scaler.success_objective,
        cost_limit=scaler.cost_limit,
    )
    rule, rule_failed = ask(watched.rule_guard, seen)
    ruled = {name: answer for name, answer in rule.items() if isinstance(answer, int) and usable(answer)}
    by, wanted, failed = answered(watched, read, seen, (rule, rule_failed))
    lacking = lacking_of(watched, seen)
    unknown = unknown_of(watched, seen, now)
    scene = SafetyScene(
        now=now,
        services={
            name: ServiceCase(
                seen=one,
                wanted=wanted.get(name),
                rule=ruled.get(name),
                bad=bad,
                lacking=(lacking.get(name) or unknown.get(name, "")) if by != "hpa" else "",
                changes=tuple(watched.changes.get(name, ())),
                floor=floor_of(watched, name, one.replicas),
                foreign=floors.get(name),
                disruptions=cluster.disruptions(scaler.namespace, pods),
                takes=max(pods, key=lambda pod: (pod.created, pod.name)).takes if pods else {},
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
    return ScalerDecision(
        # what the rule read pod by pod has decided, and is too much to be recorded
        seen=replace(seen, services={name: replace(one, seen=None) for name, one in seen.services.items()}),
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
        lacking=lacking,
        unknown=unknown,
        refused={} if own else _refused(watched.policy if by == scaler.policy == "hpa" else watched.rule),
    )


def lacking_of(watched: WatchedScaler, seen: ScalingObservation) -> dict[str, str]:
    """By service, why the policy cannot judge it, in words: a signal that it needs has no source, or its pods
    request no cpu. It lasts until somebody changes it, and only raises a service: see ``safety/answer.py``."""
    scaler, found = watched.scaler, {}
    for target in scaler.targets if not scaler.plain_hpa else ():
        needed = needs_of(watched.policy, target.name)
        one, names = seen.services[target.name], needed - {signal.value for signal in target.sources}
        if names:
            text = " and ".join(sorted(name.removesuffix("_s") for name in names))
            found[target.name] = f"{scaler.policy} needs {text}: name a source in its metrics"
        elif needed >= LOAD and one.ready and not one.requests.get("cpu"):
            found[target.name] = f"{scaler.policy} goes by cpu requested: give every container of its pods requests.cpu"
    return found


def unknown_of(watched: WatchedScaler, seen: ScalingObservation, now: float) -> dict[str, str]:
    """By service, why what its cpu says of a replica cannot be true, in words; no reading is bad for it. Like
    ``lacking_of`` it only raises a service; it is told for ``UNKNOWN_S`` after it was last so."""
    scaler, found = watched.scaler, {}
    for target in scaler.targets if not scaler.plain_hpa else ():
        if not needs_of(watched.policy, target.name) >= LOAD:
            watched.unknown_at.pop(target.name, None)
            continue
        if fails_at_little_cpu(seen.services[target.name]):
            watched.unknown_at[target.name] = now
        if now - watched.unknown_at.get(target.name, -inf) < UNKNOWN_S:
            found[target.name] = (
                f"more than {SATURATED:.0%} of what comes fails or waits, or did within {UNKNOWN_S:g} s, at "
                f"{IDLE_CPU:.0%} of its cpu request or less, so what a replica could answer is not known: see what it "
                "waits for; where a full pod uses no more, lower the request to what it uses, or write hpa"
            )
    return found


def _refused(rule: object) -> dict[str, tuple[str, str]]:
    """What HPA's rule could not go by, as the controller says it."""
    outcomes: Mapping[str, HpaOutcome] = getattr(rule, "outcomes", {})
    return {name: (one.reason, one.error) for name, one in outcomes.items() if one.error}


def answered(
    watched: WatchedScaler,
    read: RoundRead,
    seen: ScalingObservation,
    rule: tuple[Mapping[str, object], str],
) -> tuple[str, Mapping[str, object], str]:
    """(whose answer, the answer, why the policy has none). The kill switch and the canary's other part take HPA's."""
    scaler = watched.scaler
    if scaler.plain_hpa or not in_window(read.wall_s, scaler.canary_time):
        return "hpa", *rule
    wanted, failed = ask(watched.guard, seen)
    envelope = drift.envelope_of(watched.policy)
    if envelope is not None and not failed:
        watched.drift = drift.after(watched.drift, drift.inputs_of(watched.policy), envelope)
    return scaler.policy, wanted, failed


def ask(guard: AutoscalingGuard | None, seen: ScalingObservation) -> tuple[Mapping[str, object], str]:
    """(answer, why there is none)."""
    if guard is None:
        return {}, "there is no such policy"
    answer = guard.ask(seen)
    if answer is not None:
        return answer, ""
    # the same while it rests: a line that changes would be written to the object's status again and again
    return {}, f"the policy failed: {guard.problem}"


def observe(
    watched: WatchedScaler,
    target: ScalingTarget,
    fact: TargetFact,
    read: RoundRead,
    cluster: ScaledCluster,
    pods: list[PodFact],
    *,
    fail_over: bool,
) -> tuple[ServiceObservation, tuple[str, ...]]:
    """(one service as the policy sees it, what is wrong with its readings)."""
    limits = watched.scaler.limits
    there = [pod for pod in pods if pod.there]
    ready = sum(pod.ready for pod in there)
    readings = {**whole(read.readings.get(target.name, {}), there, read.wall_s), **used(target, there, read)}
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
    failing = [pod for pod in there if pod.node and not pod.ready and pod.runs_s(read.wall_s) > PROBE_S]
    held = [fact.rollout] if fact.rollout else []
    if draining := cluster.draining(there):
        held.append(draining)
    if failing:
        held.append(f"a failing probe: {failing[0].name} is not ready after {PROBE_S:g} s")
    if fail_over:
        held.append("a fail-over: another autoscaler led until just now")
    usage = {USAGE[signal]: good.get(signal) for signal in target.sources if signal in USAGE}
    return ServiceObservation(
        replicas=fact.replicas,
        ready=ready,
        starting=sum(1 for pod in there if pod.node and not pod.ready),
        pending=sum(1 for pod in there if not pod.node),
        bounds=Bounds(target.minimum, target.maximum),
        requests=requests_of_all(there),
        usage=usage,
        arrivals=good.get(ScalingSignal.ARRIVALS),
        served=good.get(ScalingSignal.SERVED),
        failed=good.get(ScalingSignal.FAILED),
        latency_s=good.get(ScalingSignal.LATENCY),
        queue=good.get(ScalingSignal.QUEUE),
        age_s=age_s,
        held=tuple(held),
        scaled_to=watched.wrote.get(target.name),
        asleep=fact.replicas == 0 and _ours(watched, target.name, 0),
    ), tuple(lines)


def _ours(watched: WatchedScaler, name: str, replicas: int) -> bool:
    """Whether a number is one that we wrote, as far as is known."""
    expected = watched.expected.get(name)
    return name not in watched.foreign and expected is not None and replicas in expected.values


def requests_of_all(pods: Sequence[PodFact]) -> dict[str, float]:
    """Mean by resource; one that any of the pods does not request is left out, as HPA refuses to guess it."""
    found: dict[str, float] = {}
    for resource in USAGE.values() if pods else ():
        try:
            asked = requests_of((pod.seen for pod in pods), resource, "")
        except NoValueError:
            continue
        found[resource] = sum(asked.values()) / len(pods) / 1000
    return found


def gone_of(read: RoundRead, names: Collection[str]) -> list[PodUsage]:
    """Samples of pods that are no more; the HPA's rule counts those that a target's selector picks. ``names``: of the
    pods that are there."""
    found = {} if isinstance(read.pod_metrics, str) else read.pod_metrics
    return [one for name, one in found.items() if name not in names]


def sight_of(
    target: ScalingTarget,
    fact: TargetFact,
    read: RoundRead,
    pods: Sequence[PodFact],
    gone: Sequence[PodUsage],
    *,
    shift_s: float,
    others: tuple[str, ...],
    seen: ServiceObservation,
) -> TargetSeen:
    """What HPA's rule reads of one target, in the clock of decisions (``shift_s`` ahead of 1970's).

    Samples of others' pods are left out, whatever their labels. Where cpu or memory have a source of their own, its
    mean is what each ready pod uses.
    """
    error, usages = "", list[PodUsage]()
    told = {name: milli_units(seen.usage.get(name) or 0) for signal, name in USAGE.items() if _told(target, signal)}
    told = {name: value for name, value in told.items() if seen.usage.get(name) is not None}
    if isinstance(read.pod_metrics, str):
        error = "" if told else read.pod_metrics
    else:
        # some servers of this API leave the labels out
        own = [replace(read.pod_metrics[pod.name], labels=pod.labels) for pod in pods if pod.name in read.pod_metrics]
        usages = [*own, *gone]
    if told:
        usages = _with_told(usages, told, [pod for pod in pods if pod.ready], read.wall_s)
    return TargetSeen(
        ScaleSubresource(fact.replicas, fact.there, fact.selector),
        tuple(_shifted(pod.seen, shift_s) for pod in pods),
        MetricAnswers(
            resource=tuple(replace(one, at_s=one.at_s + shift_s) for one in usages),
            resource_error=error,
            asked=read.series.get(target.name, {}),
        ),
        others,
    )


def _with_told(
    usages: Sequence[PodUsage], told: Mapping[str, int], ready: Sequence[PodFact], wall_s: float
) -> list[PodUsage]:
    """One entry per ready pod: what was told of each, and what its containers use beside."""
    sums = {name: pod_samples(usages, name) for name in USAGE.values() if name not in told}
    return [
        PodUsage(
            pod.name, pod.labels, wall_s, 0.0,
            (("", {**{name: one[pod.name].value for name, one in sums.items() if pod.name in one}, **told}),),
        )
        for pod in ready
    ]  # fmt: skip


def _told(target: ScalingTarget, signal: ScalingSignal) -> bool:
    source = target.sources.get(signal)
    return source is not None and source.kind is not SourceKind.RESOURCE


def _shifted(pod: PodFacts, by_s: float) -> PodFacts:
    start_s = None if pod.start_s is None else pod.start_s + by_s
    return replace(pod, start_s=start_s, ready_since_s=pod.ready_since_s + by_s)


def whole(
    readings: Mapping[ScalingSignal, SignalReading], pods: list[PodFact], wall_s: float
) -> dict[ScalingSignal, SignalReading]:
    """Readings without those that are of fewer pods than have run for a while: a part of the load is no less load."""
    known = sum(1 for pod in pods if pod.ready and pod.runs_s(wall_s) > SAMPLED_S)
    return {
        signal: SignalReading(None, None, f"only {one.pods} of {known} pods have a sample")
        if one.pods is not None and one.pods < known
        else one
        for signal, one in readings.items()
    }


def used(target: ScalingTarget, pods: list[PodFact], read: RoundRead) -> dict[ScalingSignal, SignalReading]:
    """Mean use of the ready pods by metrics.k8s.io; one that has run for a while and has no sample spoils it. Of cpu,
    what may be that of a pod's start does not count, by the HPA's own rule."""
    signals = [signal for signal, source in target.sources.items() if source.kind is SourceKind.RESOURCE]
    if isinstance(read.pod_metrics, str):
        return {signal: SignalReading(None, None, read.pod_metrics) for signal in signals}
    found: dict[ScalingSignal, SignalReading] = {}
    ready = [pod for pod in pods if pod.ready]
    usages = [read.pod_metrics[pod.name] for pod in ready if pod.name in read.pod_metrics]
    for signal in signals:
        samples = pod_samples(usages, USAGE[signal])
        groups = group_pods(
            (pod.seen for pod in ready), samples, resource=USAGE[signal], now=read.wall_s, flags=HpaController()
        )
        without = [pod for pod in ready if pod.name not in samples and pod.runs_s(read.wall_s) > SAMPLED_S]
        counted = [sample for name, sample in samples.items() if name not in groups.unready]
        if not samples:
            found[signal] = SignalReading(None, None, "no ready pod has a sample" if ready else "no pod is ready")
        elif without:
            found[signal] = SignalReading(None, None, f"{without[0].name} is ready and has no sample")
        elif not counted:
            found[signal] = SignalReading(None, None, "its pods have only just started")
        else:
            mean = sum(sample.value for sample in counted) / len(counted)
            # one bad part spoils the mean, and must show
            worst = next((sample.value for sample in counted if sample.value < 0), mean)
            found[signal] = SignalReading(worst / 1000, min(sample.at_s for sample in counted))
    return found


def floor_of(watched: WatchedScaler, name: str, replicas: int) -> int | None:
    """The rise that an earlier decision ordered and that did not happen; None for none."""
    wanted = watched.unsure.get(name)
    return wanted if wanted is not None and wanted > replicas else None


def note_changes(watched: WatchedScaler, shown: Mapping[str, int], now: float) -> None:
    """Remember how the replicas changed since the last reading, whoever did it; what we wrote is known already."""
    for name, replicas in shown.items():
        before = watched.shown.get(name, replicas)
        note_change(watched, name, before, replicas, now)
    for name in watched.changes.keys() - shown.keys():
        del watched.changes[name]
    for name in watched.shown.keys() - shown.keys():
        del watched.shown[name]


def note_change(watched: WatchedScaler, name: str, before: int, replicas: int, now: float) -> None:
    """One change, at the moment it was made: dated with the reading after it, its period would end a round too late."""
    longest = max(watched.scaler.limits.up_period_s, watched.scaler.limits.down_period_s)
    changes = [change for change in watched.changes.get(name, ()) if change.at_s > now - longest]
    if before != replicas:
        changes.append(ReplicaChange(now, replicas - before))
    watched.changes[name] = changes
    watched.shown[name] = replicas


def may_grow_at(watched: WatchedScaler, decided: ScalerDecision) -> float | None:
    """When the first change that holds a service's growth back is over; None: none does."""
    period_s = watched.scaler.limits.up_period_s
    found = [
        change.at_s + period_s
        for name, notes in decided.verdict.notes.items()
        if any(safeguard == "rate-up" for safeguard, _ in notes)
        for change in watched.changes.get(name, ())
        if change.at_s > decided.seen.now - period_s
    ]
    return min(found, default=None)
