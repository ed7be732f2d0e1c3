"""What a lock file pins: names, versions, and the sha256 of each file that may be installed. Pure but for reading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package. ``hashes``: of its files on the index, of which one is installed."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked(path: Path) -> list[Pinned]:
    """Every package of a lock file, by name. ``SystemExit``: one of them has no hash, or there is none at all."""
    text = path.read_text(encoding="utf-8")
    starts = list(PIN.finditer(text))
    ends = [*(found.start() for found in starts[1:]), len(text)][: len(starts)]
    pinned = [
        Pinned(found[1].lower(), found[2], tuple(HASH.findall(text[found.start() : end])))
        for found, end in zip(starts, ends, strict=True)
    ]
    bare = [one.name for one in pinned if not one.hashes]
    if bare or not pinned:
        raise SystemExit(f"{path}: {', '.join(bare) or 'no package'} without --hash; run `make lock`")
    return sorted(pinned, key=lambda one: one.name)


def image_locks(image: str) -> list[Path]:
    """The lock files that an image is installed from; the learner's torch is in one of its own."""
    names = [image, *(["torch"] if image == "learner" else [])]
    return [ROOT / "images" / f"{name}.lock" for name in names]


def contents(image: str) -> list[Pinned]:
    """What an image holds beside our own wheels and its base. A package of two locks is the later one's."""
    found = {one.name: one for path in image_locks(image) for one in locked(path)}
    return sorted(found.values(), key=lambda one: one.name)
