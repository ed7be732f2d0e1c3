"""One reconciliation of a HorizontalPodAutoscaler: what decides it goes in, what follows from it comes out.

Source: ``reconcileAutoscaler`` in ``pkg/controller/podautoscaler/horizontal.go`` of Kubernetes 1.36 (scale to zero:
KEP-2021, external fall-back: KEP-5679, both behind their gates). It writes nothing: ``HpaOutcome.replicas`` is what the
scale is to say, and whoever asks applies it, or does not. If the write fails, the old memory is the one to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shared.autoscaling.hpa.limits import settle, with_scale_event
from shared.autoscaling.hpa.model import (
    HpaController,
    HpaObjectSpec,
    HpaOutcome,
    Json,
    Memory,
    MetricAnswers,
    MetricSource,
    PodFacts,
    Proposal,
    Recommendation,
    ScaleSubresource,
    ScalingCondition,
)
from shared.autoscaling.hpa.proposals import MetricsView, propose, tolerance_of
from shared.kube.label_selectors import ParsedSelector, SelectorError, parse_label_selector

ABLE, ACTIVE, LIMITED, TO_ZERO = "AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"
ABOVE_MAXIMUM = "Current number of replicas above Spec.MaxReplicas"
BELOW_MINIMUM = "Current number of replicas below Spec.MinReplicas"
_INVALID: Json = {"type": ""}
"""What a metric that failed leaves in ``status.currentMetrics``."""


def reconcile(
    spec: HpaObjectSpec,
    memory: Memory,
    scale: ScaleSubresource,
    pods: Iterable[PodFacts],
    answers: MetricAnswers,
    now: float,
    *,
    flags: HpaController = HpaController(),  # noqa: B008 - frozen
    others: Sequence[str] = (),
) -> HpaOutcome:
    """What the controller does at ``now``.

    ``pods`` and ``answers`` are those of the namespace, the scale's selector chooses among them. ``others``: the
    selectors, as text, of the targets of other HPAs there; a pod of ours that one of them selects too stops us.
    """
    return _Reconciliation(spec, memory, scale, now, flags).run(tuple(pods), answers, others)


class _Reconciliation:
    """The state of one run: conditions and memory as they become."""

    def __init__(
        self, spec: HpaObjectSpec, memory: Memory, scale: ScaleSubresource, now: float, flags: HpaController
    ) -> None:
        self.spec, self.scale, self.now, self.flags = spec, scale, now, flags
        self.memory = memory
        self.conditions = dict(memory.status.conditions)
        self.proposals: tuple[Proposal, ...] | None = None

    def run(self, pods: tuple[PodFacts, ...], answers: MetricAnswers, others: Sequence[str]) -> HpaOutcome:
        if self.scale.error:
            self.conditions[ABLE] = ScalingCondition("False", "FailedGetScale", self.scale.error)
            self.memory = replace(self.memory, status=replace(self.memory.status, conditions=self.conditions))
            return self._outcome(error=f"the scale cannot be read: {self.scale.error}", reason="FailedGetScale")
        self.conditions[ABLE] = ScalingCondition("True", "SucceededGetScale")
        current = self.scale.replicas
        if self.memory.recommendations is None:
            # so that a fresh controller keeps what it finds for a whole window
            self.memory = replace(self.memory, recommendations=(Recommendation(current, self.now),))
        chosen, problem = _chosen(self.scale.selector, pods, others)
        self._propose(chosen, pods, answers)
        if current == 0 and not self._wakes():
            self.conditions[ACTIVE] = ScalingCondition("False", "ScalingDisabled", "the target has been scaled to zero")
            return self._done(0, "ScalingDisabled")
        if current > self.spec.maximum:
            return self._done(self.spec.maximum, ABOVE_MAXIMUM, rescale=ABOVE_MAXIMUM)
        if 0 < current < self.spec.minimum:
            return self._done(self.spec.minimum, BELOW_MINIMUM, rescale=BELOW_MINIMUM)
        if problem is not None:
            self.conditions[ACTIVE] = problem
            return self._failed(problem, None)
        return self._by_metrics(current)

    def _propose(self, selector: ParsedSelector | None, pods: tuple[PodFacts, ...], answers: MetricAnswers) -> None:
        if selector is None:
            return
        view = MetricsView(
            namespace=self.spec.namespace,
            scale=self.scale,
            pods=tuple(pod for pod in pods if selector.matches(pod.labels)),
            answers=replace(answers, resource=tuple(u for u in answers.resource if selector.matches(u.labels))),
            now=self.now,
            flags=self.flags,
            tolerance=tolerance_of(self.spec.behavior, self.flags),
        )
        self.proposals = tuple(propose(metric, view) for metric in self.spec.metrics)

    def _wakes(self) -> bool:
        """Whether a target at zero is looked at: only if this HPA put it there, and has a metric that can tell, or a
        minimum by now (KEP-2021). A target that somebody else scaled to zero is left alone."""
        was = self.conditions.get(TO_ZERO)
        asleep = self.flags.scale_to_zero and was is not None and was.status == "True"
        return asleep and (self.spec.minimum != 0 or self._sees_from_outside())

    def _sees_from_outside(self) -> bool:
        return any(metric.source in (MetricSource.OBJECT, MetricSource.EXTERNAL) for metric in self.spec.metrics)

    def _by_metrics(self, current: int) -> HpaOutcome:
        proposals = self._with_fallbacks(self.proposals or ())
        metrics = tuple(_INVALID if one.current is None else one.current for one in proposals)
        invalid = [one for one in proposals if one.replicas is None]
        wanted, title = 0, ""
        for one in proposals:
            if one.replicas is not None and (wanted == 0 or one.replicas > wanted):
                wanted, title = one.replicas, one.title
        error = ""
        if invalid:
            error = f"{len(invalid)} of {len(proposals)} metrics are invalid, first: {invalid[0].problem}"
            if len(invalid) == len(proposals) or wanted < current:
                self.conditions[ACTIVE] = ScalingCondition("False", invalid[0].reason, invalid[0].problem)
                return self._failed(self.conditions[ACTIVE], metrics, error)
        self.conditions[ACTIVE] = ScalingCondition("True", "ValidMetricFound")
        wanted = max(wanted, 0)
        rescale = f"{title} above target" if wanted > current else ""
        if wanted < current:
            rescale = "All metrics below target"
        settled = settle(self.spec, self.memory, current=current, wanted=wanted, now=self.now, flags=self.flags)
        self.memory = replace(self.memory, recommendations=settled.recommendations)
        self.conditions[ABLE], self.conditions[LIMITED] = settled.able, settled.limited
        replicas = settled.replicas
        if current == 0 and replicas < self.spec.minimum:  # the minimum was raised while it slept
            replicas, rescale = self.spec.minimum, rescale or BELOW_MINIMUM
        return self._done(replicas, settled.limited.reason, rescale=rescale, metrics=metrics, error=error)

    def _with_fallbacks(self, proposals: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
        """External metrics that have failed for long enough ask for what their fall-back says (KEP-5679)."""
        if not self.flags.external_fallback:
            return proposals
        since: dict[int, float] = {}
        answered = list(proposals)
        for index, (metric, one) in enumerate(zip(self.spec.metrics, proposals, strict=True)):
            if metric.fallback is None or one.replicas is not None:
                continue
            since[index] = self.memory.failing_since.get(index, self.now)
            if self.now - since[index] >= metric.fallback.failing_s:
                title = f"fall-back of external metric {metric.name}"
                answered[index] = Proposal(replicas=metric.fallback.replicas, problem=one.problem, title=title)
        self.memory = replace(self.memory, failing_since=since)
        return tuple(answered)

    def _failed(self, why: ScalingCondition, metrics: tuple[Json, ...] | None, error: str = "") -> HpaOutcome:
        """Nothing is scaled, and ``desiredReplicas`` stays as it was."""
        status = self.memory.status
        status = replace(status, current=self.scale.replicas, conditions=self.conditions, metrics=metrics)
        self.memory = replace(self.memory, status=status)
        return self._outcome(error=error or why.message or why.reason, reason=why.reason)

    def _done(
        self,
        replicas: int,
        reason: str,
        *,
        rescale: str = "",
        metrics: tuple[Json, ...] | None = None,
        error: str = "",
    ) -> HpaOutcome:
        current = self.scale.replicas
        scaled = replicas != current
        last = self.memory.status.last_scale_s
        if scaled:
            last = self.now
            self.conditions[ABLE] = ScalingCondition("True", "SucceededRescale")
            self._mark_zero(current, replicas)
            ups, downs = with_scale_event(self.spec, self.memory, before=current, after=replicas, now=self.now)
            self.memory = replace(self.memory, ups=ups, downs=downs)
        status = replace(
            self.memory.status,
            current=current,
            desired=replicas,
            conditions=self.conditions,
            metrics=metrics,
            last_scale_s=last,
        )
        self.memory = replace(self.memory, status=status)
        return self._outcome(replicas, scaled=scaled, rescale=rescale if scaled else "", reason=reason, error=error)

    def _mark_zero(self, before: int, after: int) -> None:
        if not self.flags.scale_to_zero:
            return
        slept = before > 0 and after == 0 and self.spec.minimum == 0 and self._sees_from_outside()
        self.conditions[TO_ZERO] = (
            ScalingCondition("True", "ScaledToZero") if slept else ScalingCondition("False", "NotScaledToZero")
        )

    def _outcome(
        self, replicas: int | None = None, *, reason: str, error: str, scaled: bool = False, rescale: str = ""
    ) -> HpaOutcome:
        return HpaOutcome(
            replicas=self.scale.replicas if replicas is None else replicas,
            scaled=scaled,
            rescale_reason=rescale,
            reason=reason,
            error=error,
            proposals=self.proposals,
            memory=self.memory,
        )


def _chosen(
    text: str, pods: Sequence[PodFacts], others: Sequence[str]
) -> tuple[ParsedSelector | None, ScalingCondition | None]:
    """(the selector, or None where it cannot be used; why no metric may decide by it)."""
    selector = _parsed(text)
    if selector is None:
        return None, ScalingCondition("False", "InvalidSelector", f"the scale's selector {text[:80]!r} cannot be used")
    rivals = [rival for other in others if (rival := _parsed(other)) is not None]
    if any(rival.matches(pod.labels) for pod in pods if selector.matches(pod.labels) for rival in rivals):
        return selector, ScalingCondition("False", "AmbiguousSelector", "another HPA's target selects the same pods")
    return selector, None


def _parsed(text: str) -> ParsedSelector | None:
    """None: no selector at all, or one that does not parse."""
    try:
        return (parse_label_selector(text) or ParsedSelector()) if text else None
    except SelectorError:
        return None
