"""Bodies of the three metrics APIs as the rule reads them. Pure.

Of resource metrics an entry that cannot be read is left out: its pod has none. A series of one's own that cannot be
read spoils the answer, since what is left would be taken for all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from shared.autoscaling.hpa import objects as api
from shared.autoscaling.hpa.convert_seen import custom_from_api, external_from_api, usage_from_api
from shared.autoscaling.hpa.model import CustomSeries, ExternalSeries, PodUsage
from shared.errors import KubeUnknown, ObjectError
from shared.kube.decoding import UNREADABLE, raw_items

I = TypeVar("I")  # noqa: E741 - an item as the API has it
F = TypeVar("F")


def pod_usages(body: bytes) -> list[PodUsage]:
    """The readable entries of a PodMetricsList. ``KubeUnknown``: it is no list at all."""
    found = []
    for index, entry in enumerate(raw_items(body, "PodMetricsList")):
        try:
            one = usage_from_api(msgspec.json.decode(entry, type=api.PodMetrics), f"items[{index}]")
        except (*UNREADABLE, ObjectError):
            continue
        if one.pod:
            found.append(one)
    return found


def custom_series(body: bytes) -> tuple[CustomSeries, ...]:
    """A MetricValueList. ``KubeUnknown``: it, or one of its values, cannot be read."""
    return _all(body, "MetricValueList", api.MetricValue, custom_from_api)


def external_series(body: bytes) -> tuple[ExternalSeries, ...]:
    """An ExternalMetricValueList. ``KubeUnknown``: it, or one of its values, cannot be read."""
    return _all(body, "ExternalMetricValueList", api.ExternalMetricValue, external_from_api)


def _all(body: bytes, noun: str, kind: type[I], convert: Callable[[I, str], F]) -> tuple[F, ...]:
    try:
        items = enumerate(raw_items(body, noun))
        return tuple(convert(msgspec.json.decode(one, type=kind), f"items[{index}]") for index, one in items)
    except (*UNREADABLE, ObjectError) as error:
        raise KubeUnknown(f"a value of the {noun} cannot be read ({error!s:.120})") from None
