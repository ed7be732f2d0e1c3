"""What comes of a search for devices: what is given, or why nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared.model.devices import DeviceAsk, DeviceClaim
from shared.scheduling.devices.capacity import Amounts
from shared.scheduling.devices.pools import DevicePool
from shared.scheduling.framework import Code


class GivenDevice(NamedTuple):
    """One device chosen: which one, for which request (``name`` or ``name/alternative``), and how much of it."""

    pool: int
    device: int
    request: str
    ask: DeviceAsk
    consumed: Amounts


class FoundDevices(NamedTuple):
    """``given``: per claim, in the order of its requests. ``chosen``: per claim and request, which alternative."""

    given: tuple[tuple[GivenDevice, ...], ...]
    chosen: tuple[tuple[int, ...], ...]
    steps: int = 0


class AllocationFailure(NamedTuple):
    """Why nothing is given. ``code`` ERROR fails the whole cycle. ``text`` may hold ``{claim}``, ``{pool}`` and
    ``{device}`` (``say`` fills them in), as equal nodes share one answer. ``exhausted``: the steps were used up."""

    code: Code
    text: str
    claim: int = -1
    pool: int = -1
    device: int = -1
    steps: int = 0
    exhausted: bool = False

    def say(self, claims: Sequence[DeviceClaim], pools: Sequence[DevicePool]) -> str:
        """The reason in full."""
        text = self.text
        if self.claim >= 0:
            text = text.replace("{claim}", claims[self.claim].key)
        if self.pool >= 0:
            pool = pools[self.pool]
            text = text.replace("{pool}", "/".join(pool.id))
            if self.device >= 0:
                text = text.replace("{device}", "/".join(pool.devices[self.device].id))
        return text


class SearchEnded(Exception):
    """A search ends here, whatever is left to try."""

    def __init__(self, failure: AllocationFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure
