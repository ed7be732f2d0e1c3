"""Under which version weights are published: a title names one set of weights, and one set has one title.

``conclave explain``, annotations and the history tell policies by ``name@version``. Trainers number every result from
1, so two results would share a title; the later one is numbered on. Pure; it refuses to change anything but the version
in the card.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from shared.policy.weights import WeightsFile, decode, digest, encode
from shared.wire.records import PolicyPointer, PolicyRef


def refs_of(pointers: Iterable[PolicyPointer]) -> list[PolicyRef]:
    """Every policy that these pointers name, in their order, each once."""
    found: dict[PolicyRef, None] = {}
    for known in pointers:
        for ref in (known.candidate, known.active, known.previous):
            if ref is not None:
                found.setdefault(ref)
    return list(found)


def numbered(data: bytes, policy: str, published: Collection[PolicyRef]) -> bytes:
    """``data``, or the same weights under the version that they have already, else under one that no others have.

    ``published``: the policies known so far, of any name. Raises ``ConfigError`` for weights that ``decode`` refuses.
    """
    mine = [ref for ref in published if ref.name == policy]
    sha256 = digest(data)
    if any(ref.sha256 == sha256 for ref in mine):
        return data
    file = decode(data, policy=policy)
    taken = {ref.version for ref in mine}
    known = {ref.sha256 for ref in mine}
    for version in taken:
        same = _renumbered(file, version)
        if digest(same) in known:
            return same
    return data if file.card.version not in taken else _renumbered(file, max(taken) + 1)


def _renumbered(file: WeightsFile, version: int) -> bytes:
    return encode(WeightsFile(file.arrays, msgspec.structs.replace(file.card, version=version)))
