"""Which filters judge and which scores are added: kube-scheduler's own word for a set of enabled plugins.

One set per process, from its settings; ``DEFAULT`` unless the user brings rules of his own (``shared.plugins``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shared.model.gpu_shares import DEFAULT as GPU_DEFAULT
from shared.model.gpu_shares import GpuShares
from shared.model.load import DEFAULT as LOAD_DEFAULT
from shared.model.load import LoadParts
from shared.model.power import PUBLISHED, PowerCurves
from shared.scheduling.filters import FILTERS
from shared.scheduling.filters.static import LatencyLimit
from shared.scheduling.framework import Filter, Score


@dataclass(frozen=True, slots=True)
class PluginSet:
    """``filters``: all node-local ones, in order. ``brought``: those among them that the user brings and that read
    accounting, which ``conflicts.fits`` does not know by itself. ``scores``: the user's. ``names``: of the user's
    filters, sorted; services that filter must agree on them. ``gpu_shares``, ``power``, ``load_parts``:
    what counts as a GPU, what nodes draw, and of what their load is the mean, for policies."""

    filters: tuple[Filter, ...] = FILTERS
    brought: tuple[Filter, ...] = ()
    scores: tuple[Score, ...] = ()
    names: tuple[str, ...] = ()
    gpu_shares: GpuShares = GPU_DEFAULT
    power: PowerCurves = PUBLISHED
    load_parts: LoadParts = LOAD_DEFAULT

    @property
    def dynamic(self) -> PluginSet:
        """The same without the static filters."""
        return replace(self, filters=tuple(rule for rule in self.filters if not rule.static))

    @property
    def unmeasured(self) -> PluginSet:
        """The same for who hears no readings of agents: limits of latency to a target pass."""
        unmeasured = LatencyLimit(measured=False)
        return replace(self, filters=tuple(unmeasured if isinstance(f, LatencyLimit) else f for f in self.filters))


DEFAULT = PluginSet()
UNMEASURED = DEFAULT.unmeasured


def with_plugins(filters: tuple[Filter, ...], scores: tuple[Score, ...]) -> PluginSet:
    """The default profile and the user's. His filters come before the last of ours, which is kube-scheduler's last."""
    return PluginSet(
        # Before the last of ours (`LAST`), whose reason is told only where no other filter refuses.
        (*FILTERS[:-1], *filters, FILTERS[-1]),
        tuple(rule for rule in filters if not rule.static),
        scores,
        tuple(sorted(rule.name for rule in filters)),
    )
