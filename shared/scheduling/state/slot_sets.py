"""Sets of slots as they travel, and masks and scores over rows to and from them.

A slot is the coordinator's row. Few slots are smallest as numbers, many as a bitmap; most guidance concerns domains, so
scores are few levels with many slots each.
"""

from __future__ import annotations

import numpy as np

from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.wire.messages import RowGuidance, SlotSet

BYTES_PER_SLOT = 2
"""What a slot costs as a number in msgpack (up to 127 one byte, up to 255 two, then three)."""


def pack(slots: IntArray) -> SlotSet:
    """The smaller form of a set of slots, given ascending."""
    if not len(slots):
        return []
    greatest = int(slots[-1])
    if len(slots) * BYTES_PER_SLOT <= greatest // 8 + 1:
        found: list[int] = slots.tolist()
        return found
    bits = np.zeros(greatest + 1, np.uint8)
    bits[slots] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def unpack(slots: SlotSet) -> IntArray:
    """The slots of either form, ascending."""
    if isinstance(slots, bytes):
        return np.flatnonzero(np.unpackbits(np.frombuffer(slots, np.uint8), bitorder="little"))
    return np.array(slots, np.int64)


def guidance_of(owned: IntArray, mask: BoolArray | None, scores: IntArray | None, distinct: int) -> RowGuidance | None:
    """What one agent, who owns the slots ``owned`` (ascending), is told; None when none of them is allowed.

    ``mask [rows]`` None: all allowed; ``scores [rows]`` None: all 0.
    """
    if len(owned) == 1:  # many agents may own a node each, and numpy is slow for one number
        (slot,) = owned.tolist()
        if mask is not None and not mask[slot]:
            return None
        level = 0 if scores is None else int(scores[slot])
        return RowGuidance([slot], [(level, [slot])] if level else [], distinct)
    allowed = owned if mask is None else owned[mask[owned]]
    if not len(allowed):
        return None
    if scores is None:
        return RowGuidance(pack(allowed), [], distinct)
    values = scores.take(allowed)
    there = np.bincount(values) if values.min() >= 0 else None  # np.unique sorts
    found = np.unique(values) if there is None else np.flatnonzero(there)
    levels = [(value, pack(allowed[values == value])) for value in found.tolist() if value]
    return RowGuidance(pack(allowed), levels, distinct)
