"""A network of its own for a class of nodes, beside the one that all share: which of them judges a node, and running
them.

    card: networks: {label: pool, values: {large: 1, small: 2}}      arrays: l0.w ... shared, c1.l0.w ... c2.l0.w ...

A class is a value of one label of nodes: their hardware, their pool, their name. A node that lacks the label, or has a
value that the card does not name, is judged by the shared network, so nodes may come and be labelled anew at any time.
One file holds all networks, so one digest names all that decides. Training: ``lab.learner.marl``. The rules of labels
are imported where such a card is read: agents without one do without them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.policy.networks import Floats, Params, layer_count, mlp, mlp_fault
from shared.policy.weights import NAME_CHARS, ClassNetworks, WeightsFile
from shared.scheduling.state.node_table import ABSENT, IntArray, NodeTable

SHARED = 0
"""The number of the network of all that belong to no class."""
MOST_VALUES = 1024
"""Of the label: each decision looks all of them up."""
Numbers = NDArray[np.float32]


def split(arrays: Params) -> dict[int, dict[str, Floats]]:
    """The arrays of each network by its number, named as those of one network alone."""
    found: dict[int, dict[str, Floats]] = defaultdict(dict)
    for name, array in arrays.items():
        prefix, _, own = name.partition(".")
        number = prefix[1:]
        if prefix[:1] == "c" and number.isascii() and number.isdecimal() and number[0] != "0":
            found[int(number)][own] = array
        else:
            found[SHARED][name] = array
    return dict(found)


def joined(networks: Mapping[int, Params]) -> dict[str, Floats]:
    """The arrays of one file, which ``split`` takes apart."""
    return {
        (name if number == SHARED else f"c{number}.{name}"): array
        for number, arrays in networks.items()
        for name, array in arrays.items()
    }


def run(networks: Mapping[int, Params], seen: Floats, numbers: Numbers) -> Floats:
    """float32 [rows, outputs]: each row of ``seen`` [rows, inputs] by the network of its number."""
    found: Floats | None = None
    for number in np.unique(numbers).tolist():
        params, rows = networks[int(number)], np.flatnonzero(numbers == number)
        judged = mlp(params, seen[rows], layer_count(params))
        if found is None:
            found = np.empty((len(seen), judged.shape[1]), np.float32)
        found[rows] = judged
    if found is None:
        params = networks[SHARED]
        return mlp(params, seen, layer_count(params))
    return found


def of_classes(classes: ClassNetworks, table: NodeTable, rows: IntArray) -> Numbers:
    """float32 [rows]: the number of the network that judges each row."""
    codes = table.codes_of(classes.label)
    if codes is None:
        return np.full(len(rows), SHARED, np.float32)
    values = table.label_values[classes.label]
    by_code = np.full(len(values) + 1, SHARED, np.float32)  # the last one: ``ABSENT``
    for value, number in classes.values.items():
        by_code[values.get(value, ABSENT)] = number
    by_code[ABSENT] = SHARED
    found: Numbers = by_code[codes[rows]]
    return found


class Networks:
    """The networks of a weights file, each of so many ``inputs`` and ``outputs``. Raises ``ConfigError``."""

    def __init__(self, weights: WeightsFile, inputs: int, outputs: int) -> None:
        told = weights.card.networks
        self.classes = None if told is msgspec.UNSET else told
        """None: one network judges all nodes."""
        policy = weights.card.policy
        self._by_number = {SHARED: dict(weights.arrays)} if self.classes is None else split(weights.arrays)
        if self.classes is not None and (fault := _card_fault(self.classes, self._by_number)):
            raise ConfigError(f"weights of {policy}: networks: {fault}")
        for number, arrays in sorted(self._by_number.items()):
            whose = f"network {number}: " if number else ""
            if fault := mlp_fault(arrays):
                raise ConfigError(f"weights of {policy}: {whose}{fault}; train again")
            found = arrays["l0.w"].shape[0], arrays[f"l{layer_count(arrays) - 1}.w"].shape[1]
            if found != (inputs, outputs):
                raise ConfigError(
                    f"weights of {policy}: {whose}they are for {found[0]} inputs and {found[1]} actions, this release "
                    f"has {inputs} and {outputs}; train again, or use the release that wrote them"
                )
        self._shared = self._by_number[SHARED]
        self._layers = layer_count(self._shared)
        self.names = {SHARED: "shared", **names_of(self.classes)}
        """What each network is called, by its number."""

    def __call__(self, seen: Floats, numbers: Numbers | int) -> Floats:
        """float32 [rows, outputs] of ``seen`` [rows, inputs]; ``numbers``: of each row, or of all."""
        if isinstance(numbers, int):
            return mlp(self._shared, seen, self._layers)
        return run(self._by_number, seen, numbers)


def names_of(classes: ClassNetworks | None) -> dict[int, str]:
    """By number: for which nodes a network is, as a selector: ``pool=large``, or ``pool in (large, huge)``."""
    found: dict[int, list[str]] = defaultdict(list)
    for value, number in sorted(classes.values.items()) if classes is not None else ():
        found[number].append(value)
    label = "" if classes is None else classes.label
    return {
        number: f"{label}={values[0]}" if len(values) == 1 else f"{label} in ({', '.join(values)})"
        for number, values in sorted(found.items())
    }


def naming_fault(classes: ClassNetworks) -> str:
    """What keeps the label and the values from being those of nodes; "": nothing does."""
    from shared.kube.label_selectors import is_label_value, is_qualified_name

    if not is_qualified_name(classes.label):
        return f"label {classes.label[:NAME_CHARS]!r} is no key of a label; name one that nodes have, as in 'pool'"
    if len(classes.values) > MOST_VALUES:
        return f"{len(classes.values)} values are more than {MOST_VALUES}; name a label that groups nodes"
    for value in classes.values:
        if not is_label_value(value):
            return f"value {value[:NAME_CHARS]!r} is none that a label can have; name one of {classes.label}"
    return ""


def _card_fault(classes: ClassNetworks, by_number: Mapping[int, Params]) -> str:
    """What keeps the card's field from naming the file's networks; "": nothing does."""
    if fault := naming_fault(classes):
        return fault
    if SHARED not in by_number:
        return "the shared network is missing, which judges nodes of no class; add 'l0.w' and its other arrays"
    named, there = set(classes.values.values()), by_number.keys() - {SHARED}
    if missing := sorted(named - there):
        return f"network {missing[0]} is named and has no arrays 'c{missing[0]}.*'; add them, or leave its values out"
    if extra := sorted(there - named):
        return f"arrays 'c{extra[0]}.*' are of a network that no value has; name it, or leave them out"
    if not named:
        return "no value has a network; name some, or leave the field out"
    return ""
