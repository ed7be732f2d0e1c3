"""The part of an offer that tells an agent what all pods ask for of GPUs, for policies that judge nodes by it.

The rules of ``messages.py`` hold here too. A level, told whole: an agent that is asked about few pods, or owns few
nodes, judges by the same demand as every other (``services/coordinator/rollout/demand.py`` counts it).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.wire.bounds import Count, Text

MAX_TYPICAL = 512
MAX_TOLD_MODELS = 64


class TypicalPod(Struct, frozen=True, array_like=True, gc=False):
    """A request, and how often it came: ``devices`` of which it takes ``milli`` thousandths each, of one of
    ``models``; of any where there are none."""

    cpu_millis: Count
    devices: Count
    milli: Count
    models: Annotated[list[Text], Meta(max_length=MAX_TOLD_MODELS)]
    pods: Count


class Demand(Struct, frozen=True, array_like=True, gc=False):
    """``typical``: the most frequent requests until 95 % of the pods are counted. ``devices``: how many the cluster has
    of each model; ``others``: of models beyond these, and of none that a label tells."""

    typical: Annotated[list[TypicalPod], Meta(min_length=1, max_length=MAX_TYPICAL)]
    devices: Annotated[dict[Text, Count], Meta(max_length=MAX_TOLD_MODELS)] = {}
    others: Count = 0
