"""GPU nodes and GPU requests as arrays: the state that a placement score is a function of.

Why: the twin's GPU cluster changes these amounts, and the fragmentation heuristic and the learned policy judge them.
Neither may import the other, so what both speak of stands here. It decides nothing.

Units: CPU in milli-cores, memory in MiB, GPU in thousandths of a device. A GPU model is a small code; a set of models
is a bit mask of codes, ``ANY_MODEL`` has every bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.model.resources import MILLI_PER_DEVICE

Ints = NDArray[np.int64]

ANY_MODEL = -1
MAX_MODELS = 62
"""Codes that fit a signed 64-bit mask."""


class GpuRequest(Struct, frozen=True):
    """What a pod asks for. ``devices`` 0: no GPU; 1 with ``milli`` < 1000: a share of one; else whole devices."""

    cpu: int
    memory: int
    devices: int
    milli: int
    models: int = ANY_MODEL

    @property
    def gpu(self) -> int:
        """Thousandths of a device in all."""
        return self.devices * self.milli

    @property
    def shared(self) -> bool:
        """Whether it takes a share of one device."""
        return self.devices == 1 and self.milli < MILLI_PER_DEVICE


class GpuStates(Struct, frozen=True):
    """Node states, one per row.

    ``cpu``, ``memory``, ``cpu_total``, ``memory_total``, ``devices``, ``model``: int64 ``[states]``; ``free``: int64
    ``[states, width]``, what is free of each device, 0 in columns beyond ``devices``.
    """

    cpu: Ints
    memory: Ints
    free: Ints
    devices: Ints
    model: Ints
    cpu_total: Ints
    memory_total: Ints

    def __len__(self) -> int:
        return len(self.cpu)

    def take(self, rows: Ints) -> GpuStates:
        """The states of ``rows``, copied."""
        return GpuStates(
            self.cpu[rows], self.memory[rows], self.free[rows], self.devices[rows], self.model[rows],
            self.cpu_total[rows], self.memory_total[rows],
        )  # fmt: skip

    def joined(self, *others: GpuStates) -> GpuStates:
        """These states, then ``others``."""
        every = (self, *others)
        return GpuStates(
            np.concatenate([one.cpu for one in every]), np.concatenate([one.memory for one in every]),
            np.concatenate([one.free for one in every]), np.concatenate([one.devices for one in every]),
            np.concatenate([one.model for one in every]), np.concatenate([one.cpu_total for one in every]),
            np.concatenate([one.memory_total for one in every]),
        )  # fmt: skip

    def accepted_by(self, models: int) -> NDArray[np.bool_]:
        """bool ``[states]``: whether the node's model is one of ``models``."""
        if models == ANY_MODEL:
            return np.ones(len(self), np.bool_)
        return ((models >> self.model) & 1).astype(np.bool_)


class GpuOptions(Struct, frozen=True):
    """Ways to put one request on some states.

    ``row``: int64 ``[options]``, which of the states given; ``device``: int64 ``[options]``, the device of a share, -1
    where there is nothing to choose; ``after``: the states that follow.
    """

    row: Ints
    device: Ints
    after: GpuStates


def options(states: GpuStates, request: GpuRequest, *, fullest_only: bool = False) -> GpuOptions:
    """Every way to put ``request`` on each of ``states``, all of which must have room for it.

    A share has one way per device with room; devices with the same amount free count once, the first. With
    ``fullest_only`` it has one way, the fullest device with room. Whole devices are all alike: the first free ones are
    taken.
    """
    count, width = states.free.shape
    if request.shared and fullest_only:
        row, device = np.arange(count), fullest(states, request)
    elif request.shared:
        fits = states.free >= request.milli
        for column in range(1, width):
            same = (states.free[:, :column] == states.free[:, column : column + 1]).any(1)
            fits[:, column] &= ~same
        row, device = np.nonzero(fits)
    else:
        row, device = np.arange(count), np.full(count, -1)
    after = states.take(row)
    after.cpu[:] -= request.cpu
    after.memory[:] -= request.memory
    if request.shared:
        after.free[np.arange(len(row)), device] -= request.milli
    elif request.devices:
        whole = after.free == MILLI_PER_DEVICE
        after.free[whole & (whole.cumsum(1) <= request.devices)] = 0
    return GpuOptions(row.astype(np.int64), device.astype(np.int64), after)


def pick_devices(free: Sequence[int], milli: int) -> tuple[int, ...]:
    """Of devices with so much free, those that a request of ``milli`` thousandths gets; () where there is no room. A
    share gets the fullest with room, whole devices are the first free ones."""
    if milli <= 0:
        return ()
    if milli < MILLI_PER_DEVICE:
        fitting = [(left, index) for index, left in enumerate(free) if left >= milli]
        return (min(fitting)[1],) if fitting else ()
    whole = [index for index, left in enumerate(free) if left == MILLI_PER_DEVICE]
    wanted = milli // MILLI_PER_DEVICE
    return tuple(whole[:wanted]) if len(whole) >= wanted else ()


def take_devices(free: list[int], claimed: tuple[int, int]) -> None:
    """Take (devices, thousandths of each) from what is free; nothing where there is no room."""
    devices, each = claimed
    for index in pick_devices(free, devices * each):
        free[index] -= each


def fullest(states: GpuStates, request: GpuRequest) -> Ints:
    """int64 ``[states]``: the fullest device with room for the share, the first of equals; -1 without a share."""
    if not request.shared:
        return np.full(len(states), -1, np.int64)
    room = np.where(states.free >= request.milli, states.free, np.iinfo(np.int64).max)
    return np.asarray(room.argmin(1), np.int64)
