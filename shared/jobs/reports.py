"""What a training job says of itself, and what of it is believed. Pure.

A report is a hint: it never changes whether a job runs, only how well it is divided over GPUs. One that cannot be true
is refused whole, with a line that names the field, and what was accepted before stands.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.model.controllers.training_job import JobFigures, JobReport

MAX_BYTES = 4096
MAX_STEPS = 1 << 53
MAX_SPEED = 1e9
"""Samples per second: more is no measurement."""
MAX_SAMPLES = 1e18
MAX_EPOCHS = 1e6

BOUNDS: dict[str, tuple[float, float]] = {
    "samples_per_s": (0.0, MAX_SPEED),
    "progress": (0.0, 1.0),
    "epochs_left": (0.0, MAX_EPOCHS),
    "remaining_samples": (0.0, MAX_SAMPLES),
    "loss": (-1e30, 1e30),
}


class Said(JobFigures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a report. ``job``: ``namespace/name``, where the sender wants to be told if it is another's."""

    job: str = ""


class ReportRefused(ValueError):
    """The report is not believed; the message names the field. ``reason``: for the condition on the object."""

    def __init__(self, message: str, *, reason: str = "ReportInvalid") -> None:
        super().__init__(message)
        self.reason = reason


def read_report(body: bytes | str) -> Said:
    """A report's JSON. ``ReportRefused``: it is none, or too large. ``NaN`` is no JSON, and told so."""
    if len(body) > MAX_BYTES:
        raise ReportRefused(f"the report has {len(body)} bytes; at most {MAX_BYTES} are read")
    try:
        return msgspec.json.decode(body, type=Said)
    except msgspec.ValidationError as error:
        raise ReportRefused(f"the report does not fit: {str(error)[:128]}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReportRefused(
            f"the report is no JSON ({str(error)[:96]}); NaN and infinity are not, leave them out"
        ) from None


def accept(said: Said, *, job: str, last: JobReport, at: float, restarted: bool) -> JobReport:
    """What is known of the job from now on. ``job``: whose token it came with; ``restarted``: its workers were started
    again since ``last``, so its steps may be fewer. ``ReportRefused``: it cannot be true.
    """
    if said.job and said.job != job:
        raise ReportRefused(
            f"job: {said.job[:128]!r} is another; a job reports for itself alone", reason="ReportForeign"
        )
    for name, (least, most) in BOUNDS.items():
        value: Any = getattr(said, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise ReportRefused(f"{name}: {value!r} must be from {least:g} to {most:g}")
    for name in ("steps", "checkpoint_steps", "resumed_steps"):
        steps: int | None = getattr(said, name)
        if steps is not None and not 0 <= steps <= MAX_STEPS:
            raise ReportRefused(f"{name}: {steps!r} must be from 0 to {MAX_STEPS}")
    steps, saved = said.steps, said.checkpoint_steps
    if steps is not None and saved is not None and saved > steps:
        raise ReportRefused(f"checkpoint_steps: {saved} is more than steps, {steps}")
    resumed = said.resumed_steps
    if steps is not None and resumed is not None and resumed > steps:
        raise ReportRefused(f"resumed_steps: {resumed} is more than steps, {steps}")
    if steps is not None and last.steps is not None and steps < last.steps and not restarted and resumed is None:
        raise ReportRefused(
            f"steps: {steps} is less than {last.steps} before, and its workers were not started again; where its "
            "processes start by themselves, report resumed_steps"
        )

    told = {name: getattr(said, name) for name in JobFigures.__struct_fields__}
    news = {name: value for name, value in told.items() if value is not None}
    return replace(last, **{**news, "resumed_steps": resumed, "at": at})


def began_anew(last: JobReport, report: JobReport) -> bool:
    """Whether the processes that report are others than before."""
    if report.steps is not None and last.steps is not None and report.steps < last.steps:
        return True
    return last.steps is not None and report.resumed_steps is not None and report.resumed_steps != last.resumed_steps


def lost_steps(last: JobReport, report: JobReport) -> int:
    """Steps done in vain, where the processes began anew: from where they began to what was reported before."""
    if last.steps is None or report.steps is None or not began_anew(last, report):
        return 0
    return max(0, last.steps - (report.steps if report.resumed_steps is None else report.resumed_steps))
