"""A policy behind a guard: whatever it does wrong, a decision still comes out, by what stands in, at once (I12).

    WILLING --good answer--> WILLING
       |  exception, an answer that cannot be used: what stands in decides;  ``patience`` of these in a row --> RESTING
       |  later than ``deadline_s``: as ``late_stands`` says;         ``patience`` deadlines late in a row --> RESTING
    RESTING --``rest`` decisions by what stands in--> WILLING (one try)

Policies are synchronous code, so a slow answer cannot be cut short; it can only be the last one for a while. The clock
is handed in and should count the thread's own CPU time: a loaded machine is not the policy's fault.

What stands in is each domain's (kube-default, what was decided last, the HPA's rule), and so is what an answer must be:
the function that is asked checks it, and raises ``Faulty`` for one that cannot be used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, ParamSpec, TypeVar

Seen = ParamSpec("Seen")
Answer = TypeVar("Answer")

MOST_TOLD = 256
"""Characters of what is told of a failure."""


class Failure(StrEnum):
    """What a policy did wrong. The values are in messages, metrics and the rollout's history."""

    NAN = "nan"
    """A number that is not finite."""
    SHAPE = "shape"
    """No answer to what was asked: not one score (or verdict) per candidate, no mapping."""
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    DIGEST = "digest"
    """Its weights could not be had or were refused: digest, schema, policy, shape."""
    RELEASE = "release"
    """Its weights are made for the inputs of another release. Releases that do not know the word pass over it."""


class Faulty(Exception):
    """An answer that cannot be used."""

    def __init__(self, failure: Failure, told: str = "") -> None:
        super().__init__(told or failure.value)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """When a policy is no longer asked."""

    deadline_s: float
    """CPU time from which on an answer is late."""
    patience: int = 3
    """Failed answers in a row after which the policy rests: each costs an answer of its own. A late one counts for as
    many as it took deadlines: one hiccup (a machine that loses its core, a collector's pass) is no reason to rest."""
    rest: int = 100
    """Decisions by what stands in before a resting policy is asked again; 0: it never rests."""
    late_stands: bool = True
    """Whether a late answer is taken all the same. Where deciding again costs as much, it is."""


def no_clock() -> float:
    """A clock that stands still: nothing is ever late."""
    return 0.0


class Guard(Generic[Seen, Answer]):
    """Asks ``decide`` within the limits. ``failures`` counts by kind since it is behind this guard."""

    def __init__(
        self, decide: Callable[Seen, Answer], limits: GuardLimits, *, clock: Callable[[], float] = no_clock
    ) -> None:
        self.clock = clock
        self.failures: Counter[Failure] = Counter()
        self.failure: Failure | None = None
        """Of the last answer; None: it was good, or not asked for."""
        self.problem = ""
        """The last failure in words; "" since an answer was good."""
        self.resting = 0
        """Decisions for which it is not asked any more."""
        self._decide = decide
        self._limits = limits
        self._bad_in_a_row = 0

    def ask(self, *seen: Seen.args, **named: Seen.kwargs) -> Answer | None:
        """Its answer. None: it rests, or its answer cannot be used; what stands in decides."""
        if self.resting:
            self.resting -= 1
            self.failure = None
            return None
        began = self.clock()
        try:
            answer = self._decide(*seen, **named)
        # One failure counts once, however long it took: counted by its deadlines as well, a single one could mean rest.
        except Faulty as fault:
            self._bad(fault.failure, str(fault), 1)
            return None
        except Exception as error:  # noqa: BLE001  a policy may be anybody's: a decision is wanted now; it is told
            self._bad(Failure.EXCEPTION, _told(error), 1)
            return None
        late = self._deadlines(began)
        if not late:
            self._bad_in_a_row, self.failure, self.problem = 0, None, ""
            return answer
        self._late(began, late)
        return answer if self._limits.late_stands else None

    def attempt(self, work: Callable[[], object]) -> None:
        """Something of the policy's of which no answer is wanted, and none while it rests: what goes wrong counts."""
        if self.resting:
            return
        began = self.clock()
        try:
            work()
        except Exception as error:  # noqa: BLE001  as in ``ask``
            self._bad(Failure.EXCEPTION, _told(error), 1)
            return
        if late := self._deadlines(began):
            self._late(began, late)

    def _deadlines(self, began: float) -> int:
        """How many deadlines have passed since."""
        return int((self.clock() - began) / self._limits.deadline_s)

    def _late(self, began: float, times: int) -> None:
        took_s = self.clock() - began
        self._bad(Failure.TIMEOUT, f"took {took_s:.1f} s; {self._limits.deadline_s:g} s are allowed", times)

    def _bad(self, failure: Failure, problem: str, times: int) -> None:
        self.failures[failure] += 1
        self.failure, self.problem = failure, problem[:MOST_TOLD]
        # By deadlines missed, not by answers: a policy that hangs for seconds rests at once, one hiccup is forgiven.
        self._bad_in_a_row += times
        if self._bad_in_a_row >= self._limits.patience:
            self.resting = self._limits.rest
            # one more failure after the rest, and it rests again
            self._bad_in_a_row = max(0, self._limits.patience - 1)


def _told(error: Exception) -> str:
    """The exception in words; its own text may be a bug too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  a policy's exception may be anybody's
        return type(error).__name__
