"""Lists of seeds as people write them: ``42-51,60``."""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import ConfigError

TEST_SEEDS = tuple(range(42, 52))
"""What every figure is reported on; policies are chosen on others."""
MAX_SEEDS = 10_000
MAX_SEED = 2**31 - 1


def parse_seeds(text: str, *, flag: str = "--seeds") -> tuple[int, ...]:
    """The seeds of ``text`` in its order. Raises ``ConfigError`` for anything else than distinct numbers and ranges."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        low = _number(first, part, flag)
        high = _number(last, part, flag) if dash else low
        if high < low:
            raise ConfigError(f"{flag}: {part.strip()!r} ends before it begins; write {high}-{low}")
        if high - low >= MAX_SEEDS or len(seeds) + high - low >= MAX_SEEDS:
            raise ConfigError(f"{flag}: more than {MAX_SEEDS} seeds; give fewer")
        for seed in range(low, high + 1):
            if seed in seeds:
                raise ConfigError(f"{flag}: {seed} is given twice; the same seed adds no evidence, leave it out")
            seeds[seed] = None
    return tuple(seeds)


def _number(text: str, part: str, flag: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > MAX_SEED:
        raise ConfigError(f"{flag}: {part.strip()[:40]!r} is no seed; give numbers up to {MAX_SEED}, as in 42-51,60")
    return int(text)


def spelled_seeds(seeds: Sequence[int]) -> str:
    """What ``parse_seeds`` reads as these seeds: runs of neighbours are joined, as in ``42-51,60``."""
    parts: list[str] = []
    start = 0
    for at in range(1, len(seeds) + 1):
        if at == len(seeds) or seeds[at] != seeds[at - 1] + 1:
            parts.append(str(seeds[start]) if at - start == 1 else f"{seeds[start]}-{seeds[at - 1]}")
            start = at
    return ",".join(parts)
