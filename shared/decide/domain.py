"""What is decided about, and within which limits: one ``Domain`` for placement, training jobs, autoscaling. Pure data.

A domain brings beside it its observation and decision, its policies by name (``registry``) and what stands in when one
fails. docs/adding-a-domain.md goes through all of it.
"""

from __future__ import annotations

from msgspec import Struct

from shared.decide.guard import GuardLimits


class Domain(Struct, frozen=True, kw_only=True):
    """It says what is decided about, by whom, and within which limits.

    ``name``: in etcd (``NAME/rollout``), routes (``/v1/NAME/policy``) and commands (``--for NAME``).
    """

    name: str
    subjects: str
    """What a canary takes a share of, in words."""
    service: str
    """Who decides, and takes a candidate back by itself, in words."""
    limits: GuardLimits
    shares: tuple[int, ...] = (10,)
    """Per cent of the subjects that a canary goes through before the candidate decides for all."""
    good_windows: int = 1
    """Windows that must speak for a candidate, one after the other, before each step but the one into shadow."""
