"""Releases of etcd that must not be relied on, and what is said of them."""

from __future__ import annotations

UNSAFE = frozenset({"3.5.0", "3.5.1", "3.5.2"})
"""Releases that etcd's own project tells not to use: a crash under load may leave members with different data
(etcd-io/etcd issue 13766; repaired in 3.5.3)."""


def unsafe_text(version: str) -> str:
    """What is wrong with this release, and what to do; "" for nothing."""
    if version not in UNSAFE:
        return ""
    return f"etcd {version} may corrupt its data; run 3.5.3 or later, best a 3.6 (docs/operations/etcd.md)"
