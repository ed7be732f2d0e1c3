"""The GPU cluster of the placement experiment: nodes with devices, and nothing that ever leaves.

A pod needs CPU and memory, a device with its share free or enough wholly free devices, and one of the models it names
(the trace's own definitions; the mesh has the same rules as filters). Every state a node comes into has a number, the
same for nodes in the same state, so that what is computed of a state is computed once.

Placing what does not fit is an error of the caller: ``ValueError``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import ANY_MODEL, GpuRequest, Ints
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.rehearsal.submission import GpuNodes


class GpuCluster:
    """Free amounts per node. ``state_of``: int64 ``[nodes]``, the number of each node's state."""

    def __init__(self, nodes: GpuNodes) -> None:
        self.nodes = nodes
        self.states = nodes.states.take(np.arange(len(nodes.names)))
        self.capacity = nodes.capacity
        self.allocated = 0
        self.widest: Ints = self.states.free.max(1)
        self.whole: Ints = (self.states.free == MILLI_PER_DEVICE).sum(1)
        self.state_of: Ints = np.zeros(len(nodes.names), np.int64)
        self._numbers: dict[bytes, int] = {}
        self._key = np.zeros(self.states.free.shape[1] + 5, np.int64)
        for node in range(len(nodes.names)):
            self._number(node)

    def __len__(self) -> int:
        return len(self.state_of)

    def feasible(self, request: GpuRequest) -> NDArray[np.bool_]:
        """bool ``[nodes]``: where ``request`` has room now."""
        mask = (self.states.cpu >= request.cpu) & (self.states.memory >= request.memory)
        if request.shared:
            mask &= self.widest >= request.milli
        elif request.devices:
            mask &= self.whole >= request.devices
        if request.models != ANY_MODEL:
            mask &= self.states.accepted_by(request.models)
        return mask

    def place(self, node: int, request: GpuRequest, device: int = -1) -> tuple[int, ...]:
        """Take the amounts from ``node``; a share from ``device``. Returns the devices used."""
        states = self.states
        free = states.free[node]
        if request.shared:
            used = (device,)
            fits = 0 <= device < states.devices[node] and free[device] >= request.milli
        else:
            used = tuple(np.flatnonzero(free == MILLI_PER_DEVICE)[: request.devices].tolist())
            fits = len(used) == request.devices
        accepted = request.models == ANY_MODEL or (request.models >> int(states.model[node])) & 1
        if not fits or not accepted or states.cpu[node] < request.cpu or states.memory[node] < request.memory:
            raise ValueError(f"node {self.nodes.names[node]} has no room for {request}")
        states.cpu[node] -= request.cpu
        states.memory[node] -= request.memory
        for index in used:
            free[index] -= request.milli
        self.widest[node] = free.max()
        self.whole[node] = (free == MILLI_PER_DEVICE).sum()
        self.allocated += request.gpu
        self._number(node)
        return used

    def _number(self, node: int) -> None:
        states, key = self.states, self._key
        key[0], key[1], key[2] = states.cpu[node], states.memory[node], states.model[node]
        key[3], key[4] = states.cpu_total[node], states.memory_total[node]
        key[5:] = states.free[node]
        text = key.tobytes()
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._numbers)
        self.state_of[node] = number

    @property
    def state_count(self) -> int:
        """How many states have been numbered."""
        return len(self._numbers)
