"""The replay buffer: a ring of transitions whose fields have any shape, sampled uniformly.

It knows nothing of networks or environments: a transition is one value per declared field, with names that carry time
(``s_tm1``, ``a_tm1``, ``r_t``, ``discount_t``, ``s_t``, masks alike). ``discount_t`` is 0 at a true end, so a cut
episode is no special case. It refuses what would poison training in silence: a missing or unknown field, a wrong
shape, a number that is not finite. All randomness is the generator it is given; ``get_state``/``set_state`` make a
resumed run draw the same samples (the shape of dqn_zoo's ``replay.py``, Mnih et al. 2015).

Invariants, checked by ``check_valid``:
R1 0 <= size <= capacity, and size = min(added, capacity).
R2 every array holds ``capacity`` items of its field's shape and dtype.
R3 every stored float is finite, every stored discount lies in [0, 1].
R4 every action is allowed by its mask, where both are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.errors import ConfigError

Batch = dict[str, NDArray[Any]]
"""Field name to an array ``[batch, *field shape]``."""


@dataclass(frozen=True, slots=True)
class Field:
    """One named part of a transition: ``shape`` without the batch dimension, and numpy ``dtype``."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def transition_fields(
    observation: tuple[int, ...], *, actions: int | None = None, members: int | None = None
) -> dict[str, Field]:
    """The fields of a DQN transition.

    ``observation``: shape of one state. ``actions``: with it, masks of allowed actions ``mask_tm1`` and ``mask_t``
    are kept. ``members``: with it, the state is a padded set and ``present_tm1``, ``present_t`` tell its real members.
    """
    fields = {
        "s_tm1": Field(observation),
        "a_tm1": Field((), "int64"),
        "r_t": Field(()),
        "discount_t": Field(()),
        "s_t": Field(observation),
    }
    if actions is not None:
        fields |= {"mask_tm1": Field((actions,), "bool"), "mask_t": Field((actions,), "bool")}
    if members is not None:
        fields |= {"present_tm1": Field((members,), "bool"), "present_t": Field((members,), "bool")}
    return fields


class ReplayBuffer:
    """The last ``capacity`` transitions; ``rng`` draws the samples, with replacement."""

    def __init__(self, fields: Mapping[str, Field], *, capacity: int, rng: np.random.Generator) -> None:
        if capacity < 1:
            raise ConfigError(f"replay.capacity: {capacity} holds nothing; give 1 or more")
        self.fields = dict(fields)
        self.capacity = capacity
        self.added = 0
        self._rng = rng
        self._arrays: Batch = {
            name: np.zeros((capacity, *field.shape), field.dtype) for name, field in self.fields.items()
        }

    @property
    def size(self) -> int:
        """Transitions held."""
        return min(self.added, self.capacity)

    def add(self, transition: Mapping[str, ArrayLike]) -> None:
        """Keep one transition; the oldest goes when full. Raises ``ConfigError`` naming the bad field."""
        self.add_many({name: np.asarray(value)[None] for name, value in transition.items()})

    def add_many(self, transitions: Mapping[str, ArrayLike]) -> None:
        """Keep a batch of transitions, in order: ``[batch, *field shape]`` per field. All or none are kept."""
        if transitions.keys() != self.fields.keys():
            odd = sorted(transitions.keys() ^ self.fields.keys())
            raise ConfigError(f"replay: field {odd[0]!r} is missing or not declared; give {sorted(self.fields)}")
        arrays = {name: self._checked(name, value) for name, value in transitions.items()}
        counts = {len(array) for array in arrays.values()}
        if len(counts) != 1:
            raise ConfigError(f"replay: fields of {sorted(counts)} transitions in one batch; give one length")
        count = counts.pop()
        if count > self.capacity:
            raise ConfigError(f"replay: {count} transitions at once exceed the capacity {self.capacity}")
        if not _masks_hold(arrays):
            raise ConfigError("replay: field 'a_tm1' names an action that 'mask_tm1' forbids")
        slots = (self.added + np.arange(count)) % self.capacity
        for name, array in arrays.items():
            self._arrays[name][slots] = array
        self.added += count

    def sample(self, count: int) -> Batch:
        """``count`` transitions drawn uniformly with replacement, as copies. Raises ``ConfigError`` when empty."""
        if not self.added:
            raise ConfigError("replay: nothing to sample from; add transitions first")
        chosen = self._rng.integers(self.size, size=count)
        return {name: array[chosen] for name, array in self._arrays.items()}

    def held(self, name: str) -> NDArray[Any]:
        """What a field has, of all transitions held; not to be written to."""
        return self._arrays[name][: self.size]

    def check_valid(self) -> tuple[bool, str]:
        """(True, "") when R1-R4 hold, else False and which one does not."""
        if self.added < 0 or self.capacity < 1:
            return False, f"R1: added {self.added}, capacity {self.capacity}"
        for name, field in self.fields.items():
            array = self._arrays.get(name)
            if array is None or array.shape != (self.capacity, *field.shape) or array.dtype != np.dtype(field.dtype):
                return False, f"R2: {name} is {None if array is None else (array.shape, array.dtype)}"
            if array.dtype.kind == "f" and not np.isfinite(array[: self.size]).all():
                return False, f"R3: {name} is not finite"
        held = {name: array[: self.size] for name, array in self._arrays.items()}
        discount = held.get("discount_t")
        if discount is not None and self.added and (discount.min() < 0 or discount.max() > 1):
            return False, "R3: discount_t outside [0, 1]"
        if not _masks_hold(held):
            return False, "R4: an action is forbidden by its mask"
        return True, ""

    def get_state(self) -> dict[str, Any]:
        """All that ``set_state`` needs: what is held, how many were added, the generator."""
        return {
            "added": self.added,
            "capacity": self.capacity,
            "rng": self._rng.bit_generator.state,
            "arrays": {name: array[: self.size].copy() for name, array in self._arrays.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer. Raises ``ConfigError`` when it is of another buffer."""
        arrays: Mapping[str, NDArray[Any]] = state["arrays"]
        size = min(state["added"], state["capacity"])
        fits = state["capacity"] == self.capacity and arrays.keys() == self.fields.keys()
        if not fits or any(arrays[name].shape != (size, *field.shape) for name, field in self.fields.items()):
            raise ConfigError(
                "replay: the saved state is of a buffer with other fields or capacity; start from scratch"
            )
        for name, array in arrays.items():
            self._arrays[name][:size] = array
        self.added = state["added"]
        self._rng.bit_generator.state = state["rng"]

    def _checked(self, name: str, value: ArrayLike) -> NDArray[Any]:
        field = self.fields[name]
        array = np.asarray(value)
        if array.shape[1:] != field.shape:
            raise ConfigError(f"replay: field {name!r} has shape {array.shape[1:]}, not {field.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ConfigError(f"replay: field {name!r} holds a number that is not finite; look at its source")
        if name == "discount_t" and array.size and (array.min() < 0 or array.max() > 1):
            raise ConfigError(f"replay: field 'discount_t' lies outside [0, 1]: {array.min()}..{array.max()}")
        return array.astype(field.dtype, copy=False)


def _masks_hold(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether each action is one that its mask allows (R4); True where either is not kept."""
    actions, masks = arrays.get("a_tm1"), arrays.get("mask_tm1")
    if actions is None or masks is None or not len(actions):
        return True
    if actions.min() < 0 or actions.max() >= masks.shape[1]:
        return False
    return bool(masks[np.arange(len(actions)), actions].all())
