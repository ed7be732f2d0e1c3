"""Amounts as people write them. Pure."""

from __future__ import annotations


def amount_text(resource: str, amount: int) -> str:
    """As people write quantities: ``1500m``, ``2``, ``64Mi``; exact."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
