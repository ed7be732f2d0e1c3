"""What a cluster does to a run, without one: function and item are pickled there, the result is pickled back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def elsewhere(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
    """The results in the items' order; the last item is done first."""
    packed = [pickle.dumps((function, item)) for item in items]
    found = [pickle.dumps(called(item)) for called, item in map(pickle.loads, reversed(packed))]
    return iter([pickle.loads(result) for result in reversed(found)])
