"""What groups of nodes answer to claims of one kind: kept, since equal claims get equal answers on equal nodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.scheduling.devices.search.outcomes import AllocationFailure, FoundDevices
from shared.scheduling.framework import Code

UNASKED, REFUSED, GIVEN, FAILED = -1, 0, 1, 2
"""What a group of nodes says to claims; see ``DeviceAnswers``."""

Answer = FoundDevices | AllocationFailure

NOTHING_ASKED = FoundDevices((), ())
"""The answer to no claims."""


class DeviceAnswers:
    """About claims of one kind, by group of nodes. ``takes``: ``GIVEN`` where they get what they ask for, ``REFUSED``
    where not, ``FAILED`` where the question itself fails, ``UNASKED`` where nobody has asked yet."""

    def __init__(self) -> None:
        self._found: dict[int, Answer] = {}
        self.takes: npt.NDArray[np.int8] = np.full(64, UNASKED, np.int8)

    def get(self, group: int) -> Answer | None:
        """The answer, if there is one."""
        return self._found.get(group)

    def __len__(self) -> int:
        return len(self._found)

    def put(self, group: int, answer: Answer) -> None:
        """One more."""
        self.grow(group + 1)
        self._found[group] = answer
        self.takes[group] = as_said(answer)

    def grow(self, groups: int) -> None:
        """Room for so many groups."""
        if groups > len(self.takes):
            more = np.full(2 * groups - len(self.takes), UNASKED, np.int8)
            self.takes = np.concatenate((self.takes, more))


def as_said(answer: Answer) -> int:
    """The answer as one of the four."""
    if isinstance(answer, FoundDevices):
        return GIVEN
    return FAILED if answer.code is Code.ERROR else REFUSED
