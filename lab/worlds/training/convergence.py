"""What a sample is worth: how far a step at some global batch brings a job, by its gradients' noise at that moment.

A step at ``scale`` times the initial batch is worth ``gain`` steps at the initial one (Pollux, OSDI 2021, section 3.1,
after McCandlish et al. 2018):

    gain = (var + sqr) / (var / scale + sqr),  1 <= gain <= scale

with ``var`` the variance and ``sqr`` the squared norm of the gradient at the initial batch, measured per epoch in
training runs at several batches, linear between these. Progress counts steps at the initial batch; the work is done
when progress reaches the end of the last epoch that every measured run has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One measured training run: per epoch, in order."""

    progress: tuple[float, ...]
    """At each epoch's end."""
    sqr: tuple[float, ...]
    var: tuple[float, ...]


@dataclass(frozen=True)
class Convergence:
    """The measured runs of one model. ``batches`` rise; ``ends[e]`` is the progress at which epoch e begins."""

    batches: tuple[int, ...]
    runs: tuple[MeasuredRun, ...]
    ends: tuple[float, ...]
    _steps: dict[float, list[float]] = field(default_factory=dict, compare=False)
    _gains: dict[tuple[float, int], float] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, runs: Sequence[tuple[int, MeasuredRun]]) -> Convergence:
        """From (global batch, run). ``ValueError``: no run, or progress that does not rise."""
        if not runs:
            raise ValueError("no run")
        ordered = sorted(runs, key=lambda one: one[0])
        epochs = min(len(run.progress) for _, run in ordered)
        ends = (0.0, *(min(run.progress[epoch] for _, run in ordered) for epoch in range(epochs)))
        if any(after <= before for before, after in pairwise(ends)):
            raise ValueError("progress does not rise from epoch to epoch")
        return cls(tuple(batch for batch, _ in ordered), tuple(run for _, run in ordered), ends)

    @property
    def initial(self) -> int:
        """The smallest measured batch: what progress is counted in."""
        return self.batches[0]

    @property
    def total(self) -> float:
        """Progress at which the job is done, steps at the initial batch."""
        return self.ends[-1]

    def epoch(self, progress: float) -> int:
        """In which epoch a job is; the last one at its end."""
        return min(bisect_right(self.ends, progress) - 1, len(self.ends) - 2)

    def gain(self, batch: float, epoch: int) -> float:
        """Steps at the initial batch that one step at ``batch`` is worth, which is taken into the measured range."""
        key = (batch, epoch)
        if key not in self._gains:
            self._gains[key] = self._gain(min(max(batch, self.batches[0]), self.batches[-1]), epoch)
        return self._gains[key]

    def _gain(self, batch: float, epoch: int) -> float:
        after = bisect_left(self.batches, batch)
        high = self.runs[after]
        sqr, var = high.sqr[epoch], high.var[epoch]
        if self.batches[after] != batch:
            low, before = self.runs[after - 1], self.batches[after - 1]
            share = (batch - before) / (self.batches[after] - before)
            sqr = low.sqr[epoch] + share * (sqr - low.sqr[epoch])
            var = low.var[epoch] + share * (var - low.var[epoch])
        scale = batch / self.initial
        below = var / scale + sqr
        return min(max((var + sqr) / below, 1.0), scale) if below > 0.0 else 1.0

    def efficiency(self, batch: float, progress: float) -> float:
        """What one sample at ``batch`` is worth in samples at the initial batch; ``progress`` in initial steps."""
        return self.gain(batch, self.epoch(progress)) * self.initial / batch

    def steps(self, progress: float, batch: float) -> float:
        """Steps at ``batch`` that bring a job from nothing to ``progress``."""
        at = self._at(batch)
        epoch = self.epoch(progress)
        return at[epoch] + (progress - self.ends[epoch]) / self.gain(batch, epoch)

    def steps_left(self, progress: float, batch: float) -> float:
        """Steps at ``batch`` until the job is done."""
        return max(self._at(batch)[-1] - self.steps(progress, batch), 0.0)

    def epochs_left(self, progress: float) -> float:
        """Epochs until the job is done, with the part of the present one."""
        epoch = self.epoch(progress)
        begun = (progress - self.ends[epoch]) / (self.ends[epoch + 1] - self.ends[epoch])
        return len(self.ends) - 1 - epoch - begun

    def advance(self, progress: float, batch: float, steps: float) -> float:
        """Progress after ``steps`` more steps at ``batch``; never beyond the end."""
        at = self._at(batch)
        reached = self.steps(progress, batch) + steps
        if reached >= at[-1]:
            return self.total
        epoch = bisect_right(at, reached) - 1
        return self.ends[epoch] + (reached - at[epoch]) * self.gain(batch, epoch)

    def _at(self, batch: float) -> list[float]:
        """Steps at ``batch`` after which each epoch begins."""
        if batch not in self._steps:
            epochs = range(len(self.ends) - 1)
            needed = ((self.ends[epoch + 1] - self.ends[epoch]) / self.gain(batch, epoch) for epoch in epochs)
            self._steps[batch] = [0.0, *accumulate(needed)]
        return self._steps[batch]
