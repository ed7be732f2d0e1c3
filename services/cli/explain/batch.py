"""Answers what-if questions in bulk, in the oracle's format: one JSON line in, one out.

Reads only ``id`` and ``input`` of each line. Pure apart from the two files it is given; talks to no cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from shared.errors import ConfigError, ObjectError
from shared.kube.cluster_dump import Question
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.whatif import FILTER, Outcome, what_if
from shared.scheduling.framework import Rejection
from shared.scheduling.preemption.preemption import Candidate, Preemption
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster

_decoder = msgspec.json.Decoder(Question)


def answers(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """One answer per question, blank lines left out. Raises ``ConfigError`` with the number of a line it cannot use."""
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            question = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"line {number}: {error}; give one JSON object per line with id and input (nodes, pods, pod)"
            ) from error
        try:
            yield answer(question)
        except ObjectError as error:
            raise ConfigError(f"line {number}: {error}; correct this object or leave it out") from error


def answer(question: Question) -> dict[str, Any]:
    """The verdict for one question. Raises ``ObjectError`` for an object that cannot be used."""
    state = load_cluster(question.input)
    outcome = what_if(state, FeasibilityCache(state.table), incoming_pod(question.input.pod))
    return {"id": question.id, **verdict_json(outcome)}


def verdict_json(outcome: Outcome) -> dict[str, Any]:
    """The oracle's form of a verdict."""
    infeasible = {
        name: _rejection_json(found.rejection) | ({} if found.stage == FILTER else {"stage": found.stage})
        for name, found in outcome.infeasible.items()
    }
    scores = {
        name: {**dict(sorted(outcome.scores[name].items())), "total": outcome.totals[name]} for name in outcome.feasible
    }
    preemption = outcome.preemption or Preemption()
    return {
        "feasible": list(outcome.feasible),
        "infeasible": infeasible,
        "scores": scores,
        "best": list(outcome.best),
        "preEnqueue": None if outcome.gated is None else _rejection_json(outcome.gated),
        "preemption": _preemption_json(preemption),
        "preemptionReason": preemption.reason,
    }


def _rejection_json(rejection: Rejection) -> dict[str, Any]:
    return {"plugin": rejection.plugin, "code": rejection.code.value, "reasons": sorted(rejection.reasons)}


def _preemption_json(preemption: Preemption) -> dict[str, Any] | None:
    if not preemption.best:
        return None
    best = sorted(preemption.best, key=lambda candidate: candidate.node_name)
    found: dict[str, Any] = {"nominated": best[0].node_name}
    if len(best) > 1:
        found["nominatedAnyOf"] = [candidate.node_name for candidate in best]
    found["victims"] = [pod.key for pod in best[0].victims]
    found["candidates"] = {c.node_name: _candidate_json(c) for c in preemption.candidates}
    return found


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    found: dict[str, Any] = {"victims": [pod.key for pod in candidate.victims]}
    if candidate.violations:
        found["pdbViolations"] = candidate.violations
    return found
