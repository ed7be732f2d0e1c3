"""Of what a node's *load* is the mean: the parts that ``ee``, ``lb``, ``el`` and the goal ``balance`` watch.

    load_parts = "cpu,memory"

What a part comes to on a node is worked out in ``shared.policy.usage.load``. Pure.
"""

from __future__ import annotations

from shared.errors import ConfigError

PARTS = ("cpu", "memory", "disk", "network", "pods")
"""All there are. The first four can be measured, in the order of a node's samples; pods are counted."""

LoadParts = tuple[str, ...]

DEFAULT: LoadParts = ("cpu", "memory")
DEFAULT_TEXT = ",".join(DEFAULT)


def parse_load_parts(text: str) -> LoadParts:
    """Of names with commas between, in the order of ``PARTS``. Raises ``ConfigError``: which one, and the remedy."""
    named = [name.strip() for name in text.split(",")]
    for name in named:
        if name not in PARTS:
            raise ConfigError(f"load_parts: {name!r} is no part of a node; name one or more of {', '.join(PARTS)}")
        if named.count(name) > 1:
            raise ConfigError(f"load_parts: {name!r} stands there twice; name each part once")
    return tuple(part for part in PARTS if part in named)
