"""``conclave autoscale hpa --batch``: one case per line in, what the controller would have done at each step out. Pure.

The form is that of a corpus of the real controller's answers: an object, and steps that give scale, pods and metrics in
full; only the controller's memory goes from one step to the next. A line that cannot be used costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from shared.autoscaling.hpa.convert_seen import answers_from_api, pods_from_api, scale_from_api
from shared.autoscaling.hpa.convert_spec import spec_from_api, status_from_api
from shared.autoscaling.hpa.model import HpaController, HpaOutcome, Memory, Proposal
from shared.autoscaling.hpa.objects import CaseController, CaseInput, HpaCase
from shared.autoscaling.hpa.rule import reconcile
from shared.autoscaling.hpa.values import duration_s, needed_seconds
from shared.errors import ConfigError, ObjectError
from shared.kube.label_selectors import SelectorError, parse_label_selector

SCALE_TO_ZERO = "HPAScaleToZero"
TOLERANCE = "HPAConfigurableTolerance"
EXTERNAL_FALLBACK = "HPAExternalMetricFallback"
GATES = (SCALE_TO_ZERO, TOLERANCE, EXTERNAL_FALLBACK)

_decoder = msgspec.json.Decoder(HpaCase)


def answers(lines: Iterable[bytes], refused: Callable[[int, ConfigError], None]) -> Iterator[dict[str, Any]]:
    """One answer per case, in order; blank lines are left out.

    ``refused`` hears the number of a line that cannot be used, and why (the field, the remedy); the next is answered.
    """
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            yield _answer(line)
        except ConfigError as error:
            refused(number, error)


def _answer(line: bytes) -> dict[str, Any]:
    try:
        case = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{error}; give one JSON object per line, with id and input (hpa, steps)") from error
    try:
        return {"id": case.id, "steps": [step_json(one) for one in play(case.input)]}
    except ObjectError as error:
        raise ConfigError(f"case {case.id}: input.{error}") from error


def play(given: CaseInput) -> Iterator[HpaOutcome]:
    """Each step's reconciliation. Raises ``ObjectError`` naming the field below ``input``."""
    try:
        spec, status = spec_from_api(given.hpa), status_from_api(given.hpa.status)
    except ObjectError as error:
        raise ObjectError(str(error).removeprefix(f"{error.field}: "), field=f"hpa.{error.field}") from error
    flags = controller_from_case(given.controller, given.feature_gates or {})
    others = []
    for index, other in enumerate(given.other_hpa_selectors or ()):
        others.append(_checked(other.selector, f"otherHPASelectors[{index}].selector"))
    memory, before = Memory(status=status), None
    for index, step in enumerate(given.steps):
        where = f"steps[{index}]"
        now = needed_seconds(step.at, f"{where}.at")
        if before is not None and now < before:
            raise ObjectError("is before the step before it; give the steps in the order of time", field=f"{where}.at")
        before = now
        outcome = reconcile(
            spec,
            memory,
            scale_from_api(step.scale, f"{where}.scale"),
            pods_from_api(step.pods or (), spec.namespace, f"{where}.pods"),
            answers_from_api(step.metrics, spec.namespace, f"{where}.metrics"),
            now,
            flags=flags,
            others=others,
        )
        memory = outcome.memory
        yield outcome


def _checked(selector: str, field: str) -> str:
    try:
        parse_label_selector(selector)
    except SelectorError as error:
        raise ObjectError(f"{selector[:80]!r}: {error}; give one such as app=web", field=field) from error
    return selector


def controller_from_case(given: CaseController | None, gates: dict[str, bool]) -> HpaController:
    """Flags and gates; what is absent has the controller manager's default. Raises ``ObjectError``."""
    for gate in gates:
        if gate not in GATES:
            known = ", ".join(GATES)
            raise ObjectError(
                f"decides nothing that is known here; known are {known}", field=f"featureGates[{gate[:40]}]"
            )
    default, given = HpaController(), given or CaseController()
    if given.tolerance is not None and not 0 <= given.tolerance < float("inf"):
        raise ObjectError(f"{given.tolerance} is no share; give 0 or more", field="controller.tolerance")

    def period(text: str | None, field: str, otherwise: float) -> float:
        return otherwise if text is None else duration_s(text, f"controller.{field}")

    return HpaController(
        tolerance=default.tolerance if given.tolerance is None else given.tolerance,
        down_window_s=period(
            given.downscale_stabilization_window, "downscaleStabilizationWindow", default.down_window_s
        ),
        cpu_initialization_s=period(
            given.cpu_initialization_period, "cpuInitializationPeriod", default.cpu_initialization_s
        ),
        initial_readiness_s=period(given.initial_readiness_delay, "initialReadinessDelay", default.initial_readiness_s),
        scale_to_zero=gates.get(SCALE_TO_ZERO, default.scale_to_zero),
        configurable_tolerance=gates.get(TOLERANCE, default.configurable_tolerance),
        external_fallback=gates.get(EXTERNAL_FALLBACK, default.external_fallback),
    )


def step_json(outcome: HpaOutcome) -> dict[str, Any]:
    """One entry of an answer's ``steps``. What did not happen is left out: ``scaled``, ``error``, ``metrics``."""
    status = outcome.status
    found: dict[str, Any] = {
        "desired": status.desired,
        "reason": outcome.reason,
        "replicas": outcome.replicas,
        "current": status.current,
    }
    if outcome.scaled:
        found |= {"scaled": True, "rescaleReason": outcome.rescale_reason}
    if outcome.error:
        found["error"] = True
    found["conditions"] = {
        kind: {"status": one.status, "reason": one.reason} for kind, one in sorted(status.conditions.items())
    }
    if outcome.proposals is not None:
        found["proposals"] = [_proposal_json(one) for one in outcome.proposals]
    if status.metrics is not None:
        found["metrics"] = list(status.metrics)
    return found


def _proposal_json(one: Proposal) -> dict[str, Any]:
    return {"reason": one.reason} if one.replicas is None else {"replicas": one.replicas}
